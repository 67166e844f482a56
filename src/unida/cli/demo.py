"""`unida demo`: handwritten digits from two sources, without a download."""

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
METHODS = ("source_only", "san")


@dataclass(frozen=True)
class Demo(Command):
    """Adapt between two sets of handwritten digits, without a download.

    Example: unida demo --out demo --all
    """

    out: str = ""
    """Folder for data and runs; by default a new one under the temporary folder."""
    all: bool = False
    """Show every reject rule, not the default one alone, and the other direction too."""
    steps: int = SETUP["steps"]
    """Optimiser steps per run."""
    seed: int = 0
    """Seed of all runs."""

    def execute(self) -> None:
        """Train source-only and SAN, print their scores and say what happened."""
        from unida.decision.rejection import describe_rule
        from unida.evaluation.evaluate import evaluate
        from unida.methods.presets import configure
        from unida.pipeline import run_adaptation
        from unida.protocols.digits import write_digits

        folder = Path(self.out or tempfile.mkdtemp(prefix="unida-demo-"))
        began = time.monotonic()
        places = write_digits(folder / "data")
        directions = DIRECTIONS if self.all else DIRECTIONS[:1]
        table, found = _table(), {}
        for source, target in directions:
            for method in METHODS:
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
                scores = evaluate(model, places[target][1]).scores
                for name in scores if self.all else [config.decision.reject]:
                    s, words = scores[name], describe_rule(name, model.rules[name])
                    numbers = (f"{100 * v:.1f}" for v in (s.known, s.unknown, s.h))
                    table.add_row(f"{source} → {target}", method, words, *numbers)
                found[source, target, method] = model.rule(), scores
        console = Console()
        console.print(table)
        source, target = directions[0]
        rule, scores = found[source, target, "san"]
        score, mixture = scores[config.decision.reject], scores["mixture"]
        run = folder / f"{source}-{target}-san"
        for line in (
            f"1. A small network learned the digits 0 to 7 from labelled images ({source}).",
            f"2. It labelled images of another collection ({target}) that has 0 to 5, 8 and 9; "
            "none of its labels was used.",
            f"3. SAN got {score.known:.0%} of the known digits right and found {score.unknown:.0%} "
            f"of the unknown ones by the rule '{rule.name}': {rule.note}.",
            f"4. Every image with its label, the doubtful ones first: open {run / 'report.html'}; "
            f"groups of the unknown ones: unida discover {run}",
            f"5. Where many images are unknown, as here, try another rule, without training: "
            f"unida predict {run} {places[target][1]} --reject mixture "
            f"({mixture.known:.0%} and {mixture.unknown:.0%}).",
        ):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        logger.info("%.0f s.", time.monotonic() - began)


def _table() -> Table:
    """Return the empty table of scores."""
    table = Table(title="Right on the target, in %")
    for name in ("task", "method", "rule"):
        table.add_column(name)
    for name in ("known", "unknown", "H"):
        table.add_column(name, justify="right")
    return table
