"""`unida demo`: handwritten digits of two worlds, both ways, without a download."""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from unida.decision.rejection import describe_rule
from unida.evaluation.evaluate import Evaluation, evaluate
from unida.model import Model
from unida.pipeline import adapt
from unida.protocols.digits import write_digits
from unida.training.run_folder import RunFolder
from unida.utils.console import say

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
class Demo:
    """Shows the whole way on two sets of handwritten digits, in both directions.

    Example: unida demo --out demo
    """

    out: str = ""
    """Folder for data and runs; by default a new one under the temporary folder."""
    steps: int = SETUP["steps"]
    """Optimiser steps a run."""
    seed: int = 0
    """Seed of all runs."""


def run_demo(demo: Demo) -> None:
    """Trains source-only and SAN both ways and prints what they reach."""
    folder = Path(demo.out or tempfile.mkdtemp(prefix="unida-demo-"))
    began = time.monotonic()
    say("Digits 0–5 are known to both worlds, 6–7 to the source only, 8–9 to the target only.")
    places = write_digits(folder / "data")
    rows = []
    for source, target in DIRECTIONS:
        for method in ("source_only", "san"):
            say(f"{source} → {target}, {method}")
            out = folder / f"{source}-{target}-{method}"
            options = SETUP | {"steps": demo.steps, "seed": demo.seed}
            model = adapt(places[source][0], places[target][1], out, method=method, **options)
            rows.append((f"{source} → {target}", model, evaluate(model, places[target][1])))
    _print_table(rows)
    san = RunFolder(folder / "mnist-uci-san").path
    say(f"{time.monotonic() - began:.0f} s. Data and runs are in {folder}; try")
    say(f"  unida predict {san} {places['uci'][1] / '9'}")


def _print_table(rows: list[tuple[str, Model, Evaluation]]) -> None:
    table = Table(title="Last step, in %")
    for name in ("task", "method", "rule", "known", "unknown", "H", "balanced H"):
        table.add_column(name, justify="left" if name in ("task", "method", "rule") else "right")
    for task, model, result in rows:
        for name, s in result.scores.items():
            numbers = (f"{100 * v:.1f}" for v in (s.known, s.unknown, s.h, s.balanced_h))
            table.add_row(task, model.method_name, describe_rule(name, model.rules[name]), *numbers)
    Console().print(table)
