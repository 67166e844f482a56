"""Scores of a finished run: the method alone, and refined."""

from pathlib import Path

import numpy as np
import pytest

from tests.tasks import Task
from unida.bench.jobs import Job
from unida.bench.scoring import score_run, training_seconds, true_names
from unida.pipeline import run
from unida.protocols.tasks import TaskFiles
from unida.result import RunResult


def task_of(digits: Task) -> TaskFiles:
    return TaskFiles(
        digits.source, digits.target, ("0", "1", "2", "3"), ("0", "1", "2"), 2, 64, 80, 32, 0
    )


@pytest.fixture(scope="module")
def finished(digits: Task, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return run(digits.config(tmp_path_factory.mktemp("scoring") / "run", steps=20, refine="knn"))


def test_a_refined_run_has_two_results(digits: Task, finished: RunResult) -> None:
    job = Job("digits", "unda", "mnist", "uci", "san", 0)
    (alone, first), (refined, second) = score_run(finished, job, task_of(digits))
    assert (alone.refine, refined.refine) == ("none", "knn")
    assert "refine" not in alone.options
    target = finished.target
    assert (first.unknown_score == target.classifier.unknown_score).all()
    assert (second.unknown_score == target.scored.unknown_score).all()
    assert alone.ranking["auroc"] != refined.ranking["auroc"]
    assert alone.images == refined.images == {"source": 64, "target": 80, "unknown": 32}
    assert refined.rules["own"].scores["h"] is not None
    for name, rule in finished.model.rules.items():
        found = refined.rules[name]
        assert (found.share, found.interval) == (rule.share, rule.interval)
    assert first.features.shape == (80, 50)
    assert (
        first.labels
        == [
            4 if Path(p).parent.name in "89" else int(Path(p).parent.name)
            for p in target.samples.paths
        ]
    ).all()


def test_a_run_without_refinement_has_one(digits: Task, out: Path) -> None:
    result = run(digits.config(out, method="ovanet", steps=4, refine="none"))
    scored = score_run(result, Job("digits", "unda", "mnist", "uci", "ovanet", 0), task_of(digits))
    assert [one.refine for one, _ in scored] == ["none"]
    assert scored[0][0].rules.keys() == result.model.rules.keys()


def test_true_classes_are_found_by_path(digits: Task) -> None:
    paths = sorted(digits.target.rglob("*.png"), reverse=True)
    names = true_names(paths, task_of(digits))
    np.testing.assert_array_equal(names, [path.parent.name for path in paths])


def test_training_time_counts_every_stretch_of_a_resumed_run() -> None:
    lines = [{"step": 10, "steps_per_second": 5.0}, {"step": 40, "steps_per_second": 10.0}]
    assert training_seconds([lines, lines]) == pytest.approx(2 * (2 + 3))
