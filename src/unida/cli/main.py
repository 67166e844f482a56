"""The command line: a table of commands, and how a command ends."""

import os
import sys

from unida import __version__
from unida.cli.adapt import Adapt
from unida.cli.bench import Bench
from unida.cli.data import DataCheck
from unida.cli.demo import Demo
from unida.cli.discover import Discover
from unida.cli.evaluate import Evaluate
from unida.cli.export import Export
from unida.cli.figure import Figure
from unida.cli.methods import Methods
from unida.cli.parser import Command, summary
from unida.cli.predict import Predict
from unida.cli.report import Report
from unida.cli.review import Review
from unida.cli.table import TableCommand
from unida.cli.terminal import log_error, logging_to_terminal
from unida.cli.tune import Tune
from unida.errors import UserError

COMMANDS: dict[str, type[Command]] = {
    "adapt": Adapt,
    "predict": Predict,
    "evaluate": Evaluate,
    "report": Report,
    "discover": Discover,
    "export": Export,
    "review": Review,
    "methods": Methods,
    "data check": DataCheck,
    "bench": Bench,
    "table": TableCommand,
    "figure": Figure,
    "tune": Tune,
    "demo": Demo,
}


def usage() -> str:
    """Return what `unida --help` prints."""
    lines = (f"  {name:<10}  {summary(kind)}" for name, kind in COMMANDS.items())
    return "\n".join(
        (
            "usage: unida COMMAND ...",
            "",
            *lines,
            "",
            "unida COMMAND --help says more.",
            "--debug shows where an unforeseen error arose.",
        )
    )


def main(argv: list[str] | None = None) -> int:
    """Run a command; an error the user can correct is one sentence and exit status 2.

    Any other error is one sentence and exit status 1, or with `--debug` its trace.
    """
    given = sys.argv[1:] if argv is None else argv
    args = [word for word in given if word != "--debug"]
    if args[:1] in ([], ["-h"], ["--help"]):
        print(usage())
        return 0
    if args[0] == "--version":
        print(f"unida {__version__}")
        return 0
    with logging_to_terminal():
        return _run(args, debug="--debug" in given)


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
