"""`unida demo`: handwritten digits from two sources, both ways, without a download."""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from unida.cli.parser import Command
from unida.cli.terminal import show_progress
from unida.utils.logs import logger

SETUP: dict[str, Any] = {
    "backbone": "small_cnn",
    "image_size": 16,
    "steps": 400,
    "batch": 48,
    "lr": 0.05,
    "flip": False,  # a mirrored digit is another sign, or none
    "log_every": 50,
    "checkpoint_every": 200,
}

DIRECTIONS = (("mnist", "uci"), ("uci", "mnist"))


@dataclass(frozen=True)
class Demo(Command):
    """Adapt between two sets of handwritten digits, without a download.

    Example: unida demo --out demo
    """

    out: str = ""
    """Folder for data and runs; by default a new one under the temporary folder."""
    steps: int = SETUP["steps"]
    """Optimiser steps per run."""
    seed: int = 0
    """Seed of all runs."""

    def execute(self) -> None:
        """Train source-only and SAN both ways and print their scores."""
        from unida.decision.rejection import describe_rule
        from unida.evaluation.evaluate import evaluate
        from unida.methods.presets import configure
        from unida.pipeline import run_adaptation
        from unida.protocols.digits import write_digits

        folder = Path(self.out or tempfile.mkdtemp(prefix="unida-demo-"))
        began = time.monotonic()
        logger.info("Digits 0–5 are in both domains, 6–7 in the source, 8–9 in the target only.")
        places = write_digits(folder / "data")
        table = Table(title="Last step, in %")
        for name in ("task", "method", "rule"):
            table.add_column(name)
        for name in ("known", "unknown", "H", "balanced H"):
            table.add_column(name, justify="right")
        for source, target in DIRECTIONS:
            for method in ("source_only", "san"):
                logger.info("%s → %s, %s", source, target, method)
                config = configure(
                    method,
                    source=places[source][0],
                    target=places[target][1],
                    out=folder / f"{source}-{target}-{method}",
                    **(SETUP | {"steps": self.steps, "seed": self.seed}),
                )
                with show_progress() as progress:
                    model = run_adaptation(config, progress=progress)
                for name, s in evaluate(model, places[target][1]).scores.items():
                    scores = (f"{100 * v:.1f}" for v in (s.known, s.unknown, s.h, s.balanced_h))
                    rule = describe_rule(name, model.rules[name])
                    table.add_row(f"{source} → {target}", method, rule, *scores)
        Console().print(table)
        logger.info("%.0f s. Data and runs are in %s; try", time.monotonic() - began, folder)
        logger.info("  unida predict %s %s", folder / "mnist-uci-san", places["uci"][1] / "9")
