"""Features of a domain: which images are embedded, in which order, and what is kept of them."""

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
    """Records which images are requested."""

    def __init__(self, array: Tensor) -> None:
        super().__init__(array)
        self.requested: list[int] = []

    def get(self, index: Tensor) -> Tensor:
        self.requested += index.tolist()
        return super().get(index)


@pytest.fixture
def store() -> Counting:
    draws = torch.Generator().manual_seed(0)
    return Counting(torch.randint(256, (N, 3, 10, 10), generator=draws, dtype=torch.uint8))


@pytest.fixture
def extract(store: Counting) -> Any:
    method = build("source_only").eval()
    samples = Samples((Path("none"),) * N, np.zeros(N, dtype=np.int64), ("a",))
    domains = {"source": Domain(samples, store, CPU), "target": Domain(samples, store, CPU)}
    config = SimpleNamespace(data=SimpleNamespace(image_size=8))
    batches: Any = SimpleNamespace(domains=domains, config=config, labels=torch.zeros(N))
    with torch.no_grad():
        yield DomainFeatures(method, batches)


def test_a_whole_domain_has_every_image_once_and_in_order(extract: Any, store: Counting) -> None:
    rows = extract("target")
    assert rows.shape == (N, 128)
    assert store.requested == list(range(N))
    torch.testing.assert_close(rows[250:253], extract("target", torch.arange(250, 253)))


def test_only_requested_images_are_embedded_in_the_order_requested(
    extract: Any, store: Counting
) -> None:
    index = torch.randperm(N)[:170]
    rows = extract("target", index)
    assert store.requested == index.tolist()
    torch.testing.assert_close(rows, extract("target")[index])


def test_what_is_made_of_the_features_is_kept_in_their_place(extract: Any) -> None:
    head = nn.Linear(128, 4)
    torch.testing.assert_close(extract("target", through=head), head(extract("target")))
    assert extract("target", torch.arange(5), head).shape == (5, 4)


@pytest.mark.parametrize("n", [1, 2, 3, 257, N])
def test_the_shards_of_all_processes_make_up_the_whole(
    extract: Any, store: Counting, monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    """Three processes, one after the other: what each embeds, chunk by chunk, is the whole."""
    monkeypatch.setattr(distributed, "world_size", lambda: 3)
    gathered: list[list[Tensor]] = []
    for rank in range(3):
        shards: list[Tensor] = []

        def gather(part: Tensor, shards: list[Tensor] = shards) -> Tensor:
            shards.append(part)
            return part

        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        monkeypatch.setattr(distributed, "gather", gather)
        rows = extract("target", torch.arange(n))
        gathered.append(shards)
    if n < 3:
        assert gathered == [[], [], []]  # every process embedded all of them
        assert len(rows) == n
        assert store.requested == list(range(n)) * 3
    else:
        assert sorted(store.requested) == list(range(n))
        whole = torch.cat([part for chunk in zip(*gathered, strict=True) for part in chunk])
        assert all(len(part) for shards in gathered for part in shards)
        monkeypatch.undo()
        torch.testing.assert_close(whole, extract("target", torch.arange(n)))
