"""Neighbours: a verdict is heard together with those on the images most like it."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.methods.toys import SIZES, build
from tests.tasks import Task, assert_alike
from unida.decision import knn as module
from unida.decision.knn import Neighbours
from unida.errors import UserError
from unida.model import load
from unida.pipeline import run_adaptation
from unida.types import Outputs


def outputs(n: int, seed: int = 0, width: int = 5) -> Outputs:
    draws = torch.Generator().manual_seed(seed)
    return Outputs(
        torch.rand(n, 3, generator=draws).softmax(1),
        torch.randn(n, generator=draws),
        torch.randn(n, width, generator=draws),
    )


def rows(some: Outputs, index: Tensor) -> Outputs:
    return Outputs(some.probs[index], some.unknown_score[index], some.features[index])


def features_of(n: int, seed: int = 0) -> Tensor:
    """What a backbone would make of the images."""
    return torch.randn(n, 7, generator=torch.Generator().manual_seed(100 + seed))


def asked(target: Outputs, k: int, y: Tensor | None = None) -> Neighbours:
    """Neighbours that know a target, by y as well if it is there."""
    widths = (target.features.shape[1],) if y is None else (target.features.shape[1], y.shape[1])
    heard = Neighbours(len(target.probs), widths, 3, k)
    index = heard.index
    y = target.features if y is None else y
    heard.fill(heard.in_a_row(rows(target, index), y[index]))
    return heard


def said(some: Outputs) -> Tensor:
    return torch.cat([some.unknown_score[:, None], some.probs], 1)


def in_loops(one: Outputs, target: Outputs, k: int) -> list[list[float]]:
    """Score and probabilities, image by image."""
    centre = target.features.mean(0)
    unit = F.normalize(target.features - centre).double()

    def nearest(x: Tensor) -> list[tuple[float, int]]:
        d2 = [float((x - other).square().sum()) for other in unit]
        return sorted((d, j) for j, d in enumerate(d2) if d > 1e-4)[:k]

    scale = sum(d for x in unit for d, _ in nearest(x)) / (k * len(unit))
    of_target = said(target).double()
    answers = []
    for x, score, probs in zip(one.features, one.unknown_score, one.probs, strict=True):
        total, weight = torch.cat([score[None], probs]).double(), 1.0
        for d, j in nearest(F.normalize(x - centre, dim=0).double()):
            total, weight = (
                total + math.exp(-d / scale) * of_target[j],
                weight + math.exp(-d / scale),
            )
        answers.append((total / weight).tolist())
    return answers


@pytest.mark.parametrize("k", [1, 4, 29])
@pytest.mark.parametrize("of_target", [True, False])
def test_it_is_the_mean_by_likeness(k: int, of_target: bool) -> None:
    target = outputs(30)
    one = rows(target, torch.tensor([3, 17])) if of_target else outputs(4, seed=1)
    found = asked(target, k).heard(one, one.features)
    torch.testing.assert_close(said(found), torch.tensor(in_loops(one, target, k)))
    torch.testing.assert_close(found.probs.sum(1), torch.ones(len(one.probs)))
    assert torch.equal(found.features, one.features)


@pytest.mark.parametrize("of_target", [True, False])
def test_then_the_nearest_by_y_are_heard_of_what_all_have_heard(of_target: bool) -> None:
    """The mean by likeness twice: by z of what was said, by y of what came out of that."""
    target, y = outputs(30), features_of(30)
    some = torch.tensor([3, 17])
    one = rows(target, some) if of_target else outputs(2, seed=1)
    y_of_one = y[some] if of_target else features_of(2, seed=1)

    def by_y(heard: list[list[float]], features: Tensor) -> Outputs:
        numbers = torch.tensor(heard)
        return Outputs(numbers[:, 1:], numbers[:, 0], features)

    first = by_y(in_loops(target, target, 4), y)
    expected = in_loops(by_y(in_loops(one, target, 4), y_of_one), first, 4)
    found = asked(target, 4, y).heard(one, y_of_one)
    torch.testing.assert_close(said(found), torch.tensor(expected))
    assert torch.equal(found.features, one.features), "z, whatever neighbours are found by"


def test_a_target_too_small_for_anchors_is_too_small_for_a_second_circle() -> None:
    target, y = outputs(30), features_of(30)
    heard = Neighbours(30, (5, 7), 3, 4, anchored=True)
    heard.fill(heard.in_a_row(target, y))
    assert not heard.anchors.decide
    found = heard.heard(target, y)
    torch.testing.assert_close(said(found), said(asked(target, 4).heard(target, y)))


def test_a_strange_verdict_is_outvoted_by_its_likes() -> None:
    """Two clouds; one image of the first speaks as if it were of the second."""
    near = torch.cat([torch.tensor([[5.0, 0]]), torch.tensor([[0, 5.0]])]).repeat_interleave(10, 0)
    features = near + 0.1 * torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
    score = torch.tensor([-1.0] * 10 + [1.0] * 10)
    score[4] = 0.8
    target = Outputs(torch.full((20, 3), 1 / 3), score, features)
    found = asked(target, 6).heard(target, target.features).unknown_score
    assert (found[:10] < 0).all()
    assert (found[10:] > 0).all()


def test_until_the_target_is_known_an_image_speaks_for_itself() -> None:
    one = outputs(6)
    found = Neighbours(30, (5, 7), 3, 4).heard(one, features_of(6))
    assert torch.equal(found.unknown_score, one.unknown_score)
    assert torch.equal(found.probs, one.probs)


def test_with_no_neighbours_nothing_is_stored_and_nothing_changes() -> None:
    nobody, one = Neighbours(30, (5, 7), 3, 0), outputs(6)
    assert not nobody.state_dict()
    assert nobody.heard(one, features_of(6)) is one


def test_a_target_of_one_and_the_same_image_is_no_trouble() -> None:
    target = Outputs(torch.full((9, 3), 1 / 3), torch.arange(9.0), torch.ones(9, 5))
    found = asked(target, 3, torch.ones(9, 7)).heard(target, torch.ones(9, 7))
    assert found.unknown_score.isfinite().all()
    assert found.probs.isfinite().all()


def test_of_a_large_target_a_sample_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 20)
    target = outputs(50)
    heard, circle = asked(target, 4), asked(target, 4).circles[0]
    assert circle.rows.shape == (20, 5)
    assert len(set(heard.index.tolist())) == 20
    seen = rows(target, heard.index)
    assert torch.equal(circle.said, said(seen))
    new = outputs(3, seed=2)
    expected = torch.tensor(in_loops(new, seen, 4))
    torch.testing.assert_close(heard.heard(new, new.features).probs, expected[:, 1:])


@pytest.mark.parametrize("name", ["san", "ovanet"])
def test_as_many_as_there_are_others(name: str) -> None:
    assert build(name, neighbours=23).neighbours.k == 23
    with pytest.raises(UserError, match="neighbours is 24; allowed: at most 23"):
        build(name, neighbours=24)
    usual = {"san": 6, "ovanet": 0}
    assert build(name).neighbours.k == usual[name]
    assert SIZES.n_target == 24


@pytest.mark.parametrize(
    ("name", "more", "circles"),
    [("san", (), 1), ("san", ("nearest_by=z_then_y",), 2), ("ovanet", (), 1)],
)
def test_a_run_knows_its_target_and_tells_its_model(
    digits: Task, out: Path, name: str, more: tuple[str, ...], circles: int
) -> None:
    run = digits.config(out, method=name, steps=4, settings=("neighbours=3", *more))
    trained = run_adaptation(run)
    assert [bool(circle.unit > 0) for circle in trained.method.neighbours.circles] == [
        True
    ] * circles
    pictures = sorted(digits.target.rglob("*.png"))[::10]
    stored = load(out, "cpu")
    assert_alike(stored.predict(pictures), trained.predict(pictures))
    alone = [p.unknown_score for p in stored.predict(pictures)]
    for circle in stored.method.neighbours.circles:
        circle.unit.zero_()  # as if nobody had been asked
    assert alone != [p.unknown_score for p in stored.predict(pictures)]


def test_a_look_in_between_leaves_no_trace(digits: Task, tmp_path: Path) -> None:
    """Checkpoints that are scored ask the target too; training goes on as if they had not."""
    asked_at = []

    def watch(step: int, method: Any) -> None:
        asked_at.append((step, float(method.neighbours.circles[0].unit)))

    runs = []
    for name, watcher in (("watched", watch), ("alone", None)):
        run = digits.config(tmp_path / name, method="san", steps=6, checkpoint_every=2)
        runs.append(run_adaptation(run, watch=watcher).method.state_dict())
    assert [step for step, _ in asked_at] == [2, 4, 6]
    assert all(unit > 0 for _, unit in asked_at)
    for name, tensor in runs[0].items():
        assert torch.equal(tensor, runs[1][name]), name
