"""A model: what is stored with it, other formats, other scores than it was fitted to."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.methods.toys import build
from unida.decision.category_shift import build_reference
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


def test_what_a_rule_was_fitted_to_is_stored(model: Model, tmp_path: Path) -> None:
    draws = torch.Generator().manual_seed(0)
    source, target = (torch.randn(n, 128, generator=draws) for n in (12, 30))
    reference = build_reference(source, torch.arange(12) % 2, target)
    nothing = Rule("share", math.inf, "a note", 0.0, (0.0, 0.1))
    everything = Rule("share", -math.inf, "a note", 1.0, (0.9, 1.0))
    for rule in (nothing, everything, Rule("own", 0.0, "a note", fell_back="a reason")):
        fitted = dataclasses.replace(
            model, rules={"share": rule}, reject="share", target=model.known, reference=reference
        )
        fitted.save(tmp_path / "model.safetensors")
        loaded = load(tmp_path / "model.safetensors", "cpu")
        assert (loaded.rule(), loaded.target) == (rule, model.known)
        assert loaded.reference is not None
        assert torch.equal(loaded.reference.transform(target), reference.transform(target))


def test_a_model_of_format_7_was_fitted_to_nothing_that_is_known(
    model: Model, tmp_path: Path
) -> None:
    file = tmp_path / "model.safetensors"
    model.save(file)
    rewrite(file, ("reference", "target"), format=7)
    loaded = load(file, "cpu")
    assert loaded.rules == model.rules
    assert loaded.score_shift(np.arange(100.0)) is None
    with pytest.raises(UserError, match=r"version 0\.1 .* train again, or take another --reject"):
        loaded.refit_rules(np.zeros((3, 18, 18, 3), np.uint8))


def test_scores_are_compared_with_those_of_the_fit(model: Model) -> None:
    fitted = dataclasses.replace(model, target=model.known)  # 0 to 200, evenly
    draws = np.random.default_rng(0)
    assert fitted.score_shift(draws.uniform(0, 200, 1000)) == 0
    assert fitted.score_shift(draws.uniform(300, 400, 10_000)) == pytest.approx(1, abs=0.02)
    assert fitted.score_shift(draws.uniform(0, 100, 10_000)) == pytest.approx(0.5, abs=0.03)
    assert fitted.score_shift(np.full(19, 999.0)) is None


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
