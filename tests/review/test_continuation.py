"""What the next run learns from a reviewed one, and which options it inherits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unida.cli.adapt import Adapt
from unida.config import RunConfig
from unida.discovery.categories import LabelledImage
from unida.errors import UserError
from unida.methods.ovanet import OVANetConfig
from unida.methods.presets import configure
from unida.review.continuation import (
    ReviewedRun,
    all_named,
    drop_foreign_weights,
    extend_source,
    next_config,
)
from unida.review.corrections import Corrections
from unida.review.groups import edited_groups
from unida.training.run_folder import RunFolder


class TestNextConfig:
    """The options of the next run, without training."""

    def inherited(self, out: Path, **options: Any) -> RunConfig:
        settings = {"beta": 0.7}
        config = configure(settings=settings, out="old", backbone="resnet18", **options)
        RunFolder(out).begin(config)
        return next_config(out)

    def test_they_are_those_of_the_run_but_for_place_and_weights(self, out: Path) -> None:
        inherited = self.inherited(out, steps=7, weights="old.pt")
        assert (inherited.output.out, inherited.optim.steps) == ("", 7)
        assert inherited.settings.beta == 0.7
        assert inherited.model.weights == str(out / "model.safetensors")
        assert drop_foreign_weights(inherited, inherited) == inherited

    def test_a_frozen_backbone_starts_as_it_did(self, out: Path) -> None:
        assert self.inherited(out, frozen=True, weights="old.pt").model.weights == "old.pt"

    def test_weights_of_another_backbone_are_dropped(self, out: Path) -> None:
        inherited = self.inherited(out)
        other = inherited.replace(backbone="resnet50")
        assert drop_foreign_weights(other, inherited).model.weights is None
        own = other.replace(weights="own.pt")
        assert drop_foreign_weights(own, inherited) == own

    def test_settings_of_another_method_are_dropped(self, out: Path) -> None:
        inherited = self.inherited(out)
        other = Adapt.parse_beside("adapt", ["--method", "ovanet"], inherited).config()
        assert other == inherited.replace(method="ovanet", settings=OVANetConfig())
        words = "--method ovanet --set lam=1"
        own = Adapt.parse_beside("adapt", words.split(), inherited).config()
        assert own.settings == OVANetConfig(lam=1.0)


class TestExtendSource:
    """The next source, without training."""

    OLD = {"/s/a.png": "cat", "/s/b.png": "caf\u0065\u0301"}  # noqa: RUF012 - only read
    CATEGORIZED = (
        LabelledImage("/t/1.png", "1", 0.9),
        LabelledImage("/t/2.png", "1", 0.3),
        LabelledImage("/t/3.png", "2", 0.9),
        LabelledImage("/s/a.png", "2", 0.9),
    )

    @pytest.mark.parametrize(
        ("names", "named"), [({}, False), ({"1": "x"}, False), ({"1": "x", "2": "y"}, True)]
    )
    def test_it_is_known_whether_all_categories_are_named(
        self, names: dict[str, str], named: bool
    ) -> None:
        corrections = Corrections(names, {"/t/1.png": "cat"})
        assert all_named(ReviewedRun(Path("run"), corrections, self.CATEGORIZED)) is named
        assert not all_named(ReviewedRun(Path("run"), corrections, ()))

    def after(self, names: dict[str, str], labels: dict[str, str]) -> dict[str, str]:
        new = extend_source(
            self.OLD, ReviewedRun(Path("run"), Corrections(names, labels), self.CATEGORIZED), 0.5
        )
        return {path: label for path, label in new.items() if self.OLD.get(path) != label}

    def test_two_categories_of_one_name_are_one_class(self) -> None:
        added = self.after({"1": "fox", "2": "fox"}, {})
        assert added == {"/t/1.png": "fox", "/t/3.png": "fox"}  # /s/a.png has a label already

    def test_a_known_name_adds_to_that_class_however_it_is_encoded(self) -> None:
        assert self.after({"1": "caf\u00e9"}, {}) == {"/t/1.png": "caf\u0065\u0301"}

    def test_a_corrected_label_wins_over_everything(self) -> None:
        labels = {"/t/1.png": "dog", "/t/2.png": "cat", "/s/a.png": "dog"}
        assert self.after({"1": "fox"}, labels) == labels

    def test_unknown_takes_an_image_out(self) -> None:
        assert self.after({"1": "fox", "2": "elk"}, {"/t/1.png": "unknown"}) == {"/t/3.png": "elk"}

    def test_confident_predictions_are_added_unless_they_are_corrected(self) -> None:
        accepted = (
            LabelledImage("/t/5.png", "cat", 0.95),
            LabelledImage("/t/6.png", "cat", 0.5),
            LabelledImage("/t/7.png", "cat", 0.99),
            LabelledImage("/t/8.png", "cat", 0.99),
        )
        labels = {"/t/7.png": "unknown", "/t/8.png": "dog"}
        reviewed = ReviewedRun(
            Path("run"), Corrections({"1": "fox"}, labels), self.CATEGORIZED, accepted
        )
        added = extend_source(self.OLD, reviewed, 0.5, trust=0.9).items() - self.OLD.items()
        assert dict(added) == {"/t/1.png": "fox", "/t/5.png": "cat", "/t/8.png": "dog"}

    def test_no_class_is_lost(self) -> None:
        """Whatever is named, moved and corrected, the images of the old source stay."""
        rng = np.random.default_rng(0)
        old = {f"/s/{i}.png": f"class {i % 5}" for i in range(20)}
        target, words = [f"/t/{i}.png" for i in range(40)], ["class 1", "fox", "elk", "unknown"]
        for _ in range(50):
            draws = iter(rng.permutation(target))
            found = tuple(
                LabelledImage(next(draws), str(k), float(c))
                for k, c in zip(rng.integers(1, 4, 20), rng.random(20), strict=True)
            )
            accepted = tuple(LabelledImage(next(draws), "class 0", 0.95) for _ in range(10))
            labels = {str(p): str(rng.choice(words)) for p in rng.choice(target, 8, replace=False)}
            moves = {str(p): str(rng.integers(0, 4)) for p in rng.choice(target, 5, replace=False)}
            groups = edited_groups(found, {"3": "1"}, moves)
            corrections = Corrections({"1": "fox", "2": "class 4"}, labels)
            reviewed = ReviewedRun(Path("run"), corrections, groups, accepted)
            new = extend_source(old, reviewed, 0.5, trust=0.9)
            assert old.items() <= new.items()

    def test_corrections_that_leave_a_class_without_images_are_refused(self) -> None:
        with pytest.raises(UserError, match="No image of class 'cat' would be left"):
            self.after({"1": "fox"}, {"/s/a.png": "unknown"})

    def test_names_that_differ_in_case_are_refused(self) -> None:
        for names in ({"1": "Cat"}, {"1": "fox", "2": "Fox"}):
            with pytest.raises(UserError, match="differ only in case"):
                self.after(names, {})

    def test_names_that_look_alike_are_refused(self) -> None:
        with pytest.raises(UserError, match=r"look alike \('cat', 'c\\u200bat'\)"):
            self.after({"1": "c\u200bat"}, {})
