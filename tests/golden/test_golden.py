"""Loss curves of short runs, as they were when last recorded.

A change of arithmetic shows here first. If it is meant, write the curves anew with
`UNIDA_WRITE_GOLDEN=1 pytest tests/golden` and explain why in the commit.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.tasks import Task
from unida.pipeline import run_adaptation

CURVES = Path(__file__).parent / "curves.json"


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    """The order of sums follows from the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("method", ["san", "source_only"])
def test_the_loss_curve_is_the_golden_one(digits: Task, out: Path, method: str) -> None:
    # Few steps: in SAN's the trace of rounding grows tenfold every two, and a change that is meant
    # to change nothing must not show.
    run_adaptation(digits.config(out, method=method, steps=6, log_every=2))
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    dropped = ("lr", "steps_per_second")
    curve = [{k: v for k, v in line.items() if k not in dropped} for line in lines]
    golden = json.loads(CURVES.read_text()) if CURVES.exists() else {}
    if os.environ.get("UNIDA_WRITE_GOLDEN"):
        CURVES.write_text(json.dumps(golden | {method: curve}, indent=1) + "\n")
        return
    assert [line.keys() for line in curve] == [line.keys() for line in golden[method]]
    for line, expected in zip(curve, golden[method], strict=True):
        assert line == pytest.approx(expected, rel=2e-3)
