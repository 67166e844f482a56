"""`unida discover`: from a run to categories.csv and categories.json, with suggested names."""

import csv
import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.discovery.test_clustering import blobs
from unida.cli.main import main
from unida.discovery import clustering, names
from unida.discovery.categories import Suggestion, read_categories
from unida.discovery.discover import EARLIER, METHOD, discover
from unida.discovery.names import suggest_names
from unida.errors import UserError
from unida.evaluation.feature_store import FeatureStore
from unida.evaluation.metrics import cluster_accuracy
from unida.training.predictions import read_predictions
from unida.training.run_folder import RunFolder
from unida.types import Features, Prediction

ODD = ['a,"b".png', "new\nline.png", "cr\r.png", "ünï 'c'.png", "=1+1.png"]


@pytest.fixture(autouse=True)
def few_half_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering, "HALF_SAMPLES", 2)


def write_run(folder: Path, x: Features, unknown: int) -> RunFolder:
    """A finished run of which the first `unknown` images were rejected."""
    folder.mkdir()
    run = RunFolder(folder)
    best = np.arange(len(x)) % 2
    FeatureStore(x, best, x[:0], best[:0], np.array([], np.str_)).save(run.features)
    run.write_predictions(
        Prediction(
            Path(f"{i} {ODD[i % len(ODD)]}"),
            "unknown" if i < unknown else "ab"[best[i]],
            0.5,
            0.0,
            "own",
        )
        for i in range(len(x))
    )
    run.done.touch()
    return run


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def read_summary(run: RunFolder) -> Any:
    return json.loads(run.category_summary.read_text())


def test_the_files_hold_the_categories(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", blobs([30, 20, 15, 15])[0], 50)
    found = discover(run.path)
    assert main(["discover", str(run.path)]) == 0
    rows, summary = read_rows(run.categories), read_summary(run)
    assert [row["path"] for row in rows] == found.paths
    assert found.paths == [f"{i} {ODD[i % len(ODD)]}" for i in range(50)]
    assert summary["method"] == METHOD
    assert summary["count"] == {
        "estimate": len(found),
        "low": found.low,
        "high": found.high,
        "supported": not found.note,
        "note": found.note,
    }
    for number, category in enumerate(summary["categories"], 1):
        images = {row["path"] for row in rows if row["category"] == str(number)}
        assert category["id"] == number
        assert category["size"] == len(images)
        assert category["name"] is None
        assert category["representatives"]
        assert set(category["representatives"]) <= images
    read = read_categories(run.categories)
    assert [int(image.label) for image in read] == [k for k in found.category if k]
    assert all(0 <= image.confidence <= 1 for image in read)


def test_few_unknown_images_are_in_no_category(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for unknown in (0, 4):
        run = write_run(tmp_path / str(unknown), blobs([20])[0], unknown)
        assert main(["discover", str(run.path)]) == 0
        assert f"{unknown} images were called unknown" in capsys.readouterr().err
        assert [row["category"] for row in read_rows(run.categories)] == [""] * unknown
        count = read_summary(run)["count"]
        assert (count["estimate"], count["low"], count["high"]) == (0, 0, unknown)
        assert not count["supported"]


def test_a_trained_run_and_one_of_an_earlier_version(finished_run: Path, tmp_path: Path) -> None:
    run = RunFolder(shutil.copytree(finished_run, tmp_path / "run"))
    found = discover(run)
    predictions = read_predictions(run.predictions)
    rejected = [p for p, label in zip(predictions.paths, predictions.labels, strict=True)
                if label == "unknown"]  # fmt: skip
    assert found.paths == rejected
    run.features.rename(run.path / "atlas.npz")
    assert discover(run).category.tolist() == found.category.tolist()


def test_what_cannot_be_done_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mixed = write_run(tmp_path / "run", blobs([20])[0], 5)
    mixed.write_predictions([Prediction(Path("a.png"), "unknown", 0.5, 0.0, "own")])
    for place, options, words in (
        (tmp_path, ["--algorithm", "magic"], "algorithm is 'magic'; allowed: known_classes"),
        (tmp_path, ["--count", "0"], "count is 0; allowed: 1 or more"),
        (tmp_path, ["--names-from", "clip"], "--names-from needs --vocabulary"),
        (tmp_path, ["--vocabulary", "nowhere.txt"], "nowhere.txt cannot be read"),
        (tmp_path, [], "holds no finished run"),
        (mixed.path, [], "not of the same run"),
    ):
        assert main(["discover", str(place), *options]) == 2
        assert words in " ".join(capsys.readouterr().err.split())
    mixed.categories.write_text("path,category,confidence\na.png,1,sure\n")
    with pytest.raises(UserError, match=r"categories\.csv is damaged"):
        read_categories(mixed.categories)


def test_an_algorithm_of_an_earlier_version_is_replaced_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = write_run(tmp_path / "run", blobs([30, 20, 15, 15])[0], 50)
    found = discover(run)
    for name in EARLIER:
        assert discover(run, name).category.tolist() == found.category.tolist()
        assert repr(name) in caplog.text
    caplog.clear()
    discover(run, METHOD)
    assert not caplog.records


def test_a_given_number_is_taken(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", blobs([30, 20, 15, 15])[0], 50)
    assert main(["discover", str(run.path), "--count", "3"]) == 0
    summary = read_summary(run)
    assert (summary["method"], len(summary["categories"])) == ("given", 3)


def test_features_of_the_backbone_are_preferred(tmp_path: Path) -> None:
    x, labels = blobs([30, 30, 30, 30, 30, 30, 30])
    run = write_run(tmp_path / "run", np.ones_like(x), 60)  # the method's features tell nothing
    best = np.where(labels < 2, 0, labels - 2)
    FeatureStore(np.ones_like(x), best, x[:0], best[:0], np.array([], np.str_), x, x[:0]).save(
        run.features
    )
    found = discover(run)
    assert len(found) == 2
    inside = found.category != 0
    assert cluster_accuracy(labels[:60][inside], found.category[inside]) == 1


# Names.


def tiny_clip(folder: Path, words: list[str]) -> Path:
    """A CLIP of a few random numbers, with a tokenizer for `words`."""
    transformers = pytest.importorskip("transformers")
    size = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    size |= {"num_hidden_layers": 1}
    characters = sorted({c for word in [*words, "a photo of"] for c in word if c != " "})
    tokens = ["<|startoftext|>", "<|endoftext|>", *characters, *(c + "</w>" for c in characters)]
    ends = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    text = size | ends | {"vocab_size": len(tokens), "max_position_embeddings": 32}
    vision = size | {"image_size": 16, "patch_size": 8}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
    transformers.set_seed(0)
    transformers.CLIPModel(config).save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    transformers.CLIPTokenizer(
        str(folder / "vocab.json"), str(folder / "merges.txt")
    ).save_pretrained(folder)
    crop = {"height": 16, "width": 16}
    transformers.CLIPImageProcessor(size={"shortest_edge": 16}, crop_size=crop).save_pretrained(
        folder
    )
    return folder


def test_a_text_image_model_suggests_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["owl", "wren", "gull"]
    model = tiny_clip(tmp_path / "clip", words)
    monkeypatch.chdir(tmp_path)
    run = write_run(tmp_path / "run", blobs([15, 15, 10])[0], 30)
    draws = np.random.default_rng(0)
    for path in read_predictions(run.predictions).paths:
        Image.fromarray(draws.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(path)
    (tmp_path / "words.txt").write_text("owl\n\nwren\ngull\nowl\n")
    args = ["--vocabulary", "words.txt", "--names-from", str(model)]
    assert main(["discover", str(run.path), *args]) == 0
    categories = read_summary(run)["categories"]
    assert categories
    assert {category["name"] for category in categories} <= {*words, None}
    assert all(0 <= category["name_confidence"] <= 1 for category in categories)


class ToyNet:
    """Names are axes: owl, wren, gull, then those that say nothing, then known classes."""

    logit_scale = torch.tensor(3.0)

    def __init__(self, images: list[list[float]], known: list[list[float]]) -> None:
        self.images, self.known = images, known

    def get_text_features(self, **_: Any) -> Any:
        return torch.cat([torch.eye(6, 8), torch.tensor(self.known).reshape(-1, 8)])

    def get_image_features(self, **_: Any) -> Any:
        return torch.tensor(self.images)


def suggest(
    monkeypatch: pytest.MonkeyPatch,
    place: Path,
    images: list[list[float]],
    known: dict[str, list[float]],
) -> Suggestion:
    Image.new("RGB", (4, 4)).save(place)
    net = ToyNet(images, [*known.values()])
    monkeypatch.setattr(names, "_load", lambda _: (net, lambda **_: {}))
    words = ["owl", "wren", "gull"]
    (found,) = suggest_names(place.parent, words, [[place]], "a {}", [*known])
    return found


def test_the_name_is_the_most_probable_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = [[0.1, 0.2, 5.0, 0, 0, 0, 0, 0], [0.2, 0.6, 1.0, 0, 0, 0, 0, 0]]
    found = suggest(monkeypatch, tmp_path / "a.png", images, {})
    assert (found.name, found.resembles) == ("gull", None)
    assert 0.9 < found.confidence < 1


def test_no_name_is_suggested_where_none_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for image in ([0, 0, 0.5, 1.0, 0, 0, 0, 0], [0.0] * 7 + [1.0]):  # an object; nothing of these
        found = suggest(monkeypatch, tmp_path / "a.png", [image], {})
        assert found.name is None
        assert found.confidence > 0.5


def test_a_synonym_of_a_known_class_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = [0.0, 0, 1, 0, 0, 0, 0, 0]
    other, near = [0.0] * 7 + [1.0], [0.0, 0, 1, 0, 0, 0, 0, 0.1]
    for known, resembles in (
        ({"Gulls": other}, "Gulls"),
        ({"mew": near, "cup": other}, "mew"),
        ({"cup": other}, None),
    ):
        found = suggest(monkeypatch, tmp_path / "a.png", [image], known)
        assert (found.name, found.resembles) == ("gull", resembles)


def test_a_folder_that_holds_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a complete text-image model"):
        suggest_names(tmp_path, ["owl"], [], "a {}")


# The benchmark.


def test_the_benchmark_measures_growth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks" / "scripts"))
    monkeypatch.setenv("UNIDA_COMMIT", "abc")
    small = ["--scale", "--sizes", "100,200", "--categories", "3"]
    importlib.import_module("discover").main([*small, "--out", str(tmp_path / "scale.json")])
    (row,) = json.loads((tmp_path / "scale.json").read_text())["results"]
    assert len(row["seconds"]) == len(row["counts"]) == 2
    assert row["slope"] is not None
