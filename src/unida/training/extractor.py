"""Features of a whole domain during training, for methods that cluster or match it."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from unida.data.augmentations import EVAL_VIEW, make_view
from unida.data.domain import Domain
from unida.methods.base import DomainName, Method
from unida.training.batches import Batches
from unida.utils import distributed
from unida.utils.chunking import RowBuffer


class DomainFeatures:
    """The `unida.methods.base.FeatureExtractor` of a run."""

    def __init__(self, method: Method, batches: Batches) -> None:
        self.backbone, self.domains = method.backbone, batches.domains
        self.image_size = batches.config.data.image_size
        self.source_labels = batches.labels.to(batches.domains["source"].device)

    def __call__(
        self,
        domain: DomainName,
        index: Tensor | None = None,
        through: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        images = self.domains[domain]
        index = torch.arange(len(images)) if index is None else index
        rows = RowBuffer(len(index))
        # In full precision, as predictions are: clusters and images must be in the same space.
        with self.backbone.precision(None):
            # Chunks are of nearly equal length, so that each has a shard for every process.
            n_chunks = math.ceil(len(index) / (128 * distributed.world_size()))
            for chunk in index.tensor_split(n_chunks):
                rows.add(self._forward(images, chunk, through))
        return rows.all()

    def _forward(
        self, images: Domain, index: Tensor, through: Callable[[Tensor], Tensor] | None
    ) -> Tensor:
        whole = len(index) < distributed.world_size()  # too few to share
        mine = index if whole else index[distributed.shard(len(index))]
        view = make_view(EVAL_VIEW, images.images(mine), self.image_size, torch.Generator())
        features = self.backbone(view)
        part = through(features) if through else features
        return part if whole else distributed.gather(part)


@contextmanager
def evaluation_mode(method: Method) -> Iterator[None]:
    """Evaluation mode without gradient; buffers are the same in all processes afterwards."""
    method.eval()
    with torch.no_grad():
        yield
        distributed.broadcast_buffers(method)
