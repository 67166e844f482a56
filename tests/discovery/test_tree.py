"""The tree above and below the found categories, and what it says about each."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.discovery.test_clustering import blobs
from tests.discovery.test_discover import read_summary, write_run
from unida.discovery.clusters import KnownFeatures, cluster_means, normalize_rows
from unida.discovery.discover import discover
from unida.discovery.tree import (
    GroupTree,
    build_tree,
    co_assignment,
    merge_order,
    nearest_classes,
    odd_ones,
    read_splits,
    split_codes,
    to_json,
    two_means,
)
from unida.types import Features, IntArray

NOBODY = KnownFeatures(np.zeros((0, 16), np.float32), np.zeros(0, np.int64))


def mixed(counts: list[int]) -> tuple[Features, IntArray]:
    """Blobs as unit rows, and categories from 1."""
    x, labels = blobs(counts, width=0.05)
    return normalize_rows(x), labels + 1


def test_the_most_similar_categories_are_merged_first() -> None:
    means = np.array([[1, 0], [0, 1], [0.1, 0.99], [0.9, 0.2]], np.float32)
    assert [set(pair) for pair in merge_order(means)] == [{2, 3}, {1, 4}, {5, 6}]
    assert merge_order(means[:1]) == []


def test_a_group_of_two_kinds_is_split_into_them() -> None:
    x, labels = blobs([30, 20])
    half = two_means(x)
    assert (half == labels).all()  # 0 is the larger one
    codes = split_codes(x)
    assert {code[0] for code, label in zip(codes, labels, strict=True) if label} == {"1"}


def test_ways_down_are_of_a_tree() -> None:
    """No way is the beginning of another one, and a half that is large enough is split."""
    codes = split_codes(np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32))
    leaves = set(codes)
    assert not any(a != b and b.startswith(a) for a in leaves for b in leaves)
    sizes = [codes.count(code) for code in leaves if len(code) < 6]
    assert max(sizes, default=0) < 10
    assert max(map(len, leaves)) <= 6


def test_what_cannot_be_split_is_whole() -> None:
    assert set(split_codes(np.ones((40, 3), np.float32))) == {""}
    assert set(split_codes(blobs([9])[0])) == {""}


def test_the_order_of_the_images_changes_nothing() -> None:
    rng = np.random.default_rng(1)
    x = normalize_rows(rng.normal(size=(120, 8)).astype(np.float32))
    category = rng.integers(0, 4, 120)
    known = KnownFeatures(x[:40], np.arange(40) % 3)
    names = {0: "a", 1: "b", 2: "c"}
    first, order = build_tree(x, category, known, names), rng.permutation(120)
    second = build_tree(x[order], category[order], known, names)
    assert second.splits == [first.splits[i] for i in order]
    assert (second.merges, second.stability) == (first.merges, first.stability)
    assert [k.name for k in second.known if k] == [k.name for k in first.known if k]
    assert [order[rows].tolist() for rows in second.odd] == first.odd


def test_separate_categories_are_stable_and_a_cut_one_is_not() -> None:
    x, labels = blobs([60, 60, 60, 60], width=0.1)
    separate = co_assignment(x, labels, 0)
    assert (separate > 0.9).all()
    cut = np.where(labels == 0, np.arange(len(x)) % 2, labels + 1)  # one of them cut at random
    stability = co_assignment(x, cut, 0)
    assert stability[:2].max() < stability[2:].min()


def test_a_category_at_a_known_class_is_probably_mislabelled() -> None:
    classes, labels = mixed([20, 20, 20])
    known, names = KnownFeatures(classes, labels), {1: "bottle", 2: "cup", 3: "pen"}
    novel = np.eye(16, dtype=np.float32)[9] + 0.2 * classes[:10]
    x = normalize_rows(np.concatenate([classes[:8], novel]))
    category = np.repeat([1, 2], [8, 10])
    first, second = nearest_classes(x, category, known, names)
    assert first is not None
    assert second is not None
    assert (first.name, first.mislabelled) == ("bottle", True)
    assert (second.name, second.mislabelled) == ("bottle", False)
    assert first.similarity > 0.9 > second.similarity
    assert nearest_classes(x, category, NOBODY, {}) == [None, None]
    assert nearest_classes(x, category, known, {2: "cup"}) == [None, None]  # without its name


def test_odd_ones_are_far_from_the_centre() -> None:
    x, _ = mixed([40])
    x[[3, 8]] = np.eye(16)[[5, 6]]
    assert sorted(odd_ones(x, cluster_means(x, np.zeros(40, np.int64), 1)[0])) == [3, 8]
    assert len(odd_ones(np.ones((9, 4), np.float32), np.ones(4, np.float32))) == 0


def test_the_tree_is_read_as_it_was_written() -> None:
    x, category = mixed([30, 25])
    category[::7] = 0
    tree = build_tree(x, category, NOBODY, {})
    stored = json.loads(json.dumps(to_json(tree, category)))
    inside = category > 0
    ways = [code for code, one in zip(tree.splits, inside, strict=True) if one]
    assert read_splits(stored, [str(k) for k in category[inside]]) == ways
    assert read_splits(stored | {"version": 2}, ["1"]) is None
    assert read_splits(stored, ["1"] * len(x)) is None  # of other categories
    assert read_splits(None, ["1"]) is None


def test_without_categories_there_is_no_tree() -> None:
    tree = build_tree(blobs([8])[0], np.zeros(8, np.int64), NOBODY, {})
    assert tree == GroupTree(splits=[""] * 8)


@pytest.mark.parametrize("algorithm", ["class_size_prior", "kmeans"])
def test_discover_writes_the_tree(tmp_path: Path, algorithm: str) -> None:
    run = write_run(tmp_path / "run", blobs([30, 20, 15, 15])[0], 50)
    found = discover(run, algorithm)
    found.save(run)
    summary = read_summary(run)
    count = len(found)
    assert len(summary["tree"]["merges"]) == count - 1
    nodes = [node for pair in summary["tree"]["merges"] for node in pair]
    assert sorted(nodes) == list(range(1, 2 * count - 1))
    for category in summary["categories"]:
        assert 0 <= category["stability"] <= 1
        assert category["nearest_known"]["name"] in "ab"
        assert set(category["odd"]) <= set(found.paths)
