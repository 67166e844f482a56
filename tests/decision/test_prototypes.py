"""Anchors: the target's surest images say where its classes lie."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.methods.toys import build
from tests.tasks import Task, assert_alike
from unida.decision import prototypes as anchors_module
from unida.decision.prototypes import FEWEST, Anchors
from unida.errors import UserError
from unida.model import load
from unida.pipeline import run_adaptation

CENTRES = F.normalize(torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]]))
"""Where classes 0 and 1 lie in the target, and what nobody named."""


@pytest.fixture
def few_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anchors on as few images as a test has."""
    monkeypatch.setattr(anchors_module, "FEWEST", 0.1)


def clouds(each: int = 20, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Unit rows around each centre, and which one."""
    of = torch.arange(3).repeat_interleave(each)
    return around(of, seed), of


def around(of: Tensor, seed: int = 0) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    return F.normalize(CENTRES[of] + 0.1 * torch.randn(len(of), 4, generator=draws))


def said(scores: Tensor, classes: Tensor, n_classes: int = 3) -> Tensor:
    return torch.cat([scores[:, None], F.one_hot(classes, n_classes).float()], 1)


def alone(x: Tensor) -> Tensor:
    return x


def found(rows: Tensor, classifier: Tensor) -> Anchors:
    anchors = Anchors(4, 3)
    anchors.fill(rows, classifier, [alone])
    return anchors


def sure_of_a_few(of: Tensor, each: int = 20) -> Tensor:
    """A classifier that is right on a few images of each class and guesses all the others."""
    place = torch.arange(len(of)) % each
    right = (place < 5) & (of < 2)
    guess = torch.where(place % 6 == 0, -0.05, 0.1)
    scores = torch.where(right, -1.0 - 0.01 * place, guess)
    return said(scores, torch.where(right, of, place % 2))


@pytest.mark.usefixtures("few_will_do")
def test_a_few_sure_images_are_enough() -> None:
    rows, of = clouds()
    anchors = found(rows, sure_of_a_few(of))
    answers = anchors.says(rows, sure_of_a_few(of))
    assert (answers[of < 2, 1:].argmax(1) == of[of < 2]).all()
    assert answers[of < 2, 0].max() < answers[of == 2, 0].min()
    likeness = F.cosine_similarity(anchors.directions[:2], CENTRES[:2])
    assert (likeness > 0.95).all()


@pytest.mark.usefixtures("few_will_do")
def test_a_class_without_sure_images_is_given_nothing() -> None:
    rows, of = clouds()
    classifier = sure_of_a_few(of)
    anchors = found(rows, classifier)
    assert anchors.there.tolist() == [True, True, False]
    assert anchors.says(rows, classifier)[:, 3].max() < 1e-4


@pytest.mark.usefixtures("few_will_do")
def test_as_many_are_unknown_as_the_classifier_says() -> None:
    rows, of = clouds()
    classifier = sure_of_a_few(of)
    for shift in (-0.5, 0.0, 0.14, 0.5):
        shifted = classifier - shift * F.one_hot(torch.zeros(1).long(), 4)
        answers = found(rows, shifted).says(rows, shifted)
        assert (answers[:, 0] < 0).sum() == (shifted[:, 0] < 0).sum(), shift


@pytest.mark.usefixtures("few_will_do")
def test_they_are_counted_after_all_have_been_heard() -> None:
    rows, of = clouds()
    classifier = sure_of_a_few(of)

    def flatter(x: Tensor) -> Tensor:
        return 0.7 * x + 0.3 * x.roll(7, 0)

    anchors = Anchors(4, 3)
    anchors.fill(rows, classifier, [alone, flatter])
    by_first = found(rows, classifier)
    assert torch.equal(anchors.directions, by_first.directions), "found by the first alone"
    answers = flatter(anchors.says(rows, classifier))
    assert (answers[:, 0] < 0).sum() == (classifier[:, 0] < 0).sum()
    assert anchors.shift != by_first.shift


@pytest.mark.usefixtures("few_will_do")
def test_probabilities_are_probabilities() -> None:
    rows, of = clouds()
    answers = found(rows, sure_of_a_few(of)).says(rows, sure_of_a_few(of))
    torch.testing.assert_close(answers[:, 1:].sum(1), torch.ones(len(rows)))
    assert (answers[:, 1:] >= 0).all()


@pytest.mark.usefixtures("few_will_do")
@pytest.mark.parametrize("filled", [False, True])
def test_the_classifier_has_the_word_if_it_accepts_nothing(filled: bool) -> None:
    rows, of = clouds()
    classifier = said(torch.ones(len(rows)), of)
    anchors = found(rows, classifier) if filled else Anchors(4, 3)
    assert torch.equal(anchors.says(rows, classifier), classifier)


@pytest.mark.parametrize(("images", "kept"), [(9, False), (10, True), (40, True)])
def test_a_common_class_is_kept_though_the_classifier_is_less_sure_of_it(
    images: int, kept: bool
) -> None:
    of = (torch.arange(80) < images).long()  # four classes, so an even share is 20
    anchors = Anchors(4, 4)
    anchors.fill(around(of), said(torch.where(of == 1, -1.0, -2.0), of, 4), [alone])
    assert anchors.there.tolist() == [True, kept, False, False]


@pytest.mark.parametrize("short_by", [0, 1])
def test_too_few_accepted_images_are_no_ground(short_by: int) -> None:
    rows, of = clouds(each=FEWEST)
    scores = torch.full((len(rows),), -1.0)
    scores[:short_by] = 1.0
    classifier = said(scores, of)
    assert bool(found(rows, classifier).there.any()) == (short_by == 0)


@pytest.mark.usefixtures("few_will_do")
def test_nothing_of_an_earlier_look_is_left() -> None:
    rows, of = clouds()
    again, (others, of_others) = found(rows, sure_of_a_few(of)), clouds(seed=1)
    again.fill(others, sure_of_a_few(of_others), [alone])
    fresh = found(others, sure_of_a_few(of_others))
    for name, tensor in fresh.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


@pytest.mark.parametrize("name", ["san", "ovanet"])
def test_not_without_neighbours(name: str) -> None:
    with pytest.raises(UserError, match="anchors is True; allowed: only with neighbours"):
        build(name, neighbours=0, anchors=True)


@pytest.mark.parametrize("anchors", [False, True])
def test_a_run_says_that_the_classifier_decides(
    digits: Task,
    out: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    anchors: bool,
) -> None:
    monkeypatch.setattr(anchors_module, "FEWEST", len(list(digits.target.rglob("*.png"))))
    settings = ("neighbours=3", f"anchors={anchors}".lower())
    run_adaptation(digits.config(out, method="san", steps=2, settings=settings))
    shown = capfd.readouterr().err
    assert ("Anchors: fewer than" in shown and "the classifier decides" in shown) == anchors


@pytest.mark.usefixtures("few_will_do")
@pytest.mark.parametrize("name", ["san", "ovanet"])
def test_a_model_keeps_its_anchors(
    digits: Task, out: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    run = digits.config(out, method=name, steps=30, settings=("neighbours=3", "anchors=true"))
    trained = run_adaptation(run)
    assert "Anchors:" not in capfd.readouterr().err
    assert trained.method.neighbours.anchors.decide
    pictures = sorted(digits.target.rglob("*.png"))[::10]
    assert_alike(load(out, "cpu").predict(pictures), trained.predict(pictures))
