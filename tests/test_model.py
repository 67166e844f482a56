"""A stored model of another format, earlier or later, is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.methods.toys import build
from unida.decision.predictor import Predictor
from unida.decision.rejection import Rule
from unida.errors import UserError
from unida.legacy import OLDEST
from unida.model import FORMAT, Model, load
from unida.types import Sizes


@pytest.fixture
def model() -> Model:
    predictor = Predictor(build("source_only", Sizes(2, 10, 10, 4, 8))).eval()
    rules = {"own": Rule("own", 0.0, ""), "mixture": Rule("mixture", 0.3, "")}
    device = torch.device("cpu")
    known = tuple(float(i) for i in range(201))
    return Model(predictor, "source_only", ("a", "b"), 16, 18, rules, "own", device, 1.7, known)


def rewrite(file: Path, without: tuple[str, ...], **changes: Any) -> None:
    """Change the description of a stored model."""
    with safe_open(file, "pt") as stored:
        description = json.loads(stored.metadata()["unida"])
    kept = {key: value for key, value in description.items() if key not in without} | changes
    save_file(load_file(file), file, metadata={"unida": json.dumps(kept)})


def test_temperature_and_held_out_scores_are_stored(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors", "cpu")
    assert (loaded.temperature, loaded.known) == (1.7, model.known)
    assert loaded.rule("source:0.1").threshold == pytest.approx(180)


@pytest.mark.parametrize("other", [OLDEST - 1, FORMAT + 1, "7"])
def test_another_format_is_refused_in_one_sentence(
    model: Model, tmp_path: Path, other: object
) -> None:
    file = tmp_path / "model.safetensors"
    model.save(file)
    rewrite(file, (), format=other)
    with pytest.raises(
        UserError, match=rf"format of .* is {other!r}; allowed: {OLDEST} to {FORMAT}"
    ):
        load(file, "cpu")


def test_a_tensor_of_pictures_is_no_tensor_of_embeddings(model: Model) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (3, 128, 128, 3), np.uint8)
    _, of_array = model.score(pictures)
    _, of_tensor = model.score(torch.from_numpy(pictures))
    assert of_array.unknown_score.tolist() == of_tensor.unknown_score.tolist()


def test_one_more_rule_is_shown_beside_the_others(model: Model) -> None:
    more = model.with_rule("threshold:0.25")
    assert list(more.rules) == ["own", "mixture", "threshold:0.25"]
    assert list(model.rules) == ["own", "mixture"]
    assert more.rule().name == "own"


def test_one_picture_is_not_taken_for_many_grey_ones(model: Model) -> None:
    with pytest.raises(UserError, match=r"shape \(16, 18, 3\) is one image: hand over x\[None\]"):
        model.score(np.zeros((16, 18, 3), np.uint8))
