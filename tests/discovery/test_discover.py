"""Novel categories: found where they are, none where there is nothing, whatever the order."""

import csv
import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.tasks import Task
from unida.bench.arrays import Arrays
from unida.bench.results import Result, RuleResult, write_results
from unida.cli.main import main
from unida.discovery import find as finding
from unida.discovery.algorithms import DEFAULT, WAYS, balanced, numbers_to_try
from unida.discovery.find import (
    FEWEST,
    NONE,
    class_means,
    co_assignment_stability,
    find,
    prior_labels,
    representatives,
)
from unida.discovery.groups import ClassMeans, Features, Groups, lloyd, unit
from unida.discovery.names import suggest
from unida.errors import UserError
from unida.evaluation.feature_store import FeatureStore
from unida.evaluation.metrics import cluster_accuracy
from unida.pipeline import run_adaptation
from unida.training.predictions import COLUMNS
from unida.training.run_folder import RunFolder, write_lines
from unida.types import IntArray
from unida.utils.csv_files import csv_lines


@pytest.fixture(autouse=True)
def few_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interval from two half samples, to be quick."""
    monkeypatch.setattr(finding, "REPEATS", 2)


def blobs(counts: list[int], seed: int = 0, width: float = 0.02) -> tuple[Features, IntArray]:
    """Rows around directions of their own, and which."""
    draws = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(counts)), counts)
    x = np.eye(16)[labels] + width * draws.normal(size=(len(labels), 16))
    return x.astype(np.float32), labels


def novel_and_known(counts: list[int]) -> tuple[Features, IntArray, ClassMeans]:
    """Blobs of novel categories, and three known classes elsewhere, as large as they on average."""
    size = round(sum(counts) / len(counts))
    x, labels = blobs([*counts, size, size, size])
    known = labels >= len(counts)
    return x[~known], labels[~known], ClassMeans(x[known], labels[known])


@pytest.mark.parametrize("name", WAYS)
def test_blobs_are_found(name: str) -> None:
    x, labels, anchors = novel_and_known([50, 40, 30, 30, 20])
    found = find(x, anchors, WAYS[name])
    assert len(found.centres) == 5
    assert found.low <= 5 <= found.high
    inside = found.category != NONE
    assert inside.mean() > 0.9
    assert cluster_accuracy(labels[inside], found.category[inside]) == 1
    assert found.confidence[inside].min() > 0.9
    sizes = np.bincount(found.category)[1:]
    assert (np.diff(sizes) <= 0).all()


@pytest.mark.parametrize("name", WAYS)
def test_one_category_is_one(name: str) -> None:
    x, _, anchors = novel_and_known([60])
    found = find(x, anchors, WAYS[name])
    assert len(found.centres) == 1
    assert (found.category == 1).mean() > 0.9


@pytest.mark.parametrize("name", WAYS)
def test_scattered_images_are_in_none(name: str) -> None:
    x, _, anchors = novel_and_known([50, 50, 50])
    noise = np.random.default_rng(1).normal(size=(8, 16)).astype(np.float32)
    found = find(np.concatenate([x, noise]), anchors, WAYS[name])
    assert (found.category[-8:] == NONE).sum() >= 7
    assert (found.confidence[found.category == NONE] == 0).all()


def test_rejected_images_of_known_classes_are_in_none() -> None:
    x, labels = blobs([40, 40, 60, 60])
    known = labels >= 2
    accepted = known & (np.arange(len(x)) % 2 == 0)
    anchors = class_means(x, labels, accepted, x[:0], labels[:0])
    found = find(x[~accepted], anchors, WAYS["anchored"])
    assert len(found.centres) == 2
    assert (found.category[labels[~accepted] >= 2] == NONE).all()


@pytest.mark.parametrize(("size", "count"), [(30, 4), (60, 2), (15, 8), (1000, 1), (1, 24)])
def test_by_size_there_are_as_many_as_known_classes_would_be(size: int, count: int) -> None:
    x, _ = blobs([30, 30, 30, 30], width=0.1)
    known, labels = blobs([size, size, 5 * size])  # the median counts
    groups = WAYS["sized"](x, ClassMeans(known, labels), 0)
    assert len(groups.centres) == count  # 24: a category has five images at least


def test_by_size_the_number_does_not_depend_on_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    x, _, anchors = novel_and_known([400, 400, 400])
    whole = find(x, anchors, WAYS["sized"])
    monkeypatch.setattr(finding, "MOST_GROUPED", 150)
    assert len(find(x, anchors, WAYS["sized"]).centres) == len(whole.centres) == 3


def test_by_size_the_interval_tells_how_unlike_the_known_classes_are() -> None:
    x, _ = blobs([40] * 6, width=0.1)
    spans = []
    for sizes in ([40] * 6, [10, 20, 40, 40, 80, 160]):
        known, labels = blobs(sizes)
        found = find(x, ClassMeans(known, labels), WAYS["sized"])
        assert found.low <= 6 <= found.high
        spans.append(found.high - found.low)
    assert spans[0] < spans[1]


@pytest.mark.parametrize("name", WAYS)
def test_the_order_of_the_images_does_not_matter(name: str) -> None:
    x, _, anchors = novel_and_known([30, 20, 20])
    x += np.random.default_rng(2).normal(size=x.shape).astype(np.float32) * 0.2
    order = np.random.default_rng(3).permutation(len(x))
    turned = ClassMeans(anchors.features[::-1], anchors.labels[::-1])
    one, other = find(x, anchors, WAYS[name]), find(x[order], turned, WAYS[name])
    np.testing.assert_array_equal(one.category[order], other.category)
    np.testing.assert_array_equal(one.confidence[order], other.confidence)
    assert (one.low, one.high) == (other.low, other.high)


@pytest.mark.parametrize("n", [0, 1, FEWEST - 1])
def test_too_few_images_are_in_no_category(n: int) -> None:
    x, _, anchors = novel_and_known([20])
    found = find(x[:n], anchors, WAYS[DEFAULT])
    assert found.category.tolist() == [NONE] * n
    assert (len(found.centres), found.low, found.high) == (0, 0, n)


@pytest.mark.parametrize("name", WAYS)
def test_images_that_are_all_the_same_are_one_category(name: str) -> None:
    x = np.ones((20, 4), np.float32)
    found = find(x, ClassMeans(x[:0], np.zeros(0, np.int64)), WAYS[name])
    assert set(found.category.tolist()) == {1}


def test_of_very_many_images_a_sample_is_grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "MOST_GROUPED", 90)
    seen: list[int] = []

    def way(x: Features, anchors: ClassMeans, seed: int) -> Groups:
        seen.append(len(x))
        return WAYS["anchored"](x, anchors, seed)

    x, labels, anchors = novel_and_known([400, 300, 300])
    found = find(x, anchors, way)
    assert max(seen) == 90
    inside = found.category != NONE
    assert cluster_accuracy(labels[inside], found.category[inside]) == 1


def test_confidence_is_half_between_two_centres() -> None:
    x, _ = blobs([30, 30], width=0.3)
    centres = np.eye(16, dtype=np.float32)[:2]
    between = centres.mean(0, keepdims=True)
    category, confidence, _ = prior_labels(np.concatenate([x, between]), Groups(centres, x[:0]))
    assert category[-1] != NONE
    assert confidence[-1] == pytest.approx(0.5)
    assert confidence[:-1].mean() > 0.9


def test_company_is_the_share_of_the_own_category_where_a_row_is_grouped() -> None:
    x = np.eye(4, dtype=np.float32)[[0, 0, 1, 1, 2, 3]]
    category = np.array([1, 1, 1, 2, 2, NONE])
    alike = Groups(np.eye(4, dtype=np.float32), x[:0])  # 1 1 | 1 2 | 2 | none
    one = Groups(x[:1], x[:0])  # all together: three of 1, two of 2
    found = co_assignment_stability(x, category, [alike, one])
    assert found == pytest.approx([(1 + 0.6) / 2] * 2 + [0.55, 0.45, (1 + 0.4) / 2, 0])


def test_an_image_whose_category_comes_and_goes_is_less_sure() -> None:
    x, labels = blobs([60, 60, 60], width=0.1)
    scattered = np.random.default_rng(1).normal(size=(120, 16)).astype(np.float32)
    found = find(np.concatenate([x, scattered]), ClassMeans(x[:0], labels[:0]), WAYS["kmeans"])
    clear, vague = found.confidence[: len(x)], found.confidence[len(x) :]
    assert (vague[found.category[len(x) :] != NONE] < clear.min()).all()
    assert clear.mean() > 0.9


def test_known_images_hold_their_centre_in_semi_supervised_k_means() -> None:
    x = np.array([[0.0], [1.0], [9.0], [10.0]], np.float32)
    anchors = ClassMeans(np.full((6, 1), -2, np.float32), np.zeros(6, np.int64))
    start = Groups(np.array([[8.0]], np.float32), np.array([[-1.0]], np.float32))
    groups = lloyd(x, anchors, start)
    assert groups.centres.tolist() == [[9.5]]
    assert groups.known[0, 0] == pytest.approx((0 + 1 - 12) / 8)


def test_anchors_are_accepted_images_or_else_the_source_moved() -> None:
    x, labels = blobs([10, 10, 10])
    source, of_source = x[:5] + 7, labels[:5]
    accepted = labels < 2
    anchors = class_means(x, labels, accepted, source, of_source)
    np.testing.assert_array_equal(anchors.features, x[accepted])
    moved = class_means(x, labels, labels < 1, source, of_source)
    np.testing.assert_allclose(moved.features.mean(0), x.mean(0), atol=1e-5)
    assert moved.labels is of_source


def test_anchors_are_balanced_and_numbered_anew() -> None:
    x, labels = blobs([200, 7])
    some = balanced(ClassMeans(x, labels * 5 + 3), 0)
    assert np.bincount(some.labels).tolist() == [60, 7]


def test_numbers_to_try_leave_a_few_images_for_each() -> None:
    assert numbers_to_try(9) == []
    assert numbers_to_try(25) == [2, 3, 4, 5]
    assert numbers_to_try(1000)[-1] <= 200


def test_representatives_are_close_and_no_copies_of_each_other() -> None:
    x, _ = blobs([40], width=0.1)
    x = unit(np.concatenate([x, x, -x[:2]]))
    rows = representatives(x, x[:40].mean(0), 5)
    assert len(rows) == len(np.unique(x[rows], axis=0)) == 5
    assert rows.max() < 80
    assert len(representatives(np.repeat(x[:1], 4, 0), x[0], 5)) == 1


# The command.

ODD = ['a,"b".png', "new\nline.png", "cr\r.png", "ünï 'c'.png", "=1+1.png"]


def write_run(folder: Path, x: Features, unknown: int) -> RunFolder:
    """A finished run of which the first `unknown` images were rejected."""
    folder.mkdir()
    run = RunFolder(folder)
    best = np.arange(len(x)) % 2
    FeatureStore(x, best, x[:0], best[:0], np.array([], np.str_)).save(run.features)
    labels = ["unknown" if i < unknown else "ab"[best[i]] for i in range(len(x))]
    names = [f"{i} {ODD[i % len(ODD)]}" for i in range(len(x))]
    rows = ((n, k, "0.5", "0", "own") for n, k in zip(names, labels, strict=True))
    write_lines(run.predictions, csv_lines(COLUMNS, rows))
    run.done.touch()
    return run


def read(run: RunFolder) -> tuple[list[dict[str, str]], Any]:
    with run.categories.open(newline="") as file:
        return list(csv.DictReader(file)), json.loads(run.category_summary.read_text())


def test_the_files_hold_what_the_others_read(tmp_path: Path) -> None:
    x, _ = blobs([30, 20, 15, 15])
    run = write_run(tmp_path / "run", x, 50)
    assert main(["discover", str(run.path)]) == 0
    rows, summary = read(run)
    assert [row["path"] for row in rows] == [f"{i} {ODD[i % len(ODD)]}" for i in range(50)]
    assert summary["method"] == DEFAULT
    assert summary["count"]["low"] <= summary["count"]["estimate"] <= summary["count"]["high"]
    categories = summary["categories"]
    assert [c["id"] for c in categories] == list(range(1, summary["count"]["estimate"] + 1))
    for category in categories:
        members = {row["path"] for row in rows if row["category"] == str(category["id"])}
        assert category["size"] == len(members)
        assert category["name"] is None
        assert set(category["representatives"]) <= members
        assert category["representatives"]
    assert all(0 <= float(row["confidence"]) <= 1 for row in rows)
    before = run.categories.read_bytes(), run.category_summary.read_bytes()
    assert main(["discover", str(run.path)]) == 0
    assert before == (run.categories.read_bytes(), run.category_summary.read_bytes())


@pytest.mark.parametrize("unknown", [0, 4])
def test_few_unknown_images_are_said_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], unknown: int
) -> None:
    run = write_run(tmp_path / "run", blobs([20])[0], unknown)
    assert main(["discover", str(run.path)]) == 0
    said = capsys.readouterr().err.strip()
    assert (
        said == f"{unknown} images were called unknown: categories are looked for among 10 or more."
    )
    rows, summary = read(run)
    assert [row["category"] for row in rows] == [""] * unknown
    assert summary["categories"] == []
    assert summary["count"] == {"estimate": 0, "low": 0, "high": unknown}


def test_a_real_run(digits: Task, out: Path) -> None:
    run_adaptation(digits.config(out, reject="own"))
    assert main(["discover", str(out), "--way", "hdbscan"]) == 0
    rows, _ = read(RunFolder(out))
    with RunFolder(out).predictions.open(newline="") as file:
        unknown = [row["path"] for row in csv.DictReader(file) if row["label"] == "unknown"]
    assert [row["path"] for row in rows] == unknown


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["--way", "magic"], "way is 'magic'; allowed: sized, kmeans, hdbscan, anchored."),
        (["--names-from", "clip"], "--names-from needs --vocabulary"),
        (["--vocabulary", "nowhere.txt"], "nowhere.txt cannot be read as a list of names"),
    ],
)
def test_bad_options_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], args: list[str], sentence: str
) -> None:
    assert main(["discover", str(tmp_path), *args]) == 2
    assert sentence in capsys.readouterr().err


def test_a_folder_without_a_finished_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["discover", str(tmp_path)]) == 2
    assert "holds no finished run" in capsys.readouterr().err


def test_files_of_different_runs_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", blobs([20])[0], 5)
    write_lines(run.predictions, csv_lines(COLUMNS, [("a.png", "unknown", "0.5", "0", "own")]))
    assert main(["discover", str(run.path)]) == 2
    assert "not of the same run" in capsys.readouterr().err


# Names.


def tiny_clip(folder: Path, words: list[str]) -> Path:
    """A CLIP of a few random numbers, with a tokenizer that knows `words`."""
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
    with run.predictions.open(newline="") as file:
        for row in csv.DictReader(file):
            pixels = draws.integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(row["path"])
    (tmp_path / "words.txt").write_text("owl\n\nwren\ngull\nowl\n")
    args = ["--vocabulary", "words.txt", "--names-from", str(model)]
    assert main(["discover", str(run.path), *args]) == 0
    _, summary = read(run)
    assert summary["categories"]
    assert {category["name"] for category in summary["categories"]} <= set(words)


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
    assert suggest(tmp_path, ["owl", "wren", "gull"], [[place]], "a {}") == ["gull"]


def test_a_folder_that_holds_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a whole text-image model"):
        suggest(tmp_path, ["owl"], [], "a {}")


# The benchmark.


def write_result(run: Path, x: Features, labels: IntArray) -> None:
    """A run of a bench that knows the classes 2 and above, as 0 and 1, and rejects the others."""
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
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    monkeypatch.setenv("UNIDA_COMMIT", "abc")
    importlib.import_module("discover").main([str(arg) for arg in args])


def test_the_benchmark_scores_every_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, labels = blobs([25, 25, 25, 25])
    write_result(tmp_path / "results/runs/one", x, labels)
    benchmark(monkeypatch, tmp_path / "results", "--out", tmp_path / "table")
    rows = json.loads((tmp_path / "table.json").read_text())["results"]
    assert [(row["set"], row["way"]) for row in rows] == [
        (name, way) for name in ("rejected", "unknown") for way in WAYS
    ]
    for row in rows:
        assert row["true"] == row["count"] == 2
        assert row["acc"] == pytest.approx(1 - row["none_of_novel"])
        assert row["acc"] > 0.9
        assert row["h3"] == pytest.approx(3 / (2 + 1 / row["nmi"]))
    table = (tmp_path / "table.md").read_text()
    assert "| san | rejected | anchored |" in table
    assert "| all | unknown | kmeans |" in table


def test_the_benchmark_measures_growth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = ("--sizes", "100,200", "--categories", 3, "--ways", "hdbscan,anchored")
    benchmark(monkeypatch, "--scale", *small, "--out", tmp_path / "scale.json")
    rows = json.loads((tmp_path / "scale.json").read_text())["results"]
    assert [row["way"] for row in rows] == ["hdbscan", "anchored"]
    assert all(len(row["seconds"]) == 2 and row["slope"] is not None for row in rows)
