"""The multi-sample contrast: docs/methods/tnt.md, a slow copy, empty cases."""

import math
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.losses.sizes import Largest
from unida.losses import multi_sample_contrast
from unida.losses.multi_sample import Candidates
from unida.ops import chunked
from unida.ops.knn import empty_rows, memory_pairs

FORMS = ("log_of_sum", "mean_of_logs")


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


SOURCE = F.normalize(tensor([[1.0, 0], [0.9, 0.2], [0, 1]]))


TARGET = F.normalize(tensor([[1.0, 0.1], [0.1, 1], [-1, 0.2]]))


POINTS = torch.cat([SOURCE, TARGET])


S1, T0, T1 = 1, 3, 4


def unit(seed: int, n: int, d: int = 3) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(n, d, generator=g, dtype=torch.float64))


def contrast(anchor: int, positives: list[int], form: str, tau: float = 0.1) -> float:
    """The loss of one of the six points, all others being candidates."""
    near, itself = torch.tensor([positives]), torch.tensor([anchor])
    candidates = (POINTS, near, torch.ones_like(near, dtype=torch.bool), itself)
    return multi_sample_contrast(POINTS[itself], [candidates], tau, form).item()  # type: ignore[arg-type]


def test_one_positive_of_methods() -> None:
    for form in FORMS:
        assert contrast(T0, [0], form) == pytest.approx(0.682895740, abs=1e-9)
        assert contrast(T1, [2], form) == pytest.approx(0.001690998, abs=1e-9)


def test_two_positives_of_methods() -> None:
    assert contrast(T0, [0, S1], "log_of_sum") == pytest.approx(0.000239809, abs=1e-9)
    assert contrast(T0, [0, S1], "mean_of_logs") == pytest.approx(0.693442607, abs=1e-9)


def slow_contrast(
    anchors: Tensor, rows: Tensor, positive: Tensor, allowed: Tensor, tau: float, form: str
) -> float:
    losses = []
    for a, p, ok in zip(anchors.detach(), positive.tolist(), allowed.tolist(), strict=True):
        e = [math.exp(float(a @ row) / tau) for row in rows]
        everything = math.fsum(x for x, o in zip(e, ok, strict=True) if o)
        chosen = [x for x, o in zip(e, p, strict=True) if o]
        if not chosen:
            continue
        if form == "log_of_sum":
            losses.append(-math.log(math.fsum(chosen) / everything))
        else:
            losses.append(-math.fsum(math.log(x / everything) for x in chosen) / len(chosen))
    return math.fsum(losses) / len(losses)


def case(seed: int) -> tuple[Tensor, list[Candidates]]:
    """Two memories with holes; an anchor may be of the first one, and one has no positive."""
    g = torch.Generator().manual_seed(seed)
    candidates = []
    for n, itself in ((9, torch.tensor([0, 3, -1, 8, -1])), (7, torch.full((5,), -1))):
        rows = unit(seed + 50 + n, n)
        rows[torch.randperm(n, generator=g)[:2]] = 0
        near = torch.rand(5, n, generator=g).argsort(1)[:, :5]
        positive = torch.rand(5, 5, generator=g) < 0.5
        positive &= ~empty_rows(rows)[near] & (near != itself[:, None])
        positive[1] = False
        candidates.append((rows, near, positive, itself))
    return unit(seed, 5).requires_grad_(), candidates


def masks(candidates: list[Candidates]) -> tuple[Tensor, Tensor, Tensor]:
    """All rows, and P and A as masks."""
    positives, allowed = [], []
    for rows, near, positive, itself in candidates:
        absent = torch.zeros(len(near), len(rows), dtype=torch.bool)
        positives.append(absent.scatter(1, near, positive))
        allowed.append(~empty_rows(rows) & (torch.arange(len(rows)) != itself[:, None]))
    return torch.cat([c[0] for c in candidates]), torch.cat(positives, 1), torch.cat(allowed, 1)


@pytest.mark.parametrize("most", [chunked.MAX_ENTRIES, 5 * 4, 5])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(3))
def test_the_contrast_is_the_equation_and_so_is_its_gradient(
    seed: int, form: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunked, "MAX_ENTRIES", most)  # all, four or one row at a time
    anchors, candidates = case(seed)

    def loss(a: Tensor) -> Tensor:
        return multi_sample_contrast(a, candidates, 0.2, form)  # type: ignore[arg-type]

    expected = slow_contrast(anchors, *masks(candidates), 0.2, form)
    assert loss(anchors).item() == pytest.approx(expected, rel=1e-10)
    assert torch.autograd.gradcheck(loss, anchors)
    (slope,) = torch.autograd.grad(loss(anchors), anchors)
    assert not slope[1].any()


def test_no_mutual_pair_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for most, form in product([chunked.MAX_ENTRIES, 6], FORMS):
        monkeypatch.setattr(chunked, "MAX_ENTRIES", most)
        anchors = unit(0, 3).float().requires_grad_()
        near, absent = torch.zeros(3, 2).long(), torch.full((3,), -1)
        for rows in (unit(1, 4).float(), torch.zeros(4, 3)):
            candidates = [(rows, near, near > 0, absent)]
            loss = multi_sample_contrast(anchors, candidates, 0.05, form)  # type: ignore[arg-type]
            (slope,) = torch.autograd.grad(loss, anchors)
            assert loss.item() == 0
            assert not slope.any()


def test_float32_stays_finite_at_small_temperatures() -> None:
    for form in FORMS:
        anchors = torch.tensor([[1.0, 0], [-1, 0]], requires_grad=True)
        rows, near = torch.tensor([[1.0, 0], [-1, 0]]), torch.tensor([[1], [1]])
        candidates = [(rows, near, near > 0, torch.full((2,), -1))]
        loss = multi_sample_contrast(anchors, candidates, 0.005, form)  # type: ignore[arg-type]
        (slope,) = torch.autograd.grad(loss, anchors)
        assert loss.item() == pytest.approx(200)  # the worst and the best positive there can be
        assert slope.isfinite().all()


def test_no_table_of_batch_and_memory_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "MAX_ENTRIES", 600)
    memories = unit(0, 1500).float(), unit(1, 2000).float()
    index = torch.arange(6), torch.arange(6) + 900
    anchors = [unit(2 + i, 6).float().requires_grad_() for i in range(2)]
    with Largest() as made:
        candidates = memory_pairs((anchors[0], anchors[1]), index, memories, 4)
        multi_sample_contrast(torch.cat(anchors), candidates).backward()
    assert all(a.grad is not None for a in anchors)
    assert made.entries <= 600


def test_the_memory_gets_no_gradient() -> None:
    anchors, [(rows, *rest), _] = case(0)
    rows.requires_grad_()
    loss = multi_sample_contrast(anchors, [(rows, *rest)])
    assert torch.autograd.grad(loss, [rows], allow_unused=True) == (None,)


def test_a_wrong_form_is_refused() -> None:
    anchors, candidates = case(0)
    with pytest.raises(ValueError, match="form is 'sum'; allowed: log_of_sum, mean_of_logs"):
        multi_sample_contrast(anchors, candidates, 0.1, "sum")  # type: ignore[arg-type]
