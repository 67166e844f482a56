"""The batch of every step: indices → pixels → views."""

from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from unida.config import RunConfig
from unida.data.augmentations import WEAK_VIEW, View, make_view
from unida.data.domain import Domain
from unida.data.sampling import Balanced, Shuffled
from unida.methods.base import DomainName, Method
from unida.types import Batch
from unida.utils import distributed
from unida.utils.devices import send
from unida.utils.rng import generator

_Fetched = tuple[Tensor, Tensor, Tensor, Tensor]  # indices and pixels of source and target


class Batches:
    """Batches as functions of seed and step alone; the pixels of the next step are prefetched."""

    def __init__(self, source: Domain, target: Domain, config: RunConfig) -> None:
        assert source.samples.labels is not None
        self.config = config
        self.domains: dict[DomainName, Domain] = {"source": source, "target": target}
        self.labels = torch.from_numpy(source.samples.labels)
        size, seed = config.optim.batch, config.optim.seed
        # A source model has no images: the batches have an empty source.
        self.from_source = Balanced(source.samples.labels, size, seed) if len(source) else None
        self.from_target = Shuffled(len(target), size, seed)
        self._pool = ThreadPoolExecutor(1)
        self._next: tuple[int, Future[_Fetched]] | None = None

    def at(self, step: int, method: Method) -> Batch:
        """Make the batch of a step with the views that the method uses."""
        if self._next is None or self._next[0] != step:
            self._next = (step, self._pool.submit(self._fetch, step))
        source_index, source, target_index, target = self._next[1].result()
        if step + 1 < self.config.optim.steps:
            self._next = (step + 1, self._pool.submit(self._fetch, step + 1))
        wanted = method.extra(step, generator(self.config.optim.seed, "extra", step))
        extra = {
            name: self._views(name, (WEAK_VIEW,), self._shard(domain, index), step, len(index))[0]
            for name, (domain, index) in wanted.items()
        }
        device = self.domains["source"].device
        return Batch(
            step=step,
            source_views=self._views(
                "source", method.source_views if len(source) else (), source, step
            ),
            source_labels=send(self.labels[source_index], device),
            source_index=send(source_index, device),
            target_views=self._views("target", method.target_views, target, step),
            target_index=send(target_index, device),
            extra=extra,
        )

    def _fetch(self, step: int) -> _Fetched:
        nothing = torch.empty(0, dtype=torch.long)
        source = self.from_source.indices(step) if self.from_source else nothing
        target = self.from_target.indices(step)
        return source, self._shard("source", source), target, self._shard("target", target)

    def _shard(self, domain: DomainName, index: Tensor) -> Tensor:
        """Pixels of this process's shard of a batch."""
        return self.domains[domain].images(index[distributed.shard(len(index))])

    def _views(
        self,
        name: str,
        views: tuple[View, ...],
        images: Tensor,
        step: int,
        n: int | None = None,
    ) -> tuple[Tensor, ...]:
        """Augment this process's shard of a batch of n images as the whole batch would be."""
        config, n = self.config, n or self.config.optim.batch
        return tuple(
            make_view(
                view.adjusted(config.data.flip, config.data.jitter),
                images,
                config.data.image_size,
                generator(config.optim.seed, "view", name, number, step),
                (distributed.shard(n).start, n),
            )
            for number, view in enumerate(views)
        )
