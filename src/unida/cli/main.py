"""The command line: a table of commands, and how a command ends."""

import os
import platform
import sys
from collections.abc import Callable

from unida import __version__
from unida.cli.adapt import Adapt
from unida.cli.bench import Bench
from unida.cli.completion import Completion
from unida.cli.data import DataCheck
from unida.cli.demo import Demo
from unida.cli.discover import Discover
from unida.cli.embed import Embed
from unida.cli.evaluate import Evaluate
from unida.cli.export import Export
from unida.cli.export_predictions import ExportPredictions
from unida.cli.figure import Figure
from unida.cli.import_corrections import ImportCorrections
from unida.cli.methods import Methods
from unida.cli.parser import Command, summary
from unida.cli.predict import Predict
from unida.cli.report import Report
from unida.cli.review import Review
from unida.cli.share import Share
from unida.cli.table import TableCommand
from unida.cli.terminal import Verbosity, log_error, logging_to_terminal
from unida.cli.tune import Tune
from unida.errors import UserError
from unida.utils.logs import logger

GROUPS: dict[str, dict[str, type[Command]]] = {
    "Label images": {
        "demo": Demo,
        "adapt": Adapt,
        "predict": Predict,
        "embed": Embed,
        "methods": Methods,
    },
    "Work with a run": {
        "evaluate": Evaluate,
        "report": Report,
        "discover": Discover,
        "review": Review,
        "export": Export,
        "share": Share,
    },
    "Work with other tools": {
        "export-predictions": ExportPredictions,
        "import-corrections": ImportCorrections,
    },
    "Compare methods": {
        "data check": DataCheck,
        "bench": Bench,
        "table": TableCommand,
        "figure": Figure,
        "tune": Tune,
    },
    "The shell": {"completion": Completion},
}
COMMANDS = {name: kind for group in GROUPS.values() for name, kind in group.items()}

VERSION = ("--version", "-V")
HELP = ("--help", "-h")
VERBOSITY: dict[str, Verbosity] = {
    "-q": "quiet",
    "--quiet": "quiet",
    "-v": "verbose",
    "--verbose": "verbose",
}
DEBUG = "--debug"
SYSTEM = f"{platform.system()} {platform.machine()}"


def usage() -> str:
    """Return what `unida --help` prints."""
    lines = []
    for title, commands in GROUPS.items():
        width = max(10, *map(len, commands))
        lines += [f"{title}:", *(f"  {n:<{width}}  {summary(k)}" for n, k in commands.items()), ""]
    return "\n".join(
        (
            "usage: unida COMMAND ...",
            "",
            *lines,
            "With every command:",
            "  -h, --help     its options, with an example",
            "  -q, --quiet    warnings and errors only, without progress",
            "  -v, --verbose  every logged step, with the time of day",
            "  --debug        where an unforeseen error arose",
            "  -V, --version  the version, and nothing else",
            "",
            "Example: unida adapt --source photos --target sketches --out runs/first",
        )
    )


def main(argv: list[str] | None = None) -> int:
    """Run a command; an error the user can correct is one sentence and exit status 2.

    Any other error is one sentence and exit status 1, or with `--debug` its trace.
    """
    given = sys.argv[1:] if argv is None else argv
    args = [word for word in given if word not in VERBOSITY and word != DEBUG]
    if not args or args[0] in HELP:
        return _print(usage)
    if args[0] in VERSION:
        return _print(lambda: f"unida {__version__}")
    asked = [VERBOSITY[word] for word in given if word in VERBOSITY]
    with logging_to_terminal(*asked[-1:]):
        logger.debug("unida %s, Python %s, %s", __version__, sys.version.split()[0], SYSTEM)
        return _run(args, debug=DEBUG in given)


def _print(text: Callable[[], str]) -> int:
    """Print what was asked for; `| head` may close the output early."""
    try:
        print(text(), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _run(args: list[str], debug: bool) -> int:
    """Parse and execute a command; return the exit status."""
    try:
        name = next((n for n in (" ".join(args[:2]), args[0]) if n in COMMANDS), None)
        if name is None:
            raise UserError(f"no command {args[0]!r}; the commands are {', '.join(COMMANDS)}.")
        COMMANDS[name].parse(name, args[len(name.split()) :]).execute()
    except SystemExit as stop:  # --help, or an option that does not exist: tyro has printed it
        return int(stop.code or 0)
    except UserError as error:
        log_error(f"unida: {error}")
        return 2
    except BrokenPipeError:  # | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        resume = "The same command with --resume goes on from the last checkpoint, if any."
        log_error(f"unida: stopped. {resume}" if args[0] == "adapt" else "unida: stopped.")
        return 130
    except Exception as error:
        if debug:
            raise
        if isinstance(error, OSError) and error.filename:  # such as a name that is too long
            log_error(f"unida: {error.filename} cannot be used: {error.strerror}.")
            return 2
        log_error(f"unida: {_describe(error)}")
        return 1
    return 0


def _describe(error: Exception) -> str:
    """Describe an error that nothing else has caught."""
    text = " ".join(str(error).split())[:300]
    reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return (
        f"an unforeseen error ({reason}). A file may be damaged, or it is a mistake in unida: "
        "--debug shows where it arose."
    )
