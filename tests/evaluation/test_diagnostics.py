"""Every warning is provoked by facts, a few by runs; a good run has none."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tasks import Task, write_task
from unida.data.duplicates import duplicate_share
from unida.decision.rejection import Rule
from unida.errors import UserError
from unida.evaluation.diagnostics import (
    ABOUT,
    DATA_CHECKS,
    RUN_CHECKS,
    DataFacts,
    RunFacts,
    check_data,
    check_run,
)
from unida.pipeline import run_adaptation
from unida.training.run_folder import RunFolder

FELL_BACK = Rule("own", 0.0, "a note", fell_back="all target scores are equal")
GOOD_DATA = DataFacts(("cat", "dog"), np.array([40, 60]), 500, 0.0)
GOOD_RUN = RunFacts(
    classes=("cat", "dog", "bee", "ant"),
    counts=np.array([40, 60, 50, 50]),
    labels=np.array([0, 1, 2, 3, 4] * 20),
    losses=np.linspace(3, 1, 12),
    accuracy=0.9,
    rule=Rule("share", 0.0, "a note", 0.2, (0.1, 0.3)),
)


def data_warnings(**changes: Any) -> list[str]:
    return [warning.what for warning in check_data(dataclasses.replace(GOOD_DATA, **changes))]


def run_warnings(**changes: Any) -> list[str]:
    return [warning.what for warning in check_run(dataclasses.replace(GOOD_RUN, **changes))]


def read_diagnostics(out: Path) -> dict[str, Any]:
    return dict(json.loads(RunFolder(out).diagnostics.read_text()))


class TestFacts:
    def test_each_check_of_the_images_warns_at_its_limit(self) -> None:
        assert data_warnings() == []
        for changes, expected in (
            ({"counts": np.array([20, 29])}, "49 images in all."),
            ({"counts": np.array([4, 60])}, "64 images in all, and fewer than 5 of cat."),
            ({"counts": np.array([9, 200])}, "200 images of dog, 9 of cat."),
            ({"n_target": 49}, "49 images."),
            ({"duplicates": 0.3}, "30% of the target's files"),
        ):
            (what,) = data_warnings(**changes)
            assert expected in what

    def test_each_check_of_a_run_warns_at_its_limit(self) -> None:
        assert run_warnings() == []
        for changes, expected in (
            ({"labels": np.array([4] * 98 + [0, 1])}, "(98.0%)"),
            ({"labels": np.array([0, 1, 2, 3] * 50 + [4])}, "(0.5%)"),
            ({"labels": np.array([3] * 80 + [0, 4] * 10)}, "one class, ant"),
            ({"losses": np.linspace(1, 8, 12)}, "the loss grew"),
            ({"accuracy": 0.3}, "right on 30%"),
            (
                {"rule": FELL_BACK},
                "could not be fitted to the target: all target scores are equal.",
            ),
        ):
            (what,) = run_warnings(**changes)
            assert expected in what

    def test_what_falls_just_short_is_not_warned_of(self) -> None:
        for changes in (
            {"labels": np.array([4] * 97 + [0, 1, 2])},
            {"labels": np.array([3] * 60 + [0, 1, 2, 4] * 10)},
            {"losses": np.array([1.0, 9.0])},  # too few
            {"losses": np.linspace(-1, 8, 12)},  # some methods' losses are negative
            {"accuracy": np.nan},
            {"labels": np.array([3] * 80 + [0, 4] * 10), "counts": np.array([20, 20, 20, 200])},
        ):
            assert run_warnings(**changes) == [], changes

    def test_every_warning_has_advice(self) -> None:
        bad_data = DataFacts(("cat", "dog"), np.array([1, 30]), 3, 1.0)
        bad_run = dataclasses.replace(
            GOOD_RUN, labels=np.full(9, 4), losses=np.arange(1.0, 9), accuracy=0.2, rule=FELL_BACK
        )
        warnings = [*check_data(bad_data), *check_run(bad_run)]
        assert len(warnings) == len(DATA_CHECKS) + len(RUN_CHECKS) - 2
        assert all(warning.advice.endswith(".") for warning in warnings)

    def test_advice_names_rules_other_than_the_one_in_force(self) -> None:
        for labels, others in (
            (
                np.full(50, 4),
                {"mixture": ["none"], "none": ["mixture"], "share": ["mixture", "none"]},
            ),
            (np.arange(50) % 4, {"own": ["mixture"], "mixture": ["own"]}),
            (np.array([3] * 80 + [0, 4] * 10), {"own": ["none"], "share": ["own", "none"]}),
        ):
            for name, expected in others.items():
                changes = {"labels": labels, "rule": Rule(name, 0.0, "")}
                (warning,) = check_run(dataclasses.replace(GOOD_RUN, **changes))
                assert re.findall(r"--reject (\w+)", warning.advice) == expected


class TestDuplicates:
    def test_bytes_count_and_names_do_not(self, tmp_path: Path) -> None:
        a, b = tmp_path / "a", tmp_path / "b"
        for folder, contents in (
            (a, (b"one", b"two", b"six")),
            (b, (b"two", b"ten", b"", b"more")),
        ):
            folder.mkdir()
            for i, content in enumerate(contents):
                (folder / f"{i}.png").write_bytes(content)
        first, second = (tuple(sorted(folder.iterdir())) for folder in (a, b))
        assert duplicate_share(first, second) == 1 / 4
        assert duplicate_share(first, first) == 1
        assert duplicate_share(first, (tmp_path / "lost.png",)) == duplicate_share(first, ()) == 0

    def test_of_many_files_a_sample_is_compared(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = [tmp_path / f"{i}.png" for i in range(20)]
        for file in files:
            file.write_bytes(file.name.encode())
        monkeypatch.setattr("unida.data.duplicates.MAX_TARGET_FILES", 5)
        monkeypatch.setattr("unida.data.duplicates.MAX_SOURCE_FILES", 20)
        assert duplicate_share(tuple(files), tuple(files)) == 1


class TestRuns:
    def test_a_good_run_has_estimates_and_no_warnings(self, tmp_path: Path) -> None:
        easy = write_task(tmp_path / "easy", (0, 1, 2), (0, 1, 2, 8), 60, shift=False)
        out = tmp_path / "run"
        run_adaptation(easy.config(out, steps=30, holdout=0.3, method="source_only"))
        content = read_diagnostics(out)
        assert content["warnings"] == []
        assert content["estimates"].keys() == content["about"].keys() == ABOUT.keys()
        assert all(np.isfinite(value) for value in content["estimates"].values())
        assert content["estimates"]["source_accuracy"] > 0.7

    def test_a_bad_run_warns_once_of_everything_in_order(
        self, tmp_path: Path, out: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        task = write_task(tmp_path, (0, 1), (0,), 45)
        for file in sorted((task.source / "1").iterdir())[2:]:
            file.unlink()
        run_adaptation(
            Task(task.source, task.source).config(
                out, steps=2, lr=1e-9, reject="threshold:-1e9", method="source_only"
            )
        )
        expected = [
            "The source is small: 47 images in all, and fewer than 5 of 1.",
            "The classes are very unequal: 45 images of 0, 2 of 1.",
            "The target is small: 47 images.",
            "About 100% of the target's files are in the source too, byte by byte.",
            "Nearly every target image was called unknown (100.0%).",
        ]
        whats = [warning["what"] for warning in read_diagnostics(out)["warnings"]]
        assert [what for what in whats if what in expected] == expected
        assert [caplog.text.count(what) for what in expected] == [1] * len(expected)

    def test_a_rule_that_could_not_be_fitted_is_named_with_the_reason(
        self, tmp_path: Path, out: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        small = write_task(tmp_path, (0, 1), (0, 1, 8), 5)
        model = run_adaptation(small.config(out, steps=2, method="source_only"))
        reason = "15 images are too few to estimate the share of unknown ones"
        assert (model.rule().name, model.rule().fell_back) == ("own", reason)
        whats = [warning["what"] for warning in read_diagnostics(out)["warnings"]]
        (what,) = [what for what in whats if reason in what]
        assert what.endswith("The method's own rule is in force.")
        assert caplog.text.count(what) == 1

    def test_a_loss_that_is_not_finite_stops_training(self, digits: Task, out: Path) -> None:
        with pytest.raises(UserError, match=r"Training diverged at step .* smaller --lr"):
            run_adaptation(digits.config(out, lr=1e30, method="source_only"))
