"""`unida discover`: from a run to categories.csv and categories.json, with suggested names."""

import csv
import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.discovery.test_clustering import blobs
from unida.bench.arrays import Arrays
from unida.bench.results import Result, RuleResult, write_results
from unida.cli.main import main
from unida.discovery import clustering
from unida.discovery.algorithms import ALGORITHMS, DEFAULT
from unida.discovery.categories import read_categories
from unida.discovery.discover import discover
from unida.discovery.names import suggest_names
from unida.errors import UserError
from unida.evaluation.feature_store import FeatureStore
from unida.training.predictions import read_predictions
from unida.training.run_folder import RunFolder
from unida.types import Features, IntArray, Prediction

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
    assert summary["method"] == DEFAULT
    assert summary["count"] == {"estimate": len(found), "low": found.low, "high": found.high}
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
        assert read_summary(run)["count"] == {"estimate": 0, "low": 0, "high": unknown}


def test_a_trained_run_and_one_of_an_earlier_version(finished_run: Path, tmp_path: Path) -> None:
    run = RunFolder(shutil.copytree(finished_run, tmp_path / "run"))
    found = discover(run, "hdbscan")
    predictions = read_predictions(run.predictions)
    rejected = [p for p, label in zip(predictions.paths, predictions.labels, strict=True)
                if label == "unknown"]  # fmt: skip
    assert found.paths == rejected
    run.features.rename(run.path / "atlas.npz")
    assert discover(run, "hdbscan").category.tolist() == found.category.tolist()


def test_what_cannot_be_done_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mixed = write_run(tmp_path / "run", blobs([20])[0], 5)
    mixed.write_predictions([Prediction(Path("a.png"), "unknown", 0.5, 0.0, "own")])
    for place, options, words in (
        (tmp_path, ["--algorithm", "magic"], "algorithm is 'magic'; allowed: class_size_prior"),
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
    assert {category["name"] for category in categories} <= set(words)


def test_the_name_is_the_nearest_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from unida.discovery import names

    class Net:
        def get_text_features(self, **_: Any) -> Any:
            return torch.eye(3)

        def get_image_features(self, **_: Any) -> Any:
            return torch.tensor([[0.1, 0.2, 5.0], [1.0, 2.0, 1.0]])

    place = tmp_path / "a.png"
    Image.new("RGB", (4, 4)).save(place)
    monkeypatch.setattr(names, "_load", lambda _: (Net(), lambda **_: {}))
    assert suggest_names(tmp_path, ["owl", "wren", "gull"], [[place]], "a {}") == ["gull"]


def test_a_folder_that_holds_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a complete text-image model"):
        suggest_names(tmp_path, ["owl"], [], "a {}")


# The benchmark.


def write_result(run: Path, x: Features, labels: IntArray) -> None:
    """A run of a bench with the known classes 2 and above, as 0 and 1, and rejects the others."""
    run.mkdir(parents=True)
    known = labels >= 2
    mine = np.where(known, labels - 2, 2)
    names = labels.astype(np.str_)
    score = np.where(known, -1.0, 1.0)
    best, half = np.where(known, mine, 0), np.full(len(x), 0.5)
    Arrays(mine, names, best, half, score, x, best[known], x[known]).save(run / "scores.npz")
    rule = RuleResult("own", 0.0, "", {"known": 1.0, "unknown": 1.0}, [])
    result = Result(
        data="d", setting="unda", source="a", target="b", entry="san", method="san",
        refine="none", seed=0,
        label_noise=0.0, unknown_classes=2, known_classes=["2", "3"], shared_classes=["2", "3"],
        images={}, options={}, settings={}, rules={"mixture": rule}, ranking={}, seconds=0.0,
        parameters=0, made_with={},
    )  # fmt: skip
    write_results(run / "result.jsonl", [result])


def benchmark(monkeypatch: pytest.MonkeyPatch, *args: object) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks" / "scripts"))
    monkeypatch.setenv("UNIDA_COMMIT", "abc")
    importlib.import_module("discover").main([str(arg) for arg in args])


def test_the_benchmark_scores_every_algorithm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, labels = blobs([25, 25, 25, 25])
    write_result(tmp_path / "results/runs/one", x, labels)
    benchmark(monkeypatch, tmp_path / "results", "--out", tmp_path / "table")
    rows = json.loads((tmp_path / "table.json").read_text())["results"]
    assert [(row["set"], row["algorithm"]) for row in rows] == [
        (name, algorithm) for name in ("rejected", "unknown") for algorithm in ALGORITHMS
    ]
    for row in rows:
        assert row["true"] == row["count"] == 2
        assert row["acc"] == pytest.approx(1 - row["none_of_novel"])
        assert row["acc"] > 0.9
        assert row["h3"] == pytest.approx(3 / (2 + 1 / row["nmi"]))
    table = (tmp_path / "table.md").read_text()
    assert "| san | rejected | semi_supervised |" in table
    assert "| all | unknown | kmeans |" in table


def test_the_benchmark_measures_growth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = ("--sizes", "100,200", "--categories", 3, "--algorithms", "hdbscan,class_size_prior")
    benchmark(monkeypatch, "--scale", *small, "--out", tmp_path / "scale.json")
    rows = json.loads((tmp_path / "scale.json").read_text())["results"]
    assert [row["algorithm"] for row in rows] == ["hdbscan", "class_size_prior"]
    assert all(len(row["seconds"]) == 2 and row["slope"] is not None for row in rows)
