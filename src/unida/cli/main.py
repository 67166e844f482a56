"""The command line: a dict from command to function."""

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from unida import __version__
from unida.bench.figures.run import Figure, run_figure
from unida.bench.run import Bench, run_bench
from unida.bench.tables.run import TableCommand, run_table
from unida.bench.tune.plan import StudyOptions
from unida.bench.tune.run import run_tune
from unida.cli.demo import Demo, run_demo
from unida.cli.parser import parse as _parse
from unida.cli.parser import parse_run
from unida.data.samples import Skipped
from unida.decision.rejection import RULES, describe_rule, describe_rules
from unida.discovery.discover import Discover, run_discover
from unida.errors import UserError, shorten
from unida.evaluation.evaluate import calibration_errors, evaluate, to_json
from unida.export import Export, run_export
from unida.methods import METHODS
from unida.methods.presets import RunOptions, load_config
from unida.model import load
from unida.pipeline import run_adaptation
from unida.protocols.check import DataCheck, run_data_check
from unida.report.build import Report, refresh_report, run_report
from unida.review.continuation import drop_foreign_weights, next_config, run_continuation
from unida.review.server import Review, run_review
from unida.training.predictions import prediction_lines
from unida.training.run_folder import RunFolder, require_writable, write_lines, write_text
from unida.utils import distributed
from unida.utils.console import say
from unida.utils.csv_files import to_bytes
from unida.utils.devices import pick_device


@dataclass(frozen=True)
class Adapt(RunOptions):
    """Adapts a classifier from labelled source images to unlabelled target images.

    Example: unida adapt --source photos --target sketches --out runs/first
    """

    resume: bool = False
    """Go on with the unfinished run in --out; settings left out are taken from it."""
    continue_: Annotated[Path | None, tyro.conf.arg(name="continue", metavar="RUN")] = None
    """Train again with what `unida review RUN` saved: named categories become known classes.
    Options left out are taken from RUN, whose trained backbone is started from."""
    min_confidence: float = 0.5
    """With --continue: images less sure to be in their category are not learned from."""
    trust: float = 0.9
    """With --continue: target images called a known class with this confidence or more, and not
    corrected, are learned from too, lest the new classes be told by their domain; 2 is none."""


@dataclass(frozen=True)
class Predict:
    """Labels new images with a trained model.

    Example: unida predict runs/first holiday.jpg more-photos/ --to labels.csv
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a finished run, or a model.safetensors."""
    paths: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Images or folders of images."""
    to: Path | None = None
    """File to write; standard output if left out."""
    format: Literal["csv", "jsonl"] = "csv"
    """CSV with a header, or one JSON object a line."""
    reject: Annotated[
        str | None, tyro.conf.arg(help=f"{describe_rules()} By default the run's.")
    ] = None
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""


@dataclass(frozen=True)
class Evaluate:
    """Scores a trained model on images in class folders, under every reject rule.

    Example: unida evaluate runs/first --labels sketches-by-class
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a finished run."""
    labels: Path
    """Folder with one sub-folder a class; classes the source did not have count as unknown."""
    reject: str | None = None
    """One more reject rule, such as source:0.05 or threshold:0.3."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""


@dataclass(frozen=True)
class Methods:
    """Lists the methods, with paper, rule and origin, and all reject rules.

    Example: unida methods
    """


@dataclass(frozen=True)
class Tune(RunOptions):
    """Search settings of a method, chosen without target labels.

    The same command again goes on with it; on another machine, it helps. Options of a run and
    --set are as for unida adapt.

    Example: unida tune --source photos --target sketches --out study --space lam=0.1,0.3,1
    """

    study: StudyOptions = field(default_factory=StudyOptions)


def adapt_command(args: list[str]) -> None:
    given = parse_run(Adapt, "adapt", args)
    out = given.output.out
    stored = RunFolder(out).config
    if given.continue_:
        if given.resume:
            raise UserError("A continued run goes on like any other: --out and --resume alone.")
        begun = next_config(given.continue_)
        config = drop_foreign_weights(parse_run(Adapt, "adapt", args, begun).config(), begun)
        run_continuation(given.continue_, config, given.min_confidence, given.trust)
        return
    if given.resume and out and not given.data.source and not stored.exists():
        raise UserError(f"{out} holds no run to go on with: give the whole command again.")
    if given.resume and stored.exists():
        given = parse_run(Adapt, "adapt", args, load_config(stored))
    run_adaptation(given.config(), resume=given.resume)


def predict_command(args: list[str]) -> None:
    given = _parse(Predict, "predict", args)
    skipped: list[Skipped] = []
    if gone := [str(path) for path in given.paths if not os.path.exists(path)]:
        raise UserError(f"There is no {shorten(gone)}.")
    if given.to:
        require_writable(given.to)
    distributed.setup(pick_device(given.device))
    model = load(given.run, given.device)
    rule = model.rule(given.reject)
    if given.reject and describe_rule(given.reject, rule) != given.reject:
        say(f"{describe_rule(given.reject, rule)}: {rule.note}.")
    predictions = model.predict(given.paths, given.reject, skipped)
    if given.format == "csv":
        lines = prediction_lines(predictions)
    else:
        rows = (dataclasses.asdict(p) | {"path": str(p.path)} for p in predictions)
        lines = (json.dumps(row) + "\n" for row in rows)
    if given.to:
        write_lines(given.to, lines)
    elif distributed.is_main_process():
        sys.stdout.buffer.writelines(map(to_bytes, lines))
        sys.stdout.flush()
    for bad in skipped:
        say(f"left out: {bad.path} ({bad.reason})")


def evaluate_command(args: list[str]) -> None:
    given = _parse(Evaluate, "evaluate", args)
    model = load(given.run, given.device)
    if given.reject:
        model = model.with_rule(given.reject)
    result = evaluate(model, given.labels)
    title = f"{model.method_name} on {given.labels}, {len(result.labels)} images, in %"
    table = Table(title=Text(title))
    names = [field.name for field in dataclasses.fields(next(iter(result.scores.values())))]
    table.add_column("rule")
    for name in names:
        table.add_column(name, justify="right", overflow="fold")
    for rule, scores in result.scores.items():
        table.add_row(
            describe_rule(rule, model.rules[rule]),
            *(f"{100 * getattr(scores, name):.1f}" for name in names),
        )
    Console().print(table)
    if strange := sorted({*result.true_classes} - {*model.classes}):
        say(f"Counted as unknown: {shorten(strange)}.")
    errors = calibration_errors(result, model.temperature)
    after = "not calibrated"
    if model.temperature != 1:
        after = f"{errors['ece_after']:.3f} after it was calibrated on held-out source images"
    say(
        "Expected calibration error of confidence on the known images: "
        f"{errors['ece_before']:.3f}, {after}."
    )
    if Path(given.run).is_dir():
        run = RunFolder(given.run)
        write_text(run.evaluation, to_json(result, model, given.labels.absolute()))
        refresh_report(run)
    for bad in result.skipped:
        say(f"left out: {bad.path} ({bad.reason})")


def report_command(args: list[str]) -> None:
    run_report(_parse(Report, "report", args))


def discover_command(args: list[str]) -> None:
    given = _parse(Discover, "discover", args)
    run_discover(given)
    refresh_report(RunFolder(given.run))


def export_command(args: list[str]) -> None:
    run_export(_parse(Export, "export", args))


def review_command(args: list[str]) -> None:
    run_review(_parse(Review, "review", args))


def demo_command(args: list[str]) -> None:
    run_demo(_parse(Demo, "demo", args))


def methods_command(args: list[str]) -> None:
    _parse(Methods, "methods", args)
    table = Table()
    for name in ("method", "paper", "venue", "unknown if", "from"):
        table.add_column(name, no_wrap=name in ("method", "venue", "from"))
    for name, method in METHODS.items():
        about = method.about
        rule = about.rule + (" (transductive)" if about.transductive else "")
        table.add_row(name, about.paper, about.venue, rule, about.spec)
    Console().print(table)
    rules = Table("--reject", "what it does")
    for kind in RULES.values():
        rules.add_row(kind.usage.replace("[", "\\["), kind.about)
    Console().print(rules)


def data_command(args: list[str]) -> None:
    words = ["check", *args] if args[:1] in (["-h"], ["--help"]) else args
    if words[:1] != ["check"]:
        raise UserError("unida data has one command: unida data check NAME --root FOLDER.")
    run_data_check(_parse(DataCheck, "data check", words[1:]))


def bench_command(args: list[str]) -> None:
    run_bench(_parse(Bench, "bench", args))


def table_command(args: list[str]) -> None:
    run_table(_parse(TableCommand, "table", args))


def figure_command(args: list[str]) -> None:
    run_figure(_parse(Figure, "figure", args))


def tune_command(args: list[str]) -> None:
    given = parse_run(Tune, "tune", args)
    run_tune(given.config(), given.study)


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "adapt": adapt_command,
    "predict": predict_command,
    "evaluate": evaluate_command,
    "report": report_command,
    "discover": discover_command,
    "export": export_command,
    "review": review_command,
    "methods": methods_command,
    "data": data_command,
    "bench": bench_command,
    "table": table_command,
    "figure": figure_command,
    "tune": tune_command,
    "demo": demo_command,
}

USAGE = """usage: unida COMMAND ...

  adapt     labelled and unlabelled images in, a model and labels out
  predict   label new images with a trained model
  evaluate  score a trained model on labelled images
  report    a run as a page: map, galleries, categories, what is in doubt
  discover  group the images called unknown into novel categories
  export    one file with the model and its reject rule, to use without unida
  review    name categories and correct labels on a page, for adapt --continue
  methods   list the methods, their papers and how they decide
  data      check the folders of a benchmark's data set
  bench     methods × tasks × seeds of a benchmark, from one command
  table     the results as tables, laid out like the paper's
  figure    the results as figures
  tune      search settings without target labels
  demo      see it work on handwritten digits, without a download

unida COMMAND --help says more."""


def main(argv: list[str] | None = None) -> int:
    """Runs a command; something the user can mend is one sentence and exit status 2."""
    args = sys.argv[1:] if argv is None else argv
    if not args or args[0] in ("-h", "--help"):
        print(USAGE)
        return 0
    if args[0] == "--version":
        print(f"unida {__version__}")
        return 0
    if args[0] not in COMMANDS:
        say(f"unida: no command {args[0]!r}; the commands are {', '.join(COMMANDS)}.")
        return 2
    try:
        COMMANDS[args[0]](args[1:])
    except SystemExit as stop:  # --help, or an option that does not exist: tyro has said so
        return int(stop.code or 0)
    except UserError as error:
        say(f"unida: {error}")
        return 2
    except BrokenPipeError:  # | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        goes_on = "The same command with --resume goes on from the last checkpoint, if any."
        say(f"unida: stopped. {goes_on}" if args[0] == "adapt" else "unida: stopped.")
        return 130
    return 0
