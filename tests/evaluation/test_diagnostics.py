"""Every warning is provoked, and a run that is well warns of nothing."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tasks import Task, write_task
from unida.data.duplicates import duplicate_share
from unida.errors import UserError
from unida.evaluation.diagnostics import ABOUT, Data, Outcome, diagnose
from unida.pipeline import run_adaptation
from unida.training.run_folder import RunFolder

GOOD_DATA = Data(("cat", "dog"), np.array([40, 60]), 500, 0.0)
GOOD_OUTCOME = Outcome(
    classes=("cat", "dog", "bee", "ant"),
    counts=np.array([40, 60, 50, 50]),
    verdicts=np.array([0, 1, 2, 3, 4] * 20),
    losses=np.linspace(3, 1, 12),
    accuracy=0.9,
)


def said(facts: Data | Outcome, **changes: Any) -> list[str]:
    return [concern.what for concern in diagnose(dataclasses.replace(facts, **changes))]


def read_quality(out: Path) -> dict[str, Any]:
    return dict(json.loads(RunFolder(out).diagnostics.read_text()))


def warned(out: Path) -> str:
    """What the warnings of a run say."""
    return " ".join(warning["what"] for warning in read_quality(out)["warnings"])


class TestFacts:
    """At the limits, by numbers."""

    def test_what_is_well_is_not_warned_of(self) -> None:
        assert said(GOOD_DATA) == said(GOOD_OUTCOME) == []

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({"counts": np.array([20, 29])}, "The source is small: 49 images in all."),
            ({"counts": np.array([4, 60])}, "64 images in all, and fewer than 5 of cat."),
            ({"counts": np.array([9, 200])}, "very unequal: 200 images of dog, 9 of cat."),
            ({"n_target": 49}, "The target is small: 49 images."),
            ({"twins": 0.3}, "About 30% of the target's files are in the source too"),
        ],
    )
    def test_each_warning_of_the_images(self, changes: dict[str, Any], expected: str) -> None:
        (what,) = said(GOOD_DATA, **changes)
        assert expected in what

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({"verdicts": np.array([4] * 98 + [0, 1])}, "every target image was called unknown"),
            ({"verdicts": np.array([0, 1, 2, 3] * 50 + [4])}, "Hardly any target image was called"),
            ({"verdicts": np.array([3] * 80 + [0, 4] * 10)}, "given to one class, ant, which is"),
            ({"losses": np.linspace(1, 8, 12)}, "Training diverged: the loss grew from"),
            ({"accuracy": 0.3}, "right on 30% of the source images, and guessing would be right"),
        ],
    )
    def test_each_warning_of_the_outcome(self, changes: dict[str, Any], expected: str) -> None:
        (what,) = said(GOOD_OUTCOME, **changes)
        assert expected in what

    @pytest.mark.parametrize(
        "changes",
        [
            {"verdicts": np.array([4] * 97 + [0, 1, 2])},
            {"verdicts": np.array([3] * 60 + [0, 1, 2, 4] * 10)},
            {"losses": np.array([1.0, 9.0])},  # too few to say
            {"losses": np.linspace(-1, 8, 12)},  # some methods' losses go below zero
            {"accuracy": np.nan},
        ],
    )
    def test_what_falls_just_short_is_not(self, changes: dict[str, Any]) -> None:
        assert said(GOOD_OUTCOME, **changes) == []

    def test_a_class_may_be_common_if_it_is_in_the_source(self) -> None:
        verdicts, counts = np.array([3] * 80 + [0, 4] * 10), np.array([20, 20, 20, 200])
        assert said(GOOD_OUTCOME, verdicts=verdicts, counts=counts) == []

    def test_every_warning_says_what_to_do(self) -> None:
        bad_data = Data(("cat", "dog"), np.array([1, 30]), 3, 1.0)
        bad = dataclasses.replace(
            GOOD_OUTCOME, verdicts=np.full(9, 4), losses=np.arange(1.0, 9), accuracy=0.2
        )
        concerns = [*diagnose(bad_data), *diagnose(bad)]
        assert len(concerns) == 7
        for concern in concerns:
            assert concern.what.endswith(".")
            assert concern.advice.endswith(".")


class TestTwins:
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

    def test_a_sample_of_many_is_looked_at(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = [tmp_path / f"{i}.png" for i in range(20)]
        for file in files:
            file.write_bytes(file.name.encode())
        monkeypatch.setattr("unida.data.duplicates.MAX_TARGET_FILES", 5)
        monkeypatch.setattr("unida.data.duplicates.MAX_SOURCE_FILES", 20)
        assert duplicate_share(tuple(files), tuple(files)) == 1


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return write_task(tmp_path_factory.mktemp("quality"), (0, 1, 2), (0, 1, 2, 8), 60)


@pytest.fixture(scope="module")
def well(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learns, on a target that looks like the source."""
    root = tmp_path_factory.mktemp("well")
    easy = write_task(root / "easy", (0, 1, 2), (0, 1, 2, 8), 60, shift=False)
    run_adaptation(easy.config(root / "run", steps=30, holdout=0.3, method="source_only"))
    return root / "run"


class TestARunThatIsWell:
    def test_it_warns_of_nothing(self, well: Path) -> None:
        assert read_quality(well)["warnings"] == []

    def test_its_estimates_are_numbers_and_explained(self, well: Path) -> None:
        content = read_quality(well)
        assert content["estimates"].keys() == content["about"].keys() == ABOUT.keys()
        assert all(np.isfinite(value) for value in content["estimates"].values())
        assert content["estimates"]["source_accuracy"] > 0.7

    def test_it_says_them_on_a_few_lines(
        self, task: Task, out: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        run_adaptation(task.config(out, steps=2, holdout=0.3))
        shown = capfd.readouterr().err.splitlines()
        assert sum(line.startswith("Without labels: ") for line in shown) == 1
        assert sum(line.startswith("Confidence: calibrated on 54") for line in shown) == 1


class TestARunThatIsNot:
    """Each warning from end to end, through what `unida adapt` calls."""

    def test_everything_rejected(self, task: Task, out: Path) -> None:
        run_adaptation(task.config(out, steps=2, reject="threshold:-1e9"))
        assert "Nearly every target image was called unknown (100.0%)" in warned(out)

    def test_nothing_rejected(self, task: Task, out: Path) -> None:
        run_adaptation(task.config(out, steps=2, reject="threshold:1e9"))
        assert "Hardly any target image was called unknown (0.0%)" in warned(out)

    def test_one_class_swallows_the_target(self, tmp_path: Path, out: Path) -> None:
        zeros = write_task(tmp_path, range(8), (0,), 60)
        run_adaptation(zeros.config(out, steps=40, reject="threshold:1e9", method="source_only"))
        assert "of the accepted target images were given to one class, 0, which is" in warned(out)

    def test_training_that_ends_in_no_number_stops(self, task: Task, out: Path) -> None:
        with pytest.raises(UserError, match=r"Training diverged at step .* smaller --lr"):
            run_adaptation(task.config(out, lr=1e30, method="source_only"))

    def test_a_loss_that_grew(self, task: Task, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from unida.methods.source_only import SourceOnly

        plain = SourceOnly.losses

        def growing(self: SourceOnly, batch: Any) -> dict[str, Any]:
            return {"ce": plain(self, batch)["ce"] * 1.5**batch.step}

        monkeypatch.setattr(SourceOnly, "losses", growing)
        run_adaptation(task.config(out, method="source_only", lr=1e-9))
        assert "Training diverged: the loss grew from" in warned(out)

    def test_nothing_was_learned(self, task: Task, out: Path) -> None:
        run_adaptation(task.config(out, steps=2, lr=1e-9, method="source_only"))
        assert "The model hardly tells the source classes apart" in warned(out)

    def test_the_same_files(self, task: Task, out: Path, capfd: pytest.CaptureFixture[str]) -> None:
        run_adaptation(Task(task.source, task.source).config(out, steps=2))
        assert "About 100% of the target's files are in the source too" in warned(out)
        shown = capfd.readouterr().err
        # Before time is spent on training, and not a second time after it.
        assert shown.count("files are in the source too") == 1
        assert shown.index("files are in the source too") < shown.index("step 2/2")

    def test_the_source_is_too_small(self, task: Task, tmp_path: Path, out: Path) -> None:
        few = write_task(tmp_path / "few", (0, 1), (0, 8), 4)
        run_adaptation(few.config(out, steps=2, batch=4))
        assert "The source is small: 8 images in all, and fewer than 5 of 0, 1." in warned(out)
        assert "The target is small: 8 images." in warned(out)

    def test_classes_are_unequal(self, task: Task, tmp_path: Path, out: Path) -> None:
        uneven = write_task(tmp_path / "uneven", (0, 1), (0, 8), 120)
        for file in sorted((uneven.source / "1").iterdir())[5:]:
            file.unlink()
        run_adaptation(uneven.config(out, steps=2))
        assert "The classes are very unequal: 120 images of 0, 5 of 1." in warned(out)
