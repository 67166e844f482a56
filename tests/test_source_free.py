"""Source-free runs: a model stands for the source, and no source image is opened."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unida
from tests.contract.runs import run_killed
from tests.images import read_csv
from tests.tasks import QUICK, Task, write_task
from unida.bench.jobs import plan
from unida.cli.main import main
from unida.config import RunConfig
from unida.discovery.discover import discover
from unida.errors import UserError
from unida.methods.presets import configure
from unida.model import load
from unida.pipeline import check_config, run_adaptation
from unida.review.continuation import run_continuation
from unida.training.run_folder import RunFolder

WIDTH = {"width": 16}
HEADS = {name: value for name, value in QUICK.items() if name not in ("backbone", "image_size")}
"""Options of a run that takes its network from a source model."""


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    """A source model, in the folder `model`, and target images; the source images are gone."""
    root = tmp_path_factory.mktemp("source-free")
    task = write_task(root, (0, 1, 2, 3), (0, 1, 2, 8, 9), 16)
    stage = WIDTH | {"source_share": 1}
    unida.adapt(task.source, task.source, root / "model", method="glc", settings=stage, **QUICK)
    shutil.rmtree(task.source)
    return Task(root / "model", task.target)


def make_config(task: Task, out: Path, **options: Any) -> RunConfig:
    places = {"source_model": str(task.source), "target": str(task.target), "out": str(out)}
    usual: dict[str, Any] = {"method": "glc", "settings": WIDTH} | HEADS
    return configure(**(usual | places | options))


@pytest.mark.parametrize("method", ["glc", "lead"])
def test_a_model_is_adapted_without_source_images(task: Task, tmp_path: Path, method: str) -> None:
    out = tmp_path / "run"
    places: dict[str, Any] = {"source_model": task.source, "target": task.target, "out": out}
    model = unida.adapt(**places, method=method, settings=WIDTH, **(HEADS | {"report": True}))
    start = load(task.source, "cpu")
    assert (model.classes, model.image_size) == (start.classes, 16)
    assert model.method.sizes.n_source == 0
    # The classifier is frozen; everything before it learns.
    for name, now in model.method.state_dict().items():
        if name.endswith("weight_v") or ".parametrizations." in name:
            assert torch.equal(now, start.method.state_dict()[name]), name
    assert not torch.equal(next(model.backbone.parameters()), next(start.backbone.parameters()))
    stored = load(out, "cpu")
    rows = read_csv(out / "predictions.csv")
    assert [p.label for p in stored.predict([row["path"] for row in rows])] == [
        row["label"] for row in rows
    ]
    found = json.loads((out / "diagnostics.json").read_text())
    assert not {"source_accuracy", "source_validation"} & set(found["estimates"])
    assert "source" not in " ".join(one["what"] for one in found["warnings"])
    assert (out / "report.html").stat().st_size > 10_000
    assert len(discover(out).paths) == sum(row["label"] == "unknown" for row in rows)


def test_the_rules_are_fitted_with_the_source_images_of_the_model(
    task: Task, tmp_path: Path
) -> None:
    start = load(task.source, "cpu")
    model = run_adaptation(make_config(task, tmp_path / "run"))
    assert start.reference is not None
    assert model.reference is not None
    for name, tensor in start.reference.state_dict().items():
        assert torch.equal(tensor, model.reference.state_dict()[name])
    assert "no features" not in model.rules["share"].note
    images = sorted(Path(task.target).rglob("*.png"))
    rules = load(tmp_path / "run", "cpu").refit_rules(images)[0].rules
    assert rules["share"].threshold == pytest.approx(model.rules["share"].threshold, abs=1e-4)


@pytest.mark.parametrize("frozen", [False, True])
def test_killed_and_resumed_equals_uninterrupted(task: Task, tmp_path: Path, frozen: bool) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run_adaptation(make_config(task, whole, frozen=frozen))
    config = make_config(task, broken, frozen=frozen)
    run_killed(config, 13)
    run_adaptation(config, resume=True)
    for name in ("model.safetensors", "predictions.csv"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes()


def test_another_source_model_is_not_continued_with(task: Task, tmp_path: Path) -> None:
    model, out = tmp_path / "model.safetensors", tmp_path / "run"
    shutil.copy(task.source / "model.safetensors", model)
    config = make_config(task, out).replace(source_model=str(model))
    run_killed(config, 13)
    load(model, "cpu").with_rule("threshold:0.5").save(model)
    with pytest.raises(UserError, match="other contents of the source model"):
        run_adaptation(config, resume=True)


def test_the_command_adapts_and_resumes(task: Task, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["adapt", "--source-model", str(task.source), "--target", str(task.target)]
    small = ["--set", "width=16", "--steps", "3", "--batch", "8", "--device", "cpu", "--no-report"]
    assert main([*words, "--method", "lead", "--out", str(out), *small]) == 0
    assert main(["adapt", "--out", str(out), "--resume"]) == 0
    stored = json.loads(RunFolder(out).config.read_text())["run"]
    assert stored["model"]["backbone"] == "small_cnn"
    assert stored["data"]["source_model"] == str(task.source)


def test_what_does_not_fit_is_refused_in_one_sentence(task: Task, tmp_path: Path) -> None:
    other = tmp_path / "san"
    images = write_task(tmp_path / "images", (0, 1), (0, 1, 2), 8)
    run_adaptation(images.config(other, steps=2))
    cases: list[tuple[dict[str, Any], str]] = [
        ({"method": "san", "settings": {}}, r"method is 'san'.*glc or lead.*need source images"),
        ({"source": str(images.source)}, "source is .*none beside source_model"),
        ({"source_model": str(other)}, "the method of .* is 'san'.*glc or lead"),
        ({"source_model": str(tmp_path)}, "holds no run"),
        ({"settings": {"width": 8}}, "width is 8; allowed: 16"),
        ({"backbone": "resnet18"}, "backbone is 'resnet18'.*small_cnn"),
        ({"image_size": 32}, "image_size is 32.*16"),
        ({"weights": "none"}, "weights is 'none'"),
        ({"batch": 500}, "fewer than a batch"),
    ]
    for options, words in cases:
        config = make_config(task, tmp_path / "run", **options)
        with pytest.raises(UserError, match=words) as error:
            run_adaptation(config)
        assert "\n" not in str(error.value)
        assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match="source_model"):
        plan("digits", "unda", ["glc"], [("MNIST", "UCI")], [0], {"source_model": "x"})
    estimator = unida.UniversalAdapter("glc", options={"source_model": str(task.source)})
    with pytest.raises(UserError, match="source_model"):
        estimator.fit(np.zeros((4, 8, 8), np.uint8), [0, 0, 1, 1])


def test_a_source_free_run_has_no_source_to_continue_with(task: Task, tmp_path: Path) -> None:
    config = check_config(make_config(task, tmp_path / "run"))
    with pytest.raises(UserError, match="adapted from a source model"):
        run_continuation(tmp_path / "run", config.replace(out=str(tmp_path / "next")), 0.5)
