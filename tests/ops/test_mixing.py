"""Mosaics and mixtures: docs/methods/gate.md, every cell, the draws."""

from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.losses.examples import few
from unida.ops.mixing import draw_mosaics, make_mosaics, mix_unknowns


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_an_image_cut_and_laid_in_order_is_itself() -> None:
    images = torch.rand(2, 3, 9, 12)
    in_order = torch.arange(9).repeat(2, 1)
    owners = torch.tensor([[1] * 9, [0] * 9])
    assert make_mosaics(images, owners, in_order).equal(images.flip(0))


def test_what_does_not_fit_into_thirds_is_left_out() -> None:
    images = torch.rand(1, 3, 16, 17)
    whole = make_mosaics(images, torch.zeros(1, 9, dtype=torch.long), torch.arange(9)[None])
    assert whole.equal(images[..., :15, :15])


def test_each_cell_is_the_requested_piece() -> None:
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
            expected = images[owners[m, cell], :, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2]
            assert found.equal(expected)


def test_a_mosaic_has_the_reported_number_of_images() -> None:
    for n, most in [(48, 4), (6, 9), (3, 4), (2, 2), (1, 4)]:
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
    first = draw_mosaics(800, 4)
    counts = Counter(first[0].tolist())
    assert counts.keys() == {1, 2, 3, 4}
    assert min(counts.values()) > 160
    torch.manual_seed(0)
    assert all(a.equal(b) for a, b in zip(first, draw_mosaics(800, 4), strict=True))


seeds = st.integers(0, 2**31)


def test_the_mixture_of_methods() -> None:
    labels, share = torch.tensor([0, 1]), tensor([0.3, 0.3])
    mixed = mix_unknowns(torch.eye(2).double(), labels, share, torch.rand(2, 2))
    torch.testing.assert_close(mixed, tensor([[0.3, 0.7], [0.7, 0.3]]))


@few
@given(seeds)
def test_partners_are_of_other_classes(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (8,), generator=g)
    labels[0], labels[1] = 0, 1
    share = torch.rand(8, generator=g)
    mixed = mix_unknowns(F.one_hot(labels, 3).float(), labels, share, torch.rand(8, 8))
    for row, y, s in zip(mixed.tolist(), labels.tolist(), share.tolist(), strict=True):
        assert row[y] == pytest.approx(s, abs=1e-6)
        assert sum(row) == pytest.approx(1, abs=1e-6)


def test_every_partner_can_be_drawn() -> None:
    labels, share = torch.tensor([0, 1, 2, 0]), torch.zeros(4)
    g = torch.Generator().manual_seed(0)
    draws = [torch.rand(4, 4, generator=g) for _ in range(50)]
    partners = {
        tuple(mix_unknowns(torch.eye(4), labels, share, d).argmax(1).tolist()) for d in draws
    }
    assert {p[0] for p in partners} == {1, 2}
    assert {p[1] for p in partners} == {0, 2, 3}


def test_one_class_gives_no_mixture() -> None:
    z = torch.randn(3, 5, requires_grad=True)
    mixed = mix_unknowns(z, torch.tensor([2, 2, 2]), torch.rand(3), torch.rand(3, 3))
    assert mixed.shape == (0, 5)


def test_features_get_the_gradient() -> None:
    z = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    labels, share, draws = torch.tensor([0, 1, 1, 0]), torch.rand(4).double(), torch.rand(4, 4)
    assert torch.autograd.gradcheck(lambda x: mix_unknowns(x, labels, share, draws), z)


def test_the_pretext_loss_of_methods() -> None:
    pretext = F.cross_entropy(tensor([[0.2, 1.0, -0.5]]), torch.tensor([1]))
    assert pretext.item() == pytest.approx(0.514295073, abs=1e-9)
