"""How a step reaches the device changes nothing about it."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unida.pipeline
from tests.tasks import Task
from unida.errors import UserError
from unida.methods import METHODS
from unida.model import load
from unida.pipeline import run_adaptation
from unida.training.loop import train
from unida.training.run_folder import RunFolder

CAPTURABLE = [name for name, method in METHODS.items() if method.capturable]
ON_GPU: dict[str, Any] = {"device": "cuda", "precision": "fp32"}
WAITED = "called a synchronizing CUDA operation"
capturable = pytest.mark.parametrize("method", CAPTURABLE)


def logged(out: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in RunFolder(out).metrics.read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "steps_per_second"} for line in lines]


def test_the_methods_the_benchmark_times_can_be_recorded() -> None:
    assert {"san", "ovanet", "dance", "source_only"} <= set(CAPTURABLE)


@pytest.mark.parametrize("option", [{"cuda_graphs": "on"}, {"compile": True}])
def test_a_cpu_cannot_record(digits: Task, out: Path, option: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="Leave it out"):
        run_adaptation(digits.config(out, **option))


@pytest.mark.gpu
@capturable
def test_a_recorded_run_agrees_with_an_eager_one(digits: Task, tmp_path: Path, method: str) -> None:
    options = ON_GPU | {"method": method, "steps": 50, "log_every": 1}
    for graphs in ("off", "on"):
        run_adaptation(digits.config(tmp_path / graphs, cuda_graphs=graphs, **options))
    eager, captured = (logged(tmp_path / graphs) for graphs in ("off", "on"))
    assert len(eager) == len(captured) == 50
    for a, b in zip(eager, captured, strict=True):
        assert a == pytest.approx(b, rel=2e-3, abs=2e-5)
    scores = [load(tmp_path / run, "cuda").score(digits.target)[1] for run in ("off", "on")]
    np.testing.assert_allclose(scores[0].probs, scores[1].probs, atol=5e-3)


@pytest.mark.gpu
def test_a_recorded_run_goes_on_after_a_kill_and_another_way(digits: Task, tmp_path: Path) -> None:
    """Checkpoints do not depend on how their steps were launched."""
    whole = run_adaptation(digits.config(tmp_path / "whole", **ON_GPU))
    out = tmp_path / "part"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unida.pipeline, "train", lambda *args: train(*args[:5], _stop_at(12)))
        with pytest.raises(KeyboardInterrupt):
            run_adaptation(digits.config(out, cuda_graphs="on", **ON_GPU))
    again = run_adaptation(digits.config(out, cuda_graphs="off", **ON_GPU), resume=True)
    probs = [model.score(digits.target)[1].probs for model in (whole, again)]
    np.testing.assert_allclose(*probs, atol=5e-3)


def _stop_at(step: int) -> Any:
    def report(done: int, line: object) -> None:
        if done == step:
            raise KeyboardInterrupt

    return report


@pytest.mark.gpu
@pytest.mark.parametrize("graphs", ["off", "on"])
@capturable
def test_no_step_waits_for_the_device(
    digits: Task, out: Path, method: str, graphs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two log points the host only queues work: what makes it wait is counted."""
    with _counted_waits() as waits:

        def report(done: int, line: object) -> None:
            torch.cuda.set_sync_debug_mode("warn" if 10 <= done < 30 else "default")

        monkeypatch.setattr(unida.pipeline, "train", lambda *args: train(*args[:5], report))
        options = ON_GPU | {"steps": 40, "log_every": 40, "checkpoint_every": 40}
        run_adaptation(digits.config(out, method=method, cuda_graphs=graphs, **options))
    assert [str(w.message) for w in waits if WAITED in str(w.message)] == []


@pytest.mark.gpu
def test_waits_would_be_counted() -> None:
    with _counted_waits() as waits:
        torch.cuda.set_sync_debug_mode("warn")
        torch.ones(1, device="cuda").item()
    assert any(WAITED in str(w.message) for w in waits)


@contextmanager
def _counted_waits() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as waits:
        warnings.simplefilter("always")
        try:
            yield waits
        finally:
            torch.cuda.set_sync_debug_mode("default")
