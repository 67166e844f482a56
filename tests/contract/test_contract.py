"""What every method owes the loop, on real digits.

`pytest -m gpu tests/contract` asks it on a CUDA device, where there is one.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unida.pipeline
from tests.tasks import Task
from unida.bench.entries import VARIANTS, BenchEntry
from unida.config import RunConfig
from unida.data.domain import load_domains
from unida.data.samples import read_source, read_unlabelled
from unida.errors import UserError
from unida.methods import METHODS
from unida.model import load
from unida.pipeline import run_adaptation
from unida.training.loop import Batches, train
from unida.training.run_folder import RunFolder

SMALL = {"spa": ("words=64",)}  # k-means with all words takes longer than the rest of a run
CASES = [
    BenchEntry(case.name, case.method, (*case.settings, *SMALL.get(case.method, ())))
    for case in (*(BenchEntry(name, name) for name in METHODS), *VARIANTS.values())
]
every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def configured(digits: Task, out: Path, case: BenchEntry, **options: Any) -> RunConfig:
    return digits.config(out, method=case.method, settings=case.settings, **options)


class KilledError(Exception):
    """Ends a run in the middle, as a kill would."""


def killed_at(step: int) -> Callable[..., None]:
    """The loop, but a kill comes after that many steps."""

    def report(done: int, line: object) -> None:
        if done == step:
            raise KilledError

    return lambda *args: train(*args[:5], report)


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in RunFolder(out).metrics.read_text().splitlines()]


@every
def test_losses_stay_finite_and_a_run_is_complete(
    digits: Task, out: Path, case: BenchEntry
) -> None:
    run_adaptation(configured(digits, out, case))
    logged = lines(out)
    assert [line["step"] for line in logged] == [5, 10, 15, 20]
    assert all(np.isfinite(value) for line in logged for value in line.values())
    names = {path.name for path in out.iterdir()}
    assert names == {
        "config.json",
        "metrics.jsonl",
        "model.safetensors",
        "predictions.csv",
        "features.npz",
        "diagnostics.json",
        "skipped.csv",
        "done",
    }


@every
def test_every_parameter_gets_a_gradient(digits: Task, out: Path, case: BenchEntry) -> None:
    config = configured(digits, out, case)
    device = torch.device("cpu")
    samples = {"source": read_source(config.source), "target": read_unlabelled(config.target)}
    domains = load_domains(config, device, samples, lambda name: lambda done, total: None)
    source, target = domains["source"], domains["target"]
    backbone = unida.pipeline.make_backbone(config)
    built = unida.pipeline._build_method(config, backbone, source, target)
    reached: set[str] = set()

    def note(done: int, line: object) -> None:
        reached.update(
            name
            for name, parameter in built.named_parameters()
            if parameter.grad is not None and parameter.grad.abs().sum() > 0
        )

    train(built, Batches(source, target, config), config, device, RunFolder(out.parent), note)
    assert {name for name, p in built.named_parameters() if p.requires_grad} == reached


@every
def test_two_runs_of_one_seed_are_identical(digits: Task, tmp_path: Path, case: BenchEntry) -> None:
    outs = [tmp_path / name for name in ("first", "second")]
    for out in outs:
        run_adaptation(configured(digits, out, case))
    for name in ("model.safetensors", "predictions.csv"):
        assert (outs[0] / name).read_bytes() == (outs[1] / name).read_bytes()


@every
def test_killed_and_resumed_equals_uninterrupted(
    digits: Task, tmp_path: Path, case: BenchEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run_adaptation(configured(digits, whole, case))

    with monkeypatch.context() as patch:
        patch.setattr(unida.pipeline, "train", killed_at(13))
        with pytest.raises(KilledError):
            run_adaptation(configured(digits, broken, case))
    assert not RunFolder(broken).done.exists()
    run_adaptation(configured(digits, broken, case), resume=True)
    for name in ("model.safetensors", "predictions.csv"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes()
    assert [line["step"] for line in lines(broken)] == [5, 10, 15, 20]
    assert [line["loss"] for line in lines(broken)] == [line["loss"] for line in lines(whole)]


@every
def test_one_image_can_be_judged_or_the_method_says_why_not(
    digits: Task, out: Path, case: BenchEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_adaptation(configured(digits, out, case, steps=5))
    model = load(out, "cpu")
    images = sorted(digits.target.rglob("*.png"))
    together = model.predict(images)
    assert {p.label for p in together} <= {*model.classes, "unknown"}
    if METHODS[case.method].about.transductive:
        monkeypatch.setattr("unida.model.predict_batches", pytest.fail)  # before any scoring
        with pytest.raises(UserError, match="transductive"):
            model.predict(images[0])
        return
    alone = model.predict(images[0])[0]
    assert alone.label == together[0].label
    assert alone.unknown_score == pytest.approx(together[0].unknown_score, abs=1e-4)


@pytest.mark.gpu
@every
def test_on_a_gpu_a_run_is_finite_resumed_and_agrees_with_the_cpu(
    digits: Task, out: Path, case: BenchEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the precision a GPU has by default; refreshes included."""
    config = configured(digits, out, case, device="cuda", precision="auto")
    with monkeypatch.context() as patch:
        patch.setattr(unida.pipeline, "train", killed_at(13))
        with pytest.raises(KilledError):
            run_adaptation(config)
    run_adaptation(config, resume=True)
    logged = lines(out)
    assert [line["step"] for line in logged] == [5, 10, 15, 20]
    assert all(np.isfinite(value) for line in logged for value in line.values())
    gpu, cpu = (load(out, device).score(digits.target)[1] for device in ("cuda", "cpu"))
    np.testing.assert_allclose(gpu.probs, cpu.probs, atol=0.02)
