"""The losses of DANCE: docs/methods/dance.md, a slow copy, limits, invariances."""

import math
from collections.abc import Sequence
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.losses.examples import few
from tests.losses.sizes import Largest
from tests.losses.slow import slope
from unida.losses import entropy_separation, neighbourhood_clustering
from unida.losses.dance import _all_logits, _entropies
from unida.ops import chunked

FEATURES = [[1.0, 0.2, 0.0], [0.1, 1.0, 0.1]]
MEMORY = [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
INDEX = torch.tensor([0, 3])
TAU, RHO = 0.05, 0.549306144

seeds = st.integers(0, 2**31)


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def draw(seed: int, b: int = 4, k: int = 3, n: int = 9, width: int = 5) -> tuple[Tensor, ...]:
    """Prototypes, features, memory, index."""
    g = torch.Generator().manual_seed(seed)
    rows = torch.randn(k + b + n, width, generator=g, dtype=torch.float64)
    index = torch.randperm(n, generator=g)[:b]
    prototypes, features, memory = rows.split([k, b, n])
    return F.normalize(prototypes), features.clone(), F.normalize(memory), index


def loss_of(prototypes: Tensor, features: Tensor, memory: Tensor, index: Tensor) -> Tensor:
    unit = F.normalize(features)
    tau = 0.5  # softer than .05, so that every entry counts
    return neighbourhood_clustering(unit @ prototypes.T / tau, unit, memory, index, tau)


def entropy(values: Sequence[float]) -> float:
    top = max(values)
    weights = [math.exp(v - top) for v in values]
    return -sum(w / sum(weights) * math.log(w / sum(weights) + 1e-5) for w in weights)


def copy(prototypes: Tensor, features: Tensor, memory: Tensor, index: Tensor) -> float:
    """One image at a time, one neighbour at a time."""
    tau = 0.5
    unit = [[x / math.hypot(*row) for x in row] for row in features.tolist()]

    def cosine(a: Sequence[float], b: Sequence[float]) -> float:
        return sum(p * q for p, q in zip(a, b, strict=True)) / tau

    total = 0.0
    for i, f in enumerate(unit):
        z = [cosine(f, w) for w in prototypes.tolist()]
        for j, row in enumerate(memory.tolist()):
            z.append(-1 / tau if j in index.tolist() else cosine(f, row))
        for j, other in enumerate(unit):
            z.append(-1 / tau if i == j else cosine(f, other))
        total += entropy(z)
    return total / len(unit)


# --- the check cases of docs/methods/dance.md


def test_the_entropies_of_the_check_case() -> None:
    found = _entropies(tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    assert found.tolist() == pytest.approx([0.665542683, 1.098582289], abs=1e-9)


def test_the_separation_of_the_check_case() -> None:
    for m, loss in [(0.5, -0.524638072), (0.2, -0.374638072)]:
        logits = tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
        assert entropy_separation(logits, RHO, m).item() == pytest.approx(loss, abs=1e-9)


def test_the_clustering_of_the_check_case() -> None:
    unit = F.normalize(tensor(FEATURES))
    logits = unit / TAU  # W = I
    z = _all_logits(logits, unit, tensor(MEMORY), INDEX, TAU)
    expected = [
        [19.6116135, 3.9223227, 0, -20, 0, 19.6116135, -20, -20, 5.8255173],
        [1.9802951, 19.8029509, 1.9802951, -20, 0, 1.9802951, -20, 5.8255173, -20],
    ]
    torch.testing.assert_close(z, tensor(expected), atol=1e-7, rtol=0)
    loss = neighbourhood_clustering(logits, unit, tensor(MEMORY), INDEX, TAU)
    assert loss.item() == pytest.approx(0.346567735, abs=1e-9)
    assert 0.05 * loss.item() == pytest.approx(0.017328387, abs=1e-9)


# --- value and gradient


@pytest.mark.parametrize(("b", "k", "n"), [(1, 2, 1), (2, 2, 2), (4, 3, 9)])
def test_the_clustering_is_the_equation(b: int, k: int, n: int) -> None:
    for seed in range(3):
        prototypes, features, memory, index = draw(seed, b, k, n)
        features.requires_grad_()
        loss = loss_of(prototypes, features, memory, index)
        (found,) = torch.autograd.grad(loss, features)
        assert loss.item() == pytest.approx(copy(prototypes, features, memory, index), rel=1e-10)
        by_steps = slope(
            lambda t, p=prototypes, m=memory, i=index: copy(p, t, m, i),  # type: ignore[misc]
            features,
        )
        torch.testing.assert_close(found, by_steps, rtol=1e-6, atol=1e-8)


def test_the_gradient_passes_gradcheck_for_features_and_prototypes() -> None:
    prototypes, features, memory, index = draw(1)
    inputs = (prototypes.requires_grad_(), features.requires_grad_())
    assert torch.autograd.gradcheck(lambda w, f: loss_of(w, f, memory, index), inputs)


def test_the_memory_is_a_constant() -> None:
    prototypes, features, memory, index = draw(2)
    loss = loss_of(prototypes, features.requires_grad_(), memory.requires_grad_(), index)
    loss.backward()
    assert memory.grad is None
    assert features.grad is not None


@pytest.mark.parametrize("m", [0.0, 0.05, 0.2])
def test_the_separation_passes_gradcheck(m: float) -> None:
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 4, generator=g, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: entropy_separation(t, 0.7, m), logits)


def test_entropies_move_away_from_the_boundary_and_not_at_all_within_the_margin() -> None:
    logits = tensor([[4.0, 0.0, 0.0], [0.2, 0.0, 0.0], [2.3, 0.0, 0.0]]).requires_grad_()
    h = _entropies(logits).tolist()
    assert h[0] < RHO - 0.3 < RHO + 0.3 < h[1]
    assert abs(h[2] - RHO) < 0.3
    (found,) = torch.autograd.grad(entropy_separation(logits, RHO, 0.3), logits)
    after = _entropies(logits - found).tolist()
    assert after[0] < h[0]
    assert after[1] > h[1]
    assert found[2].tolist() == [0, 0, 0]


def test_with_two_classes_the_paper_s_margin_is_never_left() -> None:
    g = torch.Generator().manual_seed(0)
    logits = (10 * torch.randn(50, 2, generator=g, dtype=torch.float64)).requires_grad_()
    loss = entropy_separation(logits, 0.5 * math.log(2), 0.5)
    (found,) = torch.autograd.grad(loss, logits)
    assert loss.item() == pytest.approx(-0.5)
    assert found.abs().sum() == 0
    (found,) = torch.autograd.grad(entropy_separation(logits, 0.5 * math.log(2), 0.2), logits)
    assert found.abs().sum() > 0


# --- a memory in parts


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four images use two rows of the memory at a time."""
    monkeypatch.setattr(chunked, "MAX_ENTRIES", 8)


@pytest.mark.usefixtures("few_at_once")
def test_a_memory_in_chunks_is_the_equation() -> None:
    for seed in range(3):
        case = draw(seed)
        assert loss_of(*case).item() == pytest.approx(copy(*case), rel=1e-10)


@pytest.mark.usefixtures("few_at_once")
def test_the_gradient_passes_gradcheck_in_chunks() -> None:
    prototypes, features, memory, index = draw(1)
    inputs = (prototypes.requires_grad_(), features.requires_grad_())
    assert torch.autograd.gradcheck(lambda w, f: loss_of(w, f, memory, index), inputs)


@pytest.mark.parametrize("tau", [0.005, 0.05, 10.0])
@pytest.mark.parametrize("unvisited", [0, 300, 700])
def test_parts_are_the_whole_in_value_and_gradient(
    tau: float, unvisited: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    prototypes, features, memory, index = draw(0, b=8, k=5, n=700, width=16)
    memory[:unvisited] = 0
    features.requires_grad_()

    def both() -> tuple[Tensor, Tensor]:
        unit = F.normalize(features)
        loss = neighbourhood_clustering(unit @ prototypes.T / tau, unit, memory, index, tau)
        return loss, torch.autograd.grad(loss, features)[0]

    whole = both()
    for most in (8 * 699, 8 * 100, 8 * 33):
        monkeypatch.setattr(chunked, "MAX_ENTRIES", most)
        for found, expected in zip(both(), whole, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_no_table_of_batch_and_memory_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "MAX_ENTRIES", 400)
    prototypes, features, memory, index = draw(0, b=8, n=2000, width=4)
    with Largest() as made:
        loss_of(prototypes, features.requires_grad_(), memory, index).backward()
    assert features.grad is not None
    assert made.entries == 2000  # which rows are in the batch


# --- properties


@few
@given(seeds, st.permutations(range(4)))
def test_the_order_of_the_images_does_not_matter(seed: int, order: list[int]) -> None:
    prototypes, features, memory, index = draw(seed)
    shuffled = loss_of(prototypes, features[order], memory, index[order])
    torch.testing.assert_close(shuffled, loss_of(prototypes, features, memory, index))


@few
@given(seeds)
def test_what_is_remembered_of_the_batch_does_not_matter(seed: int) -> None:
    prototypes, features, memory, index = draw(seed)
    other = memory.clone()
    other[index] = 0.3
    expected = loss_of(prototypes, features, memory, index)
    torch.testing.assert_close(loss_of(prototypes, features, other, index), expected)


@few
@given(seeds)
def test_an_entropy_is_between_nothing_and_that_of_all_alike(seed: int) -> None:
    found = loss_of(*draw(seed)).item()
    assert -1e-3 <= found <= math.log(3 + 9 + 4)


def test_value_and_gradient_are_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    for most, size in product([chunked.MAX_ENTRIES, 8], [0.0, 1e-20, 1e15]):
        monkeypatch.setattr(chunked, "MAX_ENTRIES", most)
        prototypes, features, memory, index = (
            t.float() if t.is_floating_point() else t for t in draw(3)
        )
        memory = torch.zeros_like(memory)  # nothing visited yet
        features = (size * features).requires_grad_()
        unit = F.normalize(features)
        logits = unit @ prototypes.T / TAU
        loss = neighbourhood_clustering(logits, unit, memory, index, TAU)
        loss = loss + entropy_separation(1e30 * logits, 0.5, 0.1)
        (found,) = torch.autograd.grad(loss, features)
        assert loss.isfinite()
        assert found.isfinite().all()
