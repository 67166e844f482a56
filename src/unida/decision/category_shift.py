"""Signs of target-private classes, in the features of the backbone and without target labels.

Whether the target holds classes that the source lacks cannot be read off the unknown scores alone:
known images that are badly recognised form a second group of scores just as unknown images do. Two
signs tell them apart, and both are the same for every method, since they use the features of the
backbone:

* Coverage. Each source image has nearest target images. Where all target classes are known, these
  spread over the target as far as the neighbours of target images do; where many are unknown, they
  cover a part of it.
* Margin. The similarity of an image to the nearest class mean of the source, minus that to the
  second nearest. Badly recognised images of known classes keep a part of the margin of accepted
  ones; images of unknown classes have next to none.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unida.utils.chunking import subsample
from unida.utils.rng import generator

MAX_SOURCE = 2048
"""Source images that are kept, balanced over the classes."""
MAX_TARGET = 8192
"""Target images that are compared; of more, a sample."""
MIN_TARGET = 20
"""Target images below which nothing is estimated."""
DIMENSIONS = 256
"""Principal components of both domains that are kept."""
WHITENING = 0.25
"""Power of the components' variances that they are divided by: half-way to full whitening."""
NEIGHBOURS, SMOOTHING = 20, 6
"""Neighbours that coverage counts, and those that counts and similarities are averaged over."""


@dataclass(frozen=True)
class ShiftSigns:
    """What the features say about a split of the target into accepted and rejected images.

    Attributes:
        coverage: effective share of the target that source images are nearest to, relative to the
            share that as many target images are nearest to; about 1 where all classes are known.
        margin: mean margin of the rejected images relative to that of the accepted ones.
        level: mean margin of the accepted images relative to that of source images; next to 0 where
            the target has no known class at all.
    """

    coverage: float
    margin: float
    level: float


class SourceReference(nn.Module):
    """Source images in a common space of both domains, kept with a model.

    Features are centred by domain, of unit length, and projected onto the principal components of
    both domains, each divided by its standard deviation to the power 1/2.

    Args:
        n_features: of the backbone.
        n_dimensions: of the common space.
        n_images: source images that are kept.
    """

    centre: Tensor
    projection: Tensor
    images: Tensor
    labels: Tensor

    def __init__(self, n_features: int, n_dimensions: int, n_images: int) -> None:
        super().__init__()
        self.config = {
            "n_features": n_features,
            "n_dimensions": n_dimensions,
            "n_images": n_images,
        }
        self.register_buffer("centre", torch.zeros(n_features))
        self.register_buffer("projection", torch.zeros(n_features, n_dimensions))
        self.register_buffer("images", torch.zeros(n_images, n_dimensions))
        self.register_buffer("labels", torch.zeros(n_images, dtype=torch.int64))

    @torch.no_grad()
    def fit(self, source: Tensor, labels: Tensor, target: Tensor) -> "SourceReference":
        """Find the common space of source features (M, D), with their classes, and target ones."""
        self.centre.copy_(source.mean(0))
        rows = torch.cat([_unit(source - self.centre), _unit(target - target.mean(0))])
        variance, axes = torch.linalg.eigh(rows.T @ rows / len(rows))  # rising
        n = self.projection.shape[1]
        spread = variance[-n:].clamp_min(1e-6 * variance[-1])
        self.projection.copy_(axes[:, -n:] / spread**WHITENING)
        self.images.copy_(_unit(rows[: len(source)] @ self.projection, centred=True))
        self.labels.copy_(labels)
        return self

    @torch.no_grad()
    def transform(self, target: Tensor) -> Tensor:
        """Project target features (N, D) into the common space, centred at their own mean."""
        return _unit(_unit(target - target.mean(0)) @ self.projection, centred=True)

    @torch.no_grad()
    def compare(self, target: Tensor, is_rejected: Tensor) -> ShiftSigns:
        """Compare target features (N, D), split into accepted and rejected images.

        All signs are 1, the values of a target without unknown classes, where the target is too
        small to tell or one side of the split is empty.
        """
        n = len(target)
        if n < MIN_TARGET or is_rejected.all() or not is_rejected.any():
            return ShiftSigns(1.0, 1.0, 1.0)
        rows = self.transform(target)
        near, margin = self._margins(rows)
        _, of_source = self._margins(self.images)
        accepted = margin[~is_rejected].mean().clamp_min(1e-9)
        return ShiftSigns(
            coverage=self._coverage(rows, near),
            margin=float(margin[is_rejected].mean() / accepted),
            level=float(accepted / of_source.mean().clamp_min(1e-9)),
        )

    def _coverage(self, rows: Tensor, near: Tensor) -> float:
        n = len(rows)
        k, draws = max(1, min(NEIGHBOURS, n // 8)), generator(0, "coverage")
        m = min(len(self.images), n)
        weight = 1 / torch.bincount(self.labels)[self.labels].float()
        balanced = torch.multinomial(weight.cpu(), m, generator=draws).to(rows.device)
        queries = torch.randperm(n, generator=draws)[:m].to(rows.device)
        from_source, _ = _nearest(self.images[balanced], rows, k)
        from_target, _ = _nearest(rows, rows, k, itself=True, queries=queries)
        return _effective_share(from_source, near) / _effective_share(from_target, near)

    def _margins(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Nearest neighbours (N, k) of images among each other, and their margins (N,).

        A margin is the similarity to the nearest class mean of the source minus that to the second
        nearest, both averaged over an image and its neighbours.
        """
        near, similarity = _nearest(rows, rows, min(SMOOTHING, len(rows) - 1), itself=True)
        n_classes = int(self.labels.max()) + 1
        means = _unit(F.one_hot(self.labels, n_classes).to(rows.dtype).T @ self.images)
        to_mean = rows @ means.T
        d2 = (2 - 2 * similarity).clamp_min(0)
        weight = torch.exp(-d2 / d2.mean().clamp_min(1e-12))
        total = to_mean + torch.einsum("nk,nkc->nc", weight, to_mean[near])
        best = (total / (1 + weight.sum(1, keepdim=True))).topk(2, 1).values
        return near, best[:, 0] - best[:, 1]


def build_reference(source: Tensor, labels: Tensor, target: Tensor) -> SourceReference:
    """Build the reference from source features (M, D), their classes and target features."""
    m, width = source.shape
    n_dimensions = min(DIMENSIONS, width, m + len(target))
    reference = SourceReference(width, n_dimensions, m).to(source.device)
    return reference.fit(source, labels, target)


def balanced_index(labels: Tensor) -> Tensor:
    """Draw at most `MAX_SOURCE` source images, as many of each class where there are enough."""
    counts = torch.bincount(labels)
    counts = counts[counts > 0]
    most = MAX_SOURCE // len(counts)
    while most < counts.max() and counts.clamp_max(most + 1).sum() <= MAX_SOURCE:
        most += 1
    chosen = []
    for k in torch.nonzero(torch.bincount(labels))[:, 0]:
        of_class = torch.nonzero(labels == k)[:, 0]
        draw = subsample(len(of_class), max(most, 1), int(k), "reference")
        chosen.append(of_class[torch.from_numpy(draw)])
    return torch.cat(chosen).sort().values


def _unit(rows: Tensor, centred: bool = False) -> Tensor:
    return F.normalize(rows - rows.mean(0) if centred else rows)


def _nearest(
    rows: Tensor, bank: Tensor, k: int, itself: bool = False, queries: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Indices and cosine similarities (B, k) of the nearest rows of a bank.

    Args:
        rows: (B, D), of unit length.
        bank: (N, D), of unit length.
        k: neighbours.
        itself: whether the rows are those of the bank, which are not their own neighbours.
        queries: of the rows, which ones; by default all.
    """
    index = torch.arange(len(rows), device=rows.device) if queries is None else queries
    found = []
    for part in torch.split(index, 1024):
        similarity = rows[part] @ bank.T
        if itself:
            similarity[torch.arange(len(part), device=rows.device), part] = -2.0
        found.append(similarity.topk(k, 1))
    return torch.cat([f.indices for f in found]), torch.cat([f.values for f in found])


def _effective_share(hits: Tensor, near: Tensor) -> float:
    """Inverse participation ratio of hits, averaged over an image and its nearest."""
    counts = torch.bincount(hits.flatten(), minlength=len(near)).double()
    counts = counts / counts.mean()
    smooth = (counts + counts[near].sum(1)) / (1 + near.shape[1])
    return float(1 / smooth.square().mean())
