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
from unida.adaptation import run_adaptation
from unida.errors import UserError
from unida.model import load
from unida.models import neighbours as module
from unida.models.neighbours import Neighbours, in_a_row
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


def asked(target: Outputs, k: int) -> Neighbours:
    """Neighbours that know a target."""
    heard = Neighbours(len(target.probs), target.features.shape[1], 3, k)
    heard.fill(in_a_row(rows(target, heard.index)))
    return heard


def in_loops(one: Outputs, target: Outputs, k: int) -> list[list[float]]:
    """Score and probabilities, image by image."""
    centre = target.features.mean(0)
    unit = F.normalize(target.features - centre).double()

    def nearest(x: Tensor) -> list[tuple[float, int]]:
        d2 = [float((x - other).square().sum()) for other in unit]
        return sorted((d, j) for j, d in enumerate(d2) if d > 1e-4)[:k]

    scale = sum(d for x in unit for d, _ in nearest(x)) / (k * len(unit))
    said = torch.cat([target.unknown_score[:, None], target.probs], 1).double()
    answers = []
    for x, score, probs in zip(one.features, one.unknown_score, one.probs, strict=True):
        total, weight = torch.cat([score[None], probs]).double(), 1.0
        for d, j in nearest(F.normalize(x - centre, dim=0).double()):
            total, weight = (
                total + math.exp(-d / scale) * said[j],
                weight + math.exp(-d / scale),
            )
        answers.append((total / weight).tolist())
    return answers


@pytest.mark.parametrize("k", [1, 4, 29])
@pytest.mark.parametrize("of_target", [True, False])
def test_it_is_the_mean_by_likeness(k: int, of_target: bool) -> None:
    target = outputs(30)
    one = rows(target, torch.tensor([3, 17])) if of_target else outputs(4, seed=1)
    found = asked(target, k).heard(one)
    together = torch.cat([found.unknown_score[:, None], found.probs], 1)
    torch.testing.assert_close(together, torch.tensor(in_loops(one, target, k)))
    torch.testing.assert_close(found.probs.sum(1), torch.ones(len(one.probs)))
    assert torch.equal(found.features, one.features)


def test_a_strange_verdict_is_outvoted_by_its_likes() -> None:
    """Two clouds; one image of the first speaks as if it were of the second."""
    near = torch.cat([torch.tensor([[5.0, 0]]), torch.tensor([[0, 5.0]])]).repeat_interleave(10, 0)
    features = near + 0.1 * torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
    score = torch.tensor([-1.0] * 10 + [1.0] * 10)
    score[4] = 0.8
    target = Outputs(torch.full((20, 3), 1 / 3), score, features)
    found = asked(target, 6).heard(target).unknown_score
    assert (found[:10] < 0).all()
    assert (found[10:] > 0).all()


def test_until_the_target_is_known_an_image_speaks_for_itself() -> None:
    one = outputs(6)
    found = Neighbours(30, 5, 3, 4).heard(one)
    assert torch.equal(found.unknown_score, one.unknown_score)
    assert torch.equal(found.probs, one.probs)


def test_with_no_neighbours_nothing_is_stored_and_nothing_changes() -> None:
    nobody, one = Neighbours(30, 5, 3, 0), outputs(6)
    assert not nobody.state_dict()
    assert nobody.heard(one) is one


def test_a_target_of_one_and_the_same_image_is_no_trouble() -> None:
    target = Outputs(torch.full((9, 3), 1 / 3), torch.arange(9.0), torch.ones(9, 5))
    found = asked(target, 3).heard(target)
    assert found.unknown_score.isfinite().all()
    assert found.probs.isfinite().all()


def test_of_a_large_target_a_sample_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 20)
    target = outputs(50)
    heard = asked(target, 4)
    assert heard.rows.shape == (20, 5)
    assert len(set(heard.index.tolist())) == 20
    seen = rows(target, heard.index)
    together = torch.cat([heard.said[:, :1], heard.said[:, 1:]], 1)
    assert torch.equal(together, torch.cat([seen.unknown_score[:, None], seen.probs], 1))
    new = outputs(3, seed=2)
    expected = torch.tensor(in_loops(new, seen, 4))
    torch.testing.assert_close(heard.heard(new).probs, expected[:, 1:])


@pytest.mark.parametrize("name", ["san", "ovanet"])
def test_as_many_as_there_are_others(name: str) -> None:
    assert build(name, neighbours=23).neighbours.k == 23
    with pytest.raises(UserError, match="neighbours is 24; allowed: at most 23"):
        build(name, neighbours=24)
    usual = {"san": 6, "ovanet": 0}
    assert build(name).neighbours.k == usual[name]
    assert SIZES.n_target == 24


@pytest.mark.parametrize("name", ["san", "ovanet"])
def test_a_run_knows_its_target_and_tells_its_model(digits: Task, out: Path, name: str) -> None:
    run = digits.config(out, method=name, steps=4, settings=("neighbours=3",))
    trained = run_adaptation(run)
    memory = trained.method.neighbours
    assert memory.unit > 0
    pictures = sorted(digits.target.rglob("*.png"))[::10]
    stored = load(out, "cpu")
    assert_alike(stored.predict(pictures), trained.predict(pictures))
    alone = [p.unknown_score for p in stored.predict(pictures)]
    memory_of_stored = stored.method.neighbours
    memory_of_stored.unit.zero_()  # as if nobody had been asked
    assert alone != [p.unknown_score for p in stored.predict(pictures)]


def test_a_look_in_between_leaves_no_trace(digits: Task, tmp_path: Path) -> None:
    """Checkpoints that are scored ask the target too; training goes on as if they had not."""
    asked_at = []

    def watch(step: int, method: Any) -> None:
        asked_at.append((step, float(method.neighbours.unit)))

    runs = []
    for name, watcher in (("watched", watch), ("alone", None)):
        run = digits.config(tmp_path / name, method="san", steps=6, checkpoint_every=2)
        runs.append(run_adaptation(run, watch=watcher).method.state_dict())
    assert [step for step, _ in asked_at] == [2, 4, 6]
    assert all(unit > 0 for _, unit in asked_at)
    for name, tensor in runs[0].items():
        assert torch.equal(tensor, runs[1][name]), name
