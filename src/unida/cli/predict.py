"""`unida predict`: labels for new images."""

import dataclasses
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from unida.cli.parser import Command
from unida.cli.terminal import log_skipped
from unida.config import CpuPrecision
from unida.errors import UserError, shorten
from unida.utils.logs import logger


@dataclass(frozen=True)
class Predict(Command):
    """Label new images with a trained model.

    Example: unida predict runs/first holiday.jpg more-photos/ --to labels.csv
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a finished run, or a model.safetensors."""
    paths: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Images or folders of images; or embeddings of them, .parquet or .npy."""
    to: Path | None = None
    """File to write; standard output if left out."""
    format: Literal["csv", "jsonl"] = "csv"
    """CSV with a header, or one JSON object a line."""
    reject: str | None = None
    """share, own, mixture, none, source[:SHARE] or threshold:VALUE; by default the run's rule.
    `unida methods` describes them."""
    refit_rule: bool = False
    """Fit the reject rule to these images, without training: for a later folder that holds another
    share of unknown images."""
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
        """Predict, and write the labels to a file or to standard output."""
        from unida.data.samples import Skipped
        from unida.decision.rejection import describe_rule
        from unida.evaluation.diagnostics import warn_of_shift
        from unida.model import load, to_predictions
        from unida.training.predictions import prediction_lines
        from unida.training.run_folder import require_writable, write_lines
        from unida.utils import distributed
        from unida.utils.csv_files import to_bytes
        from unida.utils.devices import pick_device
        from unida.utils.json_text import to_line

        if gone := [str(path) for path in self.paths if not os.path.exists(path)]:
            raise UserError(f"There is no {shorten(gone)}.")
        if self.to:
            require_writable(self.to)
        distributed.setup(pick_device(self.device))
        model = load(self.run, self.device, self.cpu_precision, self.weights)
        if self.cache_dir:
            model = dataclasses.replace(model, cache_dir=self.cache_dir)
        rule = model.rule(self.reject)
        if self.reject and describe_rule(self.reject, rule) != self.reject:
            logger.info("%s: %s.", describe_rule(self.reject, rule), rule.note)
        skipped: list[Skipped] = []
        if self.refit_rule:
            model, paths, scored = model.refit_rules(self.paths, skipped)
            rule = model.rule(self.reject)
            logger.info("The rule for these images: %s (%s).", rule.name, rule.note)
        else:
            paths, scored = model.score(self.paths, skipped, features=False)
            warn_of_shift(model, scored.unknown_score, rule)
        predictions = to_predictions(paths, scored, rule, model.classes, model.temperature)
        if self.format == "csv":
            lines = prediction_lines(predictions)
        else:
            rows = (dataclasses.asdict(p) | {"path": str(p.path)} for p in predictions)
            lines = map(to_line, rows)
        if self.to:
            write_lines(self.to, lines)
        elif distributed.is_main_process():
            sys.stdout.buffer.writelines(map(to_bytes, lines))
            sys.stdout.flush()
        log_skipped(skipped)
