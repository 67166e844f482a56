"""Novel categories in a bench: scored over all target images, kept in results, shown in a table."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tests.bench.benches import write_data
from tests.bench.test_tables import make
from tests.discovery.test_clustering import blobs
from unida.bench.discovery import clusters_of, score_discovery
from unida.bench.jobs import Job
from unida.bench.results import Result, from_json, read_results, to_json
from unida.bench.tables.discovery import discovery_tables
from unida.bench.worker import Places, work
from unida.cli.table import TableCommand
from unida.decision.rejection import Rule
from unida.discovery.clustering import Clustering
from unida.errors import UserError
from unida.evaluation.evaluate import compare
from unida.types import Scored

SCORES: dict[str, float | None] = {
    "all": 0.5, "old": 0.75, "new": 0.25, "nmi": 0.5, "ari": 0.3, "h3": 0.5, "count": 4, "low": 2,
    "high": 6, "true": 5, "error": 0.2, "covered": 1.0, "supported": 0.0, "rejected": 9,
    "in_none": 1, "kmeans_all": 0.4, "kmeans_old": None, "kmeans_new": 0.2, "kmeans_nmi": 0.1,
    "kmeans_ari": 0.1,
}  # fmt: skip


def test_known_classes_and_categories_are_different_clusters() -> None:
    rejected = np.array([False, True, True, True])
    empty = np.zeros((0, 2), np.float32)
    found = Clustering(np.array([1, 0, 2]), np.ones(3), empty, empty, 1, 3)
    clusters = clusters_of(np.array([2, 0, 0, 1]), 3, rejected, found)
    assert clusters.tolist() == [2, 4, -1, 5]


def test_a_run_that_separates_everything_scores_nearly_one() -> None:
    x, labels = blobs([30] * 7)
    known = labels < 4
    probs = np.eye(4)[np.where(known, labels, 0)]
    scored = Scored(probs, np.where(known, 0.0, 1.0), x)
    rules = {"share": Rule("share", 0.5, "")}
    found = compare(scored, labels.astype(np.str_), ["0", "1", "2", "3"], rules)
    scores = score_discovery(found, "share", ~known, x)
    numbers = {name: value for name, value in scores.items() if value is not None}
    assert (scores["count"], scores["true"], scores["error"]) == (3, 3, 0)
    assert scores["covered"] == scores["old"] == 1
    assert scores["rejected"] == 90
    assert min(numbers[name] for name in ("all", "new", "nmi", "ari", "h3")) > 0.9
    assert scores["kmeans_all"] == pytest.approx(1)


def test_without_unknown_images_the_scores_are_undefined() -> None:
    x, labels = blobs([10, 10])
    scored = Scored(np.eye(2)[labels], np.zeros(20), x)
    found = compare(scored, labels.astype(np.str_), ["0", "1"], {"own": Rule("own", 0.5, "")})
    scores = score_discovery(found, "own", np.zeros(20, bool), x[:, :0])
    assert (scores["all"], scores["new"], scores["error"], scores["true"]) == (1, None, None, 0)


def with_scores(**changes: float | None) -> Result:
    return dataclasses.replace(make(), discovery=SCORES | changes)


def test_the_table_has_means_and_counts(tmp_path: Path) -> None:
    results = [with_scores(), dataclasses.replace(with_scores(all=0.7, covered=0.0), seed=1)]
    (table,) = discovery_tables([*results, make(target="webcam")])
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["All"] == "60.0"
    assert (row["New"], row["k-means All (oracle)"], row["found / true"]) == (
        "25.0",
        "40.0",
        "0.80",
    )
    assert (row["error"], row["in interval"], row["runs"]) == ("20 %", "1 of 2", "2")
    with pytest.raises(UserError, match="--discover"):
        discovery_tables([make()])
    with pytest.raises(UserError, match="discover"):
        TableCommand(tmp_path, discover=True, universal=True).execute()


def test_scores_are_kept_in_results() -> None:
    result = with_scores()
    assert from_json(to_json(result), "here").discovery == SCORES
    assert make().discovery == {}


@pytest.mark.slow
def test_a_bench_finds_categories(tmp_path: Path) -> None:
    protocol = write_data(tmp_path)
    job = Job(
        str(protocol), "unda", "dark", "light", "source_only", 0,
        options={"steps": "2", "device": "cpu"}, discover=True,
    )  # fmt: skip
    assert work(job, Places(str(tmp_path / "out"), str(tmp_path / "data")))
    for result in read_results(tmp_path / "out"):
        assert result.discovery["true"] == result.unknown_classes
        assert result.discovery["count"] is not None
