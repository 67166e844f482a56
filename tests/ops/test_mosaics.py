"""SPA's words and mosaics: METHODS.md §12.8, slow copies, limits."""

import math
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from unida.losses import (
    assignment_entropy,
    draw_mosaics,
    make_mosaics,
    unused_words,
    word_histogram,
    word_logits,
)

MAP = [[[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]]]
WORDS = [[2.0, 0.0], [0.0, 2.0], [1.0, 1.0]]


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def draw(seed: int, *shape: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=g, dtype=torch.float64)


def close(found: Tensor, wanted: list[float]) -> None:
    torch.testing.assert_close(found, tensor(wanted), rtol=0, atol=1e-9)


def test_the_check_case_of_methods() -> None:
    logits = word_logits(tensor(MAP), tensor(WORDS), 1.0)
    close(logits.softmax(2)[0, 0], [0.665240956, 0.090030573, 0.244728471])
    histogram = word_histogram(logits)[0]
    close(histogram, [0.377635764, 0.377635764, 0.244728471])
    assert assignment_entropy(logits).item() == pytest.approx(0.832395582, abs=1e-9)
    of_histogram = -(histogram * histogram.log()).sum().item()
    assert of_histogram == pytest.approx(1.079983653, abs=1e-9)
    assert unused_words(logits).item() == pytest.approx(math.log(3) - of_histogram, abs=3e-8)


def test_the_pretext_case_of_methods() -> None:
    pretext = F.cross_entropy(tensor([[0.2, 1.0, -0.5]]), torch.tensor([1]))
    assert pretext.item() == pytest.approx(0.514295073, abs=1e-9)


def test_logits_are_location_by_location() -> None:
    maps, words = draw(0, 2, 3, 4, 5), draw(1, 6, 3)
    logits = word_logits(maps, words, 0.3)
    assert logits.shape == (2, 20, 6)
    for b, y, x, k in ((0, 0, 0, 0), (1, 2, 3, 4), (0, 3, 4, 5)):
        expected = sum(maps[b, c, y, x] * words[k, c] for c in range(3)) / 0.3
        torch.testing.assert_close(logits[b, 5 * y + x, k], expected)


def test_a_histogram_is_one_in_all_and_knows_no_order_of_places() -> None:
    logits = draw(0, 3, 7, 5)
    histogram = word_histogram(logits)
    torch.testing.assert_close(histogram.sum(1), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(word_histogram(logits[:, [3, 1, 0, 2, 6, 5, 4]]), histogram)


@pytest.mark.parametrize("loss", [assignment_entropy, unused_words])
def test_gradients_of_words_and_maps(loss: object) -> None:
    maps, words = draw(0, 2, 3, 2, 2).requires_grad_(), draw(1, 4, 3).requires_grad_()

    def of(m: Tensor, w: Tensor) -> Tensor:
        return loss(word_logits(m, w, 0.5))  # type: ignore[operator, no-any-return]

    assert torch.autograd.gradcheck(of, (maps, words))
    assert torch.autograd.gradcheck(lambda m, w: word_histogram(word_logits(m, w)), (maps, words))


def test_both_entropies_at_their_ends() -> None:
    even = torch.zeros(2, 4, 8, dtype=torch.float64)
    assert assignment_entropy(even).item() == pytest.approx(math.log(8))
    assert unused_words(even).item() == pytest.approx(0, abs=1e-7)
    one_word = even.clone()
    one_word[..., 3] = 100.0
    assert assignment_entropy(one_word).item() == pytest.approx(0)
    assert unused_words(one_word).item() == pytest.approx(math.log(8), abs=1e-7)
    each_its_own = 100 * torch.eye(8, dtype=torch.float64).view(2, 4, 8)
    assert assignment_entropy(each_its_own).item() == pytest.approx(0)
    assert unused_words(each_its_own).item() == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("size", [0.0, 1.0, 1e3, 1e20])
def test_values_and_gradients_are_finite(size: float) -> None:
    logits = (size * draw(0, 2, 4, 8)).float().requires_grad_()
    total = (
        assignment_entropy(logits) + unused_words(logits) + word_histogram(logits).square().sum()
    )
    (found,) = torch.autograd.grad(total, logits)
    assert total.isfinite()
    assert found.isfinite().all()


# --- mosaics


def test_an_image_cut_and_laid_in_order_is_itself() -> None:
    images = torch.rand(2, 3, 9, 12)
    in_order = torch.arange(9).repeat(2, 1)
    owners = torch.tensor([[1] * 9, [0] * 9])
    assert make_mosaics(images, owners, in_order).equal(images.flip(0))


def test_what_does_not_fit_into_thirds_is_left_out() -> None:
    images = torch.rand(1, 3, 16, 17)
    whole = make_mosaics(images, torch.zeros(1, 9, dtype=torch.long), torch.arange(9)[None])
    assert whole.equal(images[..., :15, :15])


def test_each_cell_is_the_ninth_asked_for() -> None:
    images = torch.rand(4, 3, 6, 6)
    g = torch.Generator().manual_seed(0)
    owners = torch.randint(4, (5, 9), generator=g)
    places = torch.randint(9, (5, 9), generator=g)
    mosaics = make_mosaics(images, owners, places)
    assert mosaics.shape == (5, 3, 6, 6)
    for m in range(5):
        for cell in range(9):
            row, column = divmod(cell, 3)
            y, x = divmod(int(places[m, cell]), 3)
            found = mosaics[m, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
            wanted = images[owners[m, cell], :, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2]
            assert found.equal(wanted)


@pytest.mark.parametrize(("n", "most"), [(48, 4), (6, 9), (3, 4), (2, 2), (1, 4)])
def test_a_mosaic_shows_as_many_images_as_it_says(n: int, most: int) -> None:
    torch.manual_seed(0)
    for _ in range(20):
        g, owners, places = draw_mosaics(n, most)
        assert g.min() >= 1
        assert g.max() <= min(n, most)
        assert [len(set(row)) for row in owners.tolist()] == g.tolist()
        assert owners.max() < n
        assert all(sorted(row) == list(range(9)) for row in places.tolist())


def test_all_numbers_of_images_come_alike_often_and_draws_follow_the_seed() -> None:
    torch.manual_seed(0)
    first = draw_mosaics(4000, 4)
    counts = Counter(first[0].tolist())
    assert counts.keys() == {1, 2, 3, 4}
    assert min(counts.values()) > 900
    torch.manual_seed(0)
    assert all(a.equal(b) for a, b in zip(first, draw_mosaics(4000, 4), strict=True))
