"""What every method owes the loop, on real digits."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unida.adaptation
from tests.tasks import Task
from unida.adaptation import run_adaptation
from unida.data.domain import load_domains
from unida.data.samples import read_source, read_unlabelled
from unida.errors import UserError
from unida.methods import METHODS
from unida.model import load
from unida.runs import RunFolder
from unida.train import Batches, train

pytestmark = pytest.mark.parametrize("method", METHODS)


class KilledError(Exception):
    """Ends a run in the middle, as a kill would."""


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in RunFolder(out).metrics.read_text().splitlines()]


def test_losses_stay_finite_and_a_run_is_complete(digits: Task, out: Path, method: str) -> None:
    run_adaptation(digits.config(out, method=method))
    logged = lines(out)
    assert [line["step"] for line in logged] == [5, 10, 15, 20]
    assert all(np.isfinite(value) for line in logged for value in line.values())
    names = {path.name for path in out.iterdir()}
    assert names == {
        "config.json",
        "metrics.jsonl",
        "model.safetensors",
        "predictions.csv",
        "skipped.csv",
        "done",
    }


def test_every_parameter_gets_a_gradient(digits: Task, out: Path, method: str) -> None:
    config = digits.config(out, method=method)
    device = torch.device("cpu")
    samples = {"source": read_source(config.source), "target": read_unlabelled(config.target)}
    domains = load_domains(config, device, samples, lambda name: lambda done, total: None)
    source, target = domains["source"], domains["target"]
    backbone = unida.adaptation._build_backbone(config)
    built = unida.adaptation._build_method(config, backbone, source, target)
    reached: set[str] = set()

    def note(done: int, line: object) -> None:
        reached.update(
            name
            for name, parameter in built.named_parameters()
            if parameter.grad is not None and parameter.grad.abs().sum() > 0
        )

    train(built, Batches(source, target, config), config, device, RunFolder(out.parent), note)
    assert {name for name, p in built.named_parameters() if p.requires_grad} == reached


def test_two_runs_of_one_seed_are_identical(digits: Task, tmp_path: Path, method: str) -> None:
    outs = [tmp_path / name for name in ("first", "second")]
    for out in outs:
        run_adaptation(digits.config(out, method=method))
    for name in ("model.safetensors", "predictions.csv"):
        assert (outs[0] / name).read_bytes() == (outs[1] / name).read_bytes()


def test_killed_and_resumed_equals_uninterrupted(
    digits: Task, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run_adaptation(digits.config(whole, method=method))

    def killed_train(*args: Any) -> None:
        def report(done: int, line: object) -> None:
            if done == 13:
                raise KilledError

        train(*args[:-1], report)

    with monkeypatch.context() as patch:
        patch.setattr(unida.adaptation, "train", killed_train)
        with pytest.raises(KilledError):
            run_adaptation(digits.config(broken, method=method))
    assert not RunFolder(broken).done.exists()
    run_adaptation(digits.config(broken, method=method), resume=True)
    for name in ("model.safetensors", "predictions.csv"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes()
    assert [line["step"] for line in lines(broken)] == [5, 10, 15, 20]
    assert [line["loss"] for line in lines(broken)] == [line["loss"] for line in lines(whole)]


def test_one_image_can_be_judged_or_the_method_says_why_not(
    digits: Task, out: Path, method: str
) -> None:
    run_adaptation(digits.config(out, method=method, steps=5))
    model = load(out, "cpu")
    images = sorted(digits.target.rglob("*.png"))
    together = model.predict(images)
    assert {p.label for p in together} <= {*model.classes, "unknown"}
    if METHODS[method].about.transductive:
        with pytest.raises(UserError, match="transductive"):
            model.predict(images[0])
        return
    alone = model.predict(images[0])[0]
    assert alone.label == together[0].label
    assert alone.unknown_score == pytest.approx(together[0].unknown_score, abs=1e-4)
