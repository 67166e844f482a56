"""Visual words: docs/methods/spa.md, locations, order, and the entropies of the assignment."""

import math

import pytest
import torch
from torch import Tensor

from unida.losses import assignment_entropy, word_usage
from unida.ops.visual_words import word_histogram, word_logits

MAP = [[[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]]]


WORDS = [[2.0, 0.0], [0.0, 2.0], [1.0, 1.0]]


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def draw(seed: int, *shape: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=g, dtype=torch.float64)


def close(found: Tensor, expected: list[float]) -> None:
    torch.testing.assert_close(found, tensor(expected), rtol=0, atol=1e-9)


def test_logits_are_location_by_location() -> None:
    maps, words = draw(0, 2, 3, 4, 5), draw(1, 6, 3)
    logits = word_logits(maps, words, 0.3)
    assert logits.shape == (2, 20, 6)
    for b, y, x, k in ((0, 0, 0, 0), (1, 2, 3, 4), (0, 3, 4, 5)):
        expected = sum(maps[b, c, y, x] * words[k, c] for c in range(3)) / 0.3
        torch.testing.assert_close(logits[b, 5 * y + x, k], expected)


def test_a_histogram_sums_to_one_and_ignores_the_order_of_places() -> None:
    logits = draw(0, 3, 7, 5)
    histogram = word_histogram(logits)
    torch.testing.assert_close(histogram.sum(1), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(word_histogram(logits[:, [3, 1, 0, 2, 6, 5, 4]]), histogram)


def test_the_check_case_of_methods() -> None:
    logits = word_logits(tensor(MAP), tensor(WORDS), 1.0)
    close(logits.softmax(2)[0, 0], [0.665240956, 0.090030573, 0.244728471])
    histogram = word_histogram(logits)[0]
    close(histogram, [0.377635764, 0.377635764, 0.244728471])
    assert assignment_entropy(logits).item() == pytest.approx(0.832395582, abs=1e-9)
    of_histogram = -(histogram * histogram.log()).sum().item()
    assert of_histogram == pytest.approx(1.079983653, abs=1e-9)
    assert word_usage(logits).item() == pytest.approx(math.log(3) - of_histogram, abs=3e-8)


@pytest.mark.parametrize("loss", [assignment_entropy, word_usage])
def test_gradients_of_words_and_maps(loss: object) -> None:
    maps, words = draw(0, 2, 3, 2, 2).requires_grad_(), draw(1, 4, 3).requires_grad_()

    def of(m: Tensor, w: Tensor) -> Tensor:
        return loss(word_logits(m, w, 0.5))  # type: ignore[operator, no-any-return]

    assert torch.autograd.gradcheck(of, (maps, words))
    assert torch.autograd.gradcheck(lambda m, w: word_histogram(word_logits(m, w)), (maps, words))


def test_both_entropies_at_their_ends() -> None:
    even = torch.zeros(2, 4, 8, dtype=torch.float64)
    assert assignment_entropy(even).item() == pytest.approx(math.log(8))
    assert word_usage(even).item() == pytest.approx(0, abs=1e-7)
    one_word = even.clone()
    one_word[..., 3] = 100.0
    assert assignment_entropy(one_word).item() == pytest.approx(0)
    assert word_usage(one_word).item() == pytest.approx(math.log(8), abs=1e-7)
    each_its_own = 100 * torch.eye(8, dtype=torch.float64).view(2, 4, 8)
    assert assignment_entropy(each_its_own).item() == pytest.approx(0)
    assert word_usage(each_its_own).item() == pytest.approx(0, abs=1e-7)


def test_values_and_gradients_are_finite() -> None:
    for size in [0.0, 1.0, 1e3, 1e20]:
        logits = (size * draw(0, 2, 4, 8)).float().requires_grad_()
        total = (
            assignment_entropy(logits) + word_usage(logits) + word_histogram(logits).square().sum()
        )
        (found,) = torch.autograd.grad(total, logits)
        assert total.isfinite()
        assert found.isfinite().all()
