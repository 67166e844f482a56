"""Stored models without the weights of their backbone, and in half precision."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.images import write_classes
from unida import adapt
from unida.decision.predictor import Predictor
from unida.decision.rejection import Rule
from unida.errors import UserError
from unida.methods import METHODS
from unida.model import Model, load
from unida.models.backbones import build_backbone
from unida.models.backbones.base import Backbone
from unida.models.slim import halve
from unida.types import Sizes

IMAGES = torch.rand(6, 3, 16, 16, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    file = tmp_path / "weights" / "small.safetensors"
    file.parent.mkdir()
    save_file(build_backbone("small_cnn", "none").net.state_dict(), file)
    return file


def model_of(backbone: Backbone) -> Model:
    torch.manual_seed(1)
    cls = METHODS["source_only"]
    predictor = Predictor(cls(cls.Config(), backbone, Sizes(2, 10, 10, 4, 8))).eval()
    rules = {"own": Rule("own", 0.0, "")}
    device = torch.device("cpu")
    return Model(predictor, "source_only", ("a", "b"), 16, 18, rules, "own", device)


@pytest.fixture
def model(weights: Path) -> Model:
    return model_of(build_backbone("small_cnn", str(weights)))


@torch.no_grad()
def same(one: Model, other: Model) -> bool:
    return torch.equal(one.predictor(IMAGES).probs, other.predictor(IMAGES).probs)


def test_weights_are_found_again(model: Model, weights: Path, tmp_path: Path) -> None:
    model.save(tmp_path / "whole.safetensors")
    slim = tmp_path / "slim.safetensors"
    model.save(slim, slim=True)
    assert not [name for name in load_file(slim) if name.startswith("backbone.net.")]
    assert slim.stat().st_size < (tmp_path / "whole.safetensors").stat().st_size / 10
    assert same(load(slim, "cpu"), model)  # where they were
    beside = weights.rename(tmp_path / weights.name)
    assert same(load(slim, "cpu"), model)
    elsewhere = beside.rename(tmp_path / "weights" / "other.safetensors")
    with pytest.raises(UserError, match=r"small\.safetensors, which are not there: name the file"):
        load(slim, "cpu")
    again = load(slim, "cpu", weights=elsewhere)
    assert same(again, model)
    again.save(tmp_path / "again.safetensors", slim=True)
    assert same(load(tmp_path / "again.safetensors", "cpu"), model)
    again.save(tmp_path / "full.safetensors")
    elsewhere.unlink()
    assert same(load(tmp_path / "full.safetensors", "cpu"), model)


def test_other_weights_are_refused(model: Model, weights: Path, tmp_path: Path) -> None:
    slim = tmp_path / "slim.safetensors"
    model.save(slim, slim=True)
    save_file(build_backbone("small_cnn", "none").net.state_dict(), weights)
    for named in (None, weights):
        with pytest.raises(UserError, match=r"the sha256 \w{12}…, and .* has another") as error:
            load(slim, "cpu", weights=named)
        assert "\n" not in str(error.value)
    with pytest.raises(UserError, match=r"weights: .*nowhere is not a file"):
        load(slim, "cpu", weights=tmp_path / "nowhere")


def test_a_trained_backbone_is_stored_whole_or_not_at_all(model: Model, tmp_path: Path) -> None:
    with torch.no_grad():
        next(model.backbone.net.parameters()).add_(0.1)
    with pytest.raises(UserError, match="the backbone was trained and differs"):
        model.save(tmp_path / "slim.safetensors", slim=True)
    scratch = model_of(build_backbone("small_cnn", "none"))
    with pytest.raises(UserError, match="not from a file of their own"):
        scratch.save(tmp_path / "slim.safetensors", slim=True)
    assert not (tmp_path / "slim.safetensors").exists()


def test_the_next_run_starts_from_a_slim_model(model: Model, weights: Path, tmp_path: Path) -> None:
    slim = tmp_path / "slim.safetensors"
    model.save(slim, slim=True)
    started = build_backbone("small_cnn", str(slim)).eval()
    with torch.no_grad():
        assert torch.equal(started(IMAGES), model.backbone.eval()(IMAGES))


def test_a_run_leaves_a_slim_model(weights: Path, tmp_path: Path) -> None:
    places = (write_classes(tmp_path / name, {"a": 6, "b": 6}) for name in ("source", "target"))
    source, target = places
    options: dict[str, Any] = {
        "backbone": "small_cnn", "image_size": 16, "batch": 4, "steps": 2, "device": "cpu",
        "cache_dir": str(tmp_path / "cache"), "report": False, "slim": True,
    }  # fmt: skip
    for wrong, why in (({"weights": str(weights)}, "add --frozen"), ({"frozen": True}, "leave it")):
        with pytest.raises(UserError, match=why):
            adapt(source, target, tmp_path / "refused", **(options | wrong))
        assert not (tmp_path / "refused" / "model.safetensors").exists()
        shutil.rmtree(tmp_path / "refused", ignore_errors=True)
    given = options | {"weights": str(weights), "frozen": True, "half": True}
    trained = adapt(source, target, tmp_path / "run", **given)
    stored = load_file(tmp_path / "run" / "model.safetensors")
    assert not [name for name in stored if name.startswith("backbone.net.")]
    assert {t.dtype for t in stored.values() if t.ndim > 1} == {torch.float16}
    again = load(tmp_path / "run", "cpu")
    found, expected = (m.predict(target, reject="none") for m in (again, trained))
    assert [one.label for one in found] == [one.label for one in expected]


def test_half_precision_keeps_labels_and_statistics(model: Model, tmp_path: Path) -> None:
    files = [tmp_path / "whole.safetensors", tmp_path / "half.safetensors"]
    model.save(files[0])
    model.save(files[1], half=True)
    assert files[1].stat().st_size < 0.55 * files[0].stat().st_size
    whole, half = map(load_file, files)
    for name, tensor in half.items():
        assert tensor.dtype == (torch.float16 if tensor.ndim > 1 else whole[name].dtype)
        if tensor.ndim < 2:
            assert torch.equal(tensor, whole[name])
    loaded = load(files[1], "cpu")
    with torch.no_grad():
        found, expected = (m.predictor(IMAGES).probs for m in (loaded, model))
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.002)
    assert torch.equal(found.argmax(1), expected.argmax(1))


def test_what_half_precision_cannot_hold_stays() -> None:
    given = {"large": torch.full((2, 2), 1e5), "counts": torch.ones(2, 2, dtype=torch.long)}
    assert all(torch.equal(t, given[name]) for name, t in halve(given).items())


def test_a_model_of_format_8_has_its_weights(model: Model, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    model.save(file)
    with safe_open(file, "pt") as stored:
        description = json.loads(stored.metadata()["unida"])
    assert description.pop("weights") is None
    old = {"unida": json.dumps(description | {"format": 8})}
    save_file(load_file(file), file, metadata=old)
    assert same(load(file, "cpu"), model)


@pytest.mark.parametrize("value", [3, {"file": "a"}, {"file": 1, "sha256": "", "backbone": ""}])
def test_a_damaged_reference_is_refused(value: object, model: Model, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    model.save(file)
    with safe_open(file, "pt") as stored:
        description = json.loads(stored.metadata()["unida"])
    metadata = {"unida": json.dumps(description | {"weights": value})}
    save_file(load_file(file), file, metadata=metadata)
    with pytest.raises(UserError, match=r"weights of .* an object with a file and its sha256"):
        load(file, "cpu")
