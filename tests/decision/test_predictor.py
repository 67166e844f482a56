"""Ensembles: several models, trained one by one, whose outputs are averaged."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.tasks import Task, assert_alike
from unida.bench.scoring import training_seconds
from unida.config import RunConfig
from unida.decision.predictor import Ensemble
from unida.errors import UserError
from unida.estimator import UniversalAdapter
from unida.export import export_model
from unida.model import Model, load
from unida.models.backbones import build_backbone
from unida.pipeline import run_adaptation
from unida.training.run_folder import RunFolder


def ensemble_of(model: Model) -> Ensemble:
    assert isinstance(model.predictor, Ensemble)
    return model.predictor


def scores(model: Model, task: Task) -> "np.ndarray[Any, np.dtype[np.float64]]":
    return model.score(task.target)[1].unknown_score


@pytest.fixture(scope="module", params=[False, True], ids=["whole", "frozen"])
def three(
    request: pytest.FixtureRequest, digits: Task, tmp_path_factory: pytest.TempPathFactory
) -> tuple[RunConfig, Model]:
    """Three members, their network trained or frozen."""
    out = tmp_path_factory.mktemp("ensemble") / "run"
    config = digits.config(out, ensemble=3, frozen=request.param)
    return config, run_adaptation(config)


def test_outputs_are_the_mean_of_the_members(three: tuple[RunConfig, Model], digits: Task) -> None:
    _, model = three
    images = torch.rand(5, 3, 16, 16)
    with torch.inference_mode():
        y = model.backbone(images)
        each = [
            member(y if member.backbone.is_precomputed else images)
            for member in ensemble_of(model).members
        ]
        mean = model.predictor(images)
    assert len(each) == 3
    assert not torch.allclose(each[0].unknown_score, each[1].unknown_score)
    torch.testing.assert_close(
        mean.unknown_score, sum(one.unknown_score for one in each) / torch.tensor(3.0)
    )
    torch.testing.assert_close(mean.probs, torch.stack([one.probs for one in each]).mean(0))
    assert mean.features.shape[1] == sum(one.features.shape[1] for one in each)


def test_a_stored_ensemble_predicts_alike(three: tuple[RunConfig, Model], digits: Task) -> None:
    config, model = three
    assert_alike(
        model.predict(digits.target), load(config.output.out, "cpu").predict(digits.target)
    )


def test_fitted_to_the_same_images_the_rules_are_those_of_the_run(
    three: tuple[RunConfig, Model], digits: Task
) -> None:
    _, model = three
    again, _, _ = model.refit_rules(digits.target)
    assert again.rules.keys() == model.rules.keys()
    for name, rule in model.rules.items():
        assert (again.rules[name].name, again.rules[name].note) == (rule.name, rule.note)
        assert again.rules[name].threshold == pytest.approx(rule.threshold, abs=1e-4)


def test_members_of_a_frozen_run_share_one_network(three: tuple[RunConfig, Model]) -> None:
    config, model = three
    names = load_file(RunFolder(config.output.out).model)
    networks = {name.split(".net.")[0] for name in names if ".net." in name}
    own = {"members.1.method.backbone", "members.2.method.backbone"}
    assert networks == {"backbone"} | (set() if config.model.frozen else own)
    assert ensemble_of(model).shares_backbone is config.model.frozen


def test_the_first_member_is_a_run_of_its_own(
    three: tuple[RunConfig, Model], digits: Task, tmp_path: Path
) -> None:
    config, model = three
    alone = run_adaptation(config.replace(out=str(tmp_path / "alone"), ensemble=1))
    first = dataclasses.replace(model, predictor=_first(ensemble_of(model)))
    np.testing.assert_allclose(scores(first, digits), scores(alone, digits), rtol=1e-4, atol=1e-5)


def _first(ensemble: Ensemble) -> Ensemble:
    return Ensemble([ensemble.members[0]], ensemble.backbone)


def test_a_stopped_run_goes_on_with_the_member_it_was_at(
    three: tuple[RunConfig, Model], digits: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, model = three
    config = config.replace(out=str(tmp_path / "stopped"))
    save, saved = RunFolder.save_state, []

    def stop(run: RunFolder, state: dict[str, Any]) -> None:
        save(run, state)
        saved.append(run.path.name)
        if len(saved) == 3:  # the second member's first of two
            raise KeyboardInterrupt

    monkeypatch.setattr(RunFolder, "save_state", stop)
    with pytest.raises(KeyboardInterrupt):
        run_adaptation(config)
    assert saved == ["stopped", "stopped", "member-1"]
    monkeypatch.setattr(RunFolder, "save_state", save)
    resumed = run_adaptation(config, resume=True)
    np.testing.assert_allclose(scores(resumed, digits), scores(model, digits), rtol=1e-4, atol=1e-5)
    assert not list(Path(config.output.out).rglob("state.pt"))


def test_training_took_as_long_as_all_of_them(three: tuple[RunConfig, Model]) -> None:
    config, _ = three
    run = RunFolder(config.output.out)
    history = [
        [json.loads(line) for line in run.member(number).metrics.read_text().splitlines()]
        for number in range(3)
    ]
    seconds = [training_seconds([lines]) for lines in history]
    assert min(seconds) > 0
    assert training_seconds(history) == pytest.approx(sum(seconds))


def test_the_next_run_can_start_from_their_network(three: tuple[RunConfig, Model]) -> None:
    config, model = three
    backbone = build_backbone("small_cnn", str(RunFolder(config.output.out).model))
    own = model.backbone.state_dict()
    assert all(torch.equal(own[name], tensor) for name, tensor in backbone.state_dict().items())


def test_an_ensemble_is_exported_as_one_model(
    three: tuple[RunConfig, Model], tmp_path: Path
) -> None:
    _, model = three
    export_model(model, tmp_path / "model.pt2", "torch")
    program = torch.export.load(tmp_path / "model.pt2").module()
    images = torch.randint(0, 256, (3, model.pixel_size, model.pixel_size, 3), dtype=torch.uint8)
    exported = program(images)
    own = model.score(images.permute(0, 3, 1, 2).contiguous())[1]
    np.testing.assert_allclose(exported["unknown_score"].detach(), own.unknown_score, atol=1e-4)


@pytest.mark.parametrize("method", ["dance", "dcc"])
def test_memories_of_training_are_not_stored(digits: Task, out: Path, method: str) -> None:
    model = run_adaptation(digits.config(out, method=method, ensemble=2))
    stored = set(load_file(RunFolder(out).model))
    for number in (0, 1):
        names = {f"members.{number}.method.{name}" for name in model.method.training_only}
        assert names
        assert not names & stored
    assert_alike(model.predict(digits.target), load(out, "cpu").predict(digits.target))


def test_embeddings_in_memory_are_shared_by_all_members() -> None:
    draws = np.random.default_rng(0)
    centres = draws.normal(size=(4, 8)) * 4
    y = np.repeat(["a", "b", "c"], 20)
    source = centres[np.repeat([0, 1, 2], 20)] + draws.normal(size=(60, 8))
    target = centres[np.repeat([0, 1, 3], 20)] + draws.normal(size=(60, 8))
    adapter = UniversalAdapter(steps=100, device="cpu", options={"ensemble": 2})
    adapter.fit(source, y, target=target)
    assert ensemble_of(adapter.model_).shares_backbone
    assert adapter.score(source, y) > 0.9


@pytest.mark.parametrize("method", ["uniot", "spa"])
def test_a_method_that_needs_more_than_features_is_refused(
    digits: Task, out: Path, method: str
) -> None:
    backbone = {"spa": "resnet18"}.get(method, "small_cnn")
    config = digits.config(
        out, method=method, ensemble=2, backbone=backbone, weights="none", image_size=32
    )
    with pytest.raises(UserError, match=f"ensemble is 2; allowed: 1: {method} does not predict"):
        run_adaptation(config)


@pytest.mark.parametrize("members", [0, 101])
def test_the_number_of_members_is_bounded(members: int) -> None:
    with pytest.raises(UserError, match="ensemble"):
        RunConfig.from_flat(ensemble=members)
