"""Tables that are never whole: their parts, their largest entries, what is made again."""

import pytest
import torch
from torch import Tensor

from tests.losses.sizes import Largest
from unida.ops import chunked


def test_parts_are_in_order_and_hold_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for n, width, most in [(10, 3, 9), (10, 3, 30), (7, 5, 2), (1, 1, 1)]:
        monkeypatch.setattr(chunked, "MAX_ENTRIES", most)
        found = chunked.column_chunks(n, width)
        assert [i for part in found for i in range(part.start, part.stop)] == list(range(n))
        assert all((part.stop - part.start) * width <= max(most, width) for part in found)
        assert (len(found) == 1) == (n * width <= most or n == 1)


@pytest.mark.parametrize("k", [1, 3, 20])
@pytest.mark.parametrize("columns", [1, 2, 5, 11])
def test_the_largest_are_those_of_the_whole_table(k: int, columns: int) -> None:
    table = torch.rand(4, 11, generator=torch.Generator().manual_seed(k))
    cut = [slice(i, min(i + columns, 11)) for i in range(0, 11, columns)]
    values, numbers = chunked.chunked_topk(lambda part: table[:, part], cut, k)
    expected = table.topk(min(k, 11), dim=1)
    assert torch.equal(values, expected.values)
    assert torch.equal(numbers, expected.indices)


def test_what_is_made_again_is_not_kept() -> None:
    x = torch.rand(3, requires_grad=True)
    kept: list[int] = []

    def note(t: Tensor) -> Tensor:
        kept.append(t.numel())
        return t

    def total(x: Tensor) -> Tensor:
        return (x * torch.arange(1000.0)[:, None]).sin().sum(0)

    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        plain = total(x)
        assert max(kept) == 3000
        kept.clear()
        light = chunked.checkpointed(total, x)
        assert max(kept, default=0) <= 3
    assert torch.equal(light, plain)
    slopes = [torch.autograd.grad(y.square().sum(), x)[0] for y in (light, plain)]
    assert torch.equal(*slopes)


def test_the_measure_of_sizes_counts_new_tensors_and_not_views() -> None:
    x = torch.rand(10, 10)
    with Largest() as recorded:
        x[:5].T.sum(0)
    assert recorded.entries == 5
    with Largest() as recorded:
        (x[:3] @ x.T).sum()
    assert recorded.entries == 30
