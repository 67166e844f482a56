"""The content of the report, without a browser."""

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.report.made_up import CLASSES, HOSTILE, THRESHOLD, make_run
from unida.cli.adapt import Adapt
from unida.config import OPTION_NAMES
from unida.errors import UserError
from unida.methods.presets import configure, load_config
from unida.report import sentences
from unida.report.content import SECTIONS, collect
from unida.report.data import read_true_classes
from unida.report.sampling import prediction_doubt, sample_target
from unida.training.run_folder import RunFolder


@pytest.fixture(scope="module")
def content(made_up: RunFolder) -> dict[str, Any]:
    return collect(made_up)


def test_every_column_has_a_value_for_every_image(content: dict[str, Any]) -> None:
    target, n = content["target"], content["run"]["total"]
    assert n == sum(content["run"]["counts"]) == 64
    lengths = {name: len(column) for name, column in target.items() if column is not None}
    assert set(lengths.values()) == {n}
    n_source = len(content["source"]["path"])
    assert len(content["map"]["x"]) == len(content["sprites"]["shapes"]) == n + n_source


def test_paths_are_relative_and_can_be_put_together_again(
    content: dict[str, Any], made_up: RunFolder
) -> None:
    assert content["target"]["path"][0] == f"{HOSTILE}.png"
    assert Path(content["run"]["root"]) == made_up.path.parent / "target"
    assert Path(content["run"]["root"] + content["target"]["path"][5]).exists()


def test_images_from_many_folders_share_what_they_have(tmp_path: Path) -> None:
    run = make_run(tmp_path, per_class=2, unknown=2, pictures=False)
    text = run.config.read_text()
    run.config.write_text(text.replace(str(tmp_path / "target"), str(tmp_path / "list.txt")))
    found = collect(run)
    assert found["run"]["root"] == f"{tmp_path / 'target'}/"
    assert set(found["target"]["path"]) == {"one.png"}


def test_categories_of_all_images_are_in_the_page(content: dict[str, Any]) -> None:
    assert [g["id"] for g in content["categories"]["found"]] == [1, 2, 3, 4]
    assert sum(c > 0 for c in content["target"]["category"]) == content["run"]["counts"][-1] == 16
    assert content["categories"]["others"] == {"path": [], "category": []}


@pytest.mark.parametrize(("threshold", "end"), [("inf", max), ("-inf", min)])
def test_an_infinite_threshold_is_shown_at_the_outermost_score(
    tmp_path: Path, threshold: str, end: Any
) -> None:
    run = make_run(tmp_path, per_class=2, unknown=2, pictures=False, threshold=threshold)
    found = collect(run)
    outermost = pytest.approx(end(found["target"]["score"]), rel=1e-4)
    assert found["scores"]["threshold"] == outermost
    assert end(found["scores"]["edges"]) == found["scores"]["threshold"]
    json.dumps(found, allow_nan=False)


def test_what_is_not_there_is_left_out(tmp_path: Path) -> None:
    run = make_run(tmp_path, per_class=2, unknown=2, extras=False, pictures=False)
    run.features.unlink()
    found = collect(run)
    absent = ("map", "categories", "evaluation", "calibration", "diagnostics")
    assert [found[name] for name in absent] == [None] * 5
    assert found["source"] == {"path": [], "label": []}


def test_a_run_of_an_earlier_version_has_its_sections() -> None:
    fixture = Path(__file__).parents[1] / "fixtures" / "format6" / "san-plain"
    found = collect(RunFolder(fixture))
    absent = {name for name in SECTIONS if found[name] is None}
    assert absent == {"categories", "evaluation", "calibration"}
    assert found["diagnostics"]["estimates"]
    assert len(found["sprites"]["shapes"]) == len(found["map"]["x"])


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no run"):
        collect(RunFolder(tmp_path))


def test_predictions_of_something_else_are_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path, per_class=2, unknown=2, pictures=False)
    run.predictions.write_text("path,label\na,nobody\n")
    with pytest.raises(UserError, match=r"predictions\.csv"):
        collect(run)


def test_features_of_other_images_are_not_shown(tmp_path: Path) -> None:
    run = make_run(tmp_path, per_class=2, unknown=2, pictures=False)
    lines = run.predictions.read_text().splitlines(keepends=True)
    run.predictions.write_text("".join(lines[:-1]))
    assert collect(run)["map"] is None


def test_of_many_images_a_sample_is_shown(
    made_up: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "unida.report.data.sample_target", lambda *args: sample_target(*args, most=30)
    )
    found = collect(made_up)
    assert len(found["target"]["path"]) == 30
    assert sum(found["run"]["counts"]) == found["run"]["total"] == 64
    assert "30 of 64 target images are shown" in found["notes"][0]
    others = found["categories"]["others"]["path"]
    assert len(others) + sum(c > 0 for c in found["target"]["category"]) == 16


def test_a_sample_has_the_extremes_of_every_class() -> None:
    rng = np.random.default_rng(0)
    labels, doubt = np.repeat([0, 1, 2], [20, 300, 680]), rng.random(1000)
    shown = sample_target(labels, doubt, seed=0, most=120)
    assert len(shown) == len(set(shown.tolist())) == 120
    for k in range(3):
        members = np.flatnonzero(labels == k)
        order = members[np.argsort(doubt[members])]
        assert {*order[:10], *order[-10:]} <= set(shown.tolist())
    assert (shown == sample_target(labels, doubt, seed=0, most=120)).all()
    assert (shown != sample_target(labels, doubt, seed=1, most=120)).any()


def test_doubt_is_nearness_to_the_threshold_and_low_confidence() -> None:
    labels, confidence = np.array([0, 0, 0, 2, 2]), np.array([0.9, 0.9, 0.2, 0.5, 0.5])
    scores = np.array([-3, -0.1, -3, 0.1, 4])
    doubt = prediction_doubt(labels, confidence, scores, threshold=0.0, unknown=2)
    assert doubt[1] > doubt[2] > doubt[0]
    assert doubt[3] > doubt[4]
    assert doubt[0] == pytest.approx(0.1)  # as sure as its class


def test_doubt_is_a_share_whatever_the_scores() -> None:
    scores = np.array([np.nan, np.inf, -np.inf, 0.0, 1e300])
    doubt = prediction_doubt(np.array([2, 2, 0, 1, 0]), np.full(5, 0.5), scores, THRESHOLD, 2)
    assert ((doubt >= 0) & (doubt <= 1)).all()


def test_true_classes_are_found_by_place(tmp_path: Path) -> None:
    for name in ("a/1.png", "b/2.png"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"-")
    paths = [str(tmp_path / "b" / "2.png"), "/elsewhere.png"]
    assert read_true_classes(str(tmp_path), paths) == {paths[0]: "b"}
    assert read_true_classes(str(tmp_path / "gone"), paths) == {}


def test_the_command_makes_the_same_configuration(made_up: RunFolder) -> None:
    stored = load_config(made_up.config)
    settings = {"beta": 0.25, "lam": None, "contrast": "none"}
    odd = configure(settings=settings, source="a b/'$(rm)", flip=False, frozen=True, lr=0.3)
    for config in (stored, odd):
        args = shlex.split(sentences.command(config))
        assert args[:2] == ["unida", "adapt"]
        assert Adapt.parse("adapt", args[2:]).config() == config


def test_numbers_have_their_nouns() -> None:
    assert [sentences.count(n, "category") for n in (1, 1200)] == [
        "1 category",
        "1,200 categories",
    ]
    assert sentences.count(2, "class") == "2 classes"


def test_plain_values_only(content: dict[str, Any]) -> None:
    assert json.loads(json.dumps(content))["run"]["classes"] == list(CLASSES)
    assert set(content["run"]["config"]) == set(OPTION_NAMES)
