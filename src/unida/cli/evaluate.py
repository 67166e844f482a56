"""`unida evaluate`: a trained model against labelled images."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from unida.cli.parser import Command
from unida.cli.terminal import log_skipped
from unida.config import CpuPrecision
from unida.errors import shorten
from unida.utils.logs import logger

if TYPE_CHECKING:
    from unida.evaluation.evaluate import Evaluation
    from unida.model import Model


@dataclass(frozen=True)
class Evaluate(Command):
    """Score a trained model on labelled images, under every reject rule.

    Example: unida evaluate runs/first --labels sketches-by-class
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a finished run."""
    labels: Path
    """Folder with one sub-folder per class, list file, CSV or embeddings with labels; classes the
    source did not have count as unknown."""
    reject: str | None = None
    """One more reject rule, such as source:0.05 or threshold:0.3."""
    json: bool = False
    """Print everything as JSON, as in evaluation.json, instead of the table."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    cache_dir: Path | None = None
    """Cache folder with embeddings of `unida embed` or earlier runs, which a model with a frozen
    backbone uses again; by default that of the run."""
    cpu_precision: CpuPrecision = "fp32"
    """Arithmetic of the backbone on a CPU; bf16 is faster where the CPU has it."""
    weights: Path | None = None
    """File of the backbone's weights, for a run of --slim whose file was moved."""

    def execute(self) -> None:
        """Print a table with a column for each rule; write evaluation.json into the run."""
        from unida.evaluation.evaluate import calibration_errors, evaluate, to_json
        from unida.model import load
        from unida.report.build import refresh_report
        from unida.training.run_folder import RunFolder, write_text

        model = load(self.run, self.device, self.cpu_precision, self.weights)
        if self.cache_dir:
            model = dataclasses.replace(model, cache_dir=self.cache_dir)
        if self.reject:
            model = model.with_rule(self.reject)
        result = evaluate(model, self.labels)
        content = to_json(result, model, self.labels.absolute())
        if self.json:
            print(content, end="")
        else:
            self._print_table(result, model)
            self._log_errors(calibration_errors(result, model.temperature), model)
        if self.run.is_dir():
            run = RunFolder(self.run)
            write_text(run.evaluation, content)
            refresh_report(run)
        log_skipped(result.skipped)

    def _print_table(self, result: "Evaluation", model: "Model") -> None:
        from unida.decision.rejection import describe_rule

        title = f"{model.method_name} on {self.labels}, {len(result.labels)} images, in %"
        table = Table("score", title=Text(title))
        for rule in result.scores:
            table.add_column(describe_rule(rule, model.rules[rule]), justify="right")
        rows = [dataclasses.asdict(scores) for scores in result.scores.values()]
        for name in rows[0]:
            table.add_row(name.replace("_", " "), *(f"{100 * row[name]:.1f}" for row in rows))
        Console().print(table)
        if unknown := sorted({*result.true_classes} - {*model.classes}):
            logger.info("Counted as unknown: %s.", shorten(unknown))

    def _log_errors(self, errors: dict[str, float], model: "Model") -> None:
        after = "not calibrated"
        if model.temperature != 1:
            after = f"{errors['ece_after']:.3f} after calibration on held-out source images"
        logger.info(
            "Expected calibration error of confidence on the known images: %.3f, %s.",
            errors["ece_before"],
            after,
        )
