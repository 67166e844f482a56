"""A look at a domain: which images are embedded, in which order, and what is kept of them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.methods.toys import build
from unida.data.domain import Domain
from unida.data.pixels import ArrayStore
from unida.data.samples import Samples
from unida.training.extractor import DomainFeatures
from unida.utils import distributed

N = 300  # more than are embedded at once
CPU = torch.device("cpu")


class Counting(ArrayStore):
    """Notes which images were asked for."""

    def __init__(self, array: Tensor) -> None:
        super().__init__(array)
        self.asked: list[int] = []

    def get(self, index: Tensor) -> Tensor:
        self.asked += index.tolist()
        return super().get(index)


@pytest.fixture
def store() -> Counting:
    draws = torch.Generator().manual_seed(0)
    return Counting(torch.randint(256, (N, 3, 10, 10), generator=draws, dtype=torch.uint8))


@pytest.fixture
def look(store: Counting) -> Any:
    method = build("source_only").eval()
    samples = Samples((Path("none"),) * N, np.zeros(N, dtype=np.int64), ("a",))
    domains = {"source": Domain(samples, store, CPU), "target": Domain(samples, store, CPU)}
    config = SimpleNamespace(data=SimpleNamespace(image_size=8))
    batches: Any = SimpleNamespace(domains=domains, config=config, labels=torch.zeros(N))
    with torch.no_grad():
        yield DomainFeatures(method, batches)


def test_a_whole_look_has_every_image_once_and_in_order(look: Any, store: Counting) -> None:
    rows = look("target")
    assert rows.shape == (N, 128)
    assert store.asked == list(range(N))
    torch.testing.assert_close(rows[250:253], look("target", torch.arange(250, 253)))


def test_only_the_images_asked_for_are_embedded_in_the_order_asked(
    look: Any, store: Counting
) -> None:
    index = torch.randperm(N)[:170]
    rows = look("target", index)
    assert store.asked == index.tolist()
    torch.testing.assert_close(rows, look("target")[index])


def test_what_is_made_of_the_features_is_kept_in_their_place(look: Any) -> None:
    head = nn.Linear(128, 4)
    torch.testing.assert_close(look("target", through=head), head(look("target")))
    assert look("target", torch.arange(5), head).shape == (5, 4)


@pytest.mark.parametrize("n", [1, 2, 3, 257, N])
def test_the_shares_of_a_team_make_up_the_look(
    look: Any, store: Counting, monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    """Three processes, one after the other: what each embeds, chunk by chunk, is the whole."""
    monkeypatch.setattr(distributed, "world_size", lambda: 3)
    gathered: list[list[Tensor]] = []
    for rank in range(3):
        shares: list[Tensor] = []

        def gather(rows: Tensor, shares: list[Tensor] = shares) -> Tensor:
            shares.append(rows)
            return rows

        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        monkeypatch.setattr(distributed, "gather", gather)
        alone = look("target", torch.arange(n))
        gathered.append(shares)
    if n < 3:
        assert gathered == [[], [], []]  # everyone looked at all of them
        assert len(alone) == n
        assert store.asked == list(range(n)) * 3
    else:
        assert sorted(store.asked) == list(range(n))
        whole = torch.cat([part for chunk in zip(*gathered, strict=True) for part in chunk])
        assert all(len(part) for shares in gathered for part in shares)
        monkeypatch.undo()
        torch.testing.assert_close(whole, look("target", torch.arange(n)))
