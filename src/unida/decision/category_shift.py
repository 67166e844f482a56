"""Signs of target-private classes, in the features of the backbone and without target labels.

Whether the target holds classes that the source lacks cannot be read off the unknown scores alone:
known images that are badly recognised form a second group of scores just as unknown images do. The
features tell them apart, for every method alike:

* Margin of an image: its similarity to the nearest class mean of the source, minus that to the
  second nearest. Badly recognised images of known classes keep a part of it.
* Reach: how many source images have it among their nearest target images. Of images with a small
  margin, source images reach those of known classes.
* Density: its similarity to its nearest target images. Images of known classes with a small margin
  lie between the classes; images of unknown classes have a cluster of their own.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unida.utils.chunking import subsample

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
MIN_VARIANCE = 1e-5
"""Of a component that is kept, relative to that of the first."""
NEAREST = 40
"""Nearest target images that a source image reaches; an eighth of a target of fewer than 320."""
OF_DENSITY = 15
"""Nearest target images whose similarity is the density."""
SMOOTHING = 6
"""Nearest neighbours that reach and similarities are averaged over."""
SMALL_MARGIN = 1 / 3
"""Share of the target, smallest margins first, whose reach and density are compared."""
SUREST = 0.1
"""Share of images, largest margins first, whose margins are compared with the source's."""


@dataclass(frozen=True)
class TargetSigns:
    """What the features say about a target, whatever is rejected.

    Attributes:
        margins: (N,), of its images.
        reach, density, level, uncentred_level: see `ShiftSigns`.
    """

    margins: Tensor
    reach: float
    density: float
    level: float
    uncentred_level: float

    def compare(self, is_rejected: Tensor) -> "ShiftSigns":
        """Compare accepted and rejected images; the margin is 1 where a side is empty."""
        ratio = 1.0
        if is_rejected.any() and not is_rejected.all():
            accepted = self.margins[~is_rejected].mean().clamp_min(1e-9)
            ratio = float(self.margins[is_rejected].mean() / accepted)
        return ShiftSigns(self.reach, self.density, ratio, self.level, self.uncentred_level)


@dataclass(frozen=True)
class ShiftSigns:
    """What the features say about a target, and about a split into accepted and rejected images.

    Attributes:
        reach: of the images with small margins, relative to the mean of all.
        density: of the same, minus the mean of all, in standard deviations.
        margin: mean margin of the rejected images relative to that of the accepted ones.
        level: mean margin of the surest images relative to that of the surest source images. Small
            where no target class is known, but also where the target has one class only: it is
            centred at its mean.
        uncentred_level: the same of a target that is centred like the source.
    """

    reach: float
    density: float
    margin: float
    level: float
    uncentred_level: float


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
    centre_of_rows: Tensor
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
        self.register_buffer("centre_of_rows", torch.zeros(n_dimensions))
        self.register_buffer("images", torch.zeros(n_images, n_dimensions))
        self.register_buffer("labels", torch.zeros(n_images, dtype=torch.int64))

    @torch.no_grad()
    def fit(self, source: Tensor, labels: Tensor, target: Tensor) -> "SourceReference":
        """Find the common space of source features (M, D), with their classes, and target ones."""
        self.centre.copy_(source.mean(0))
        rows = torch.cat([_unit(source - self.centre), _unit(target - target.mean(0))])
        variance, axes = torch.linalg.eigh(rows.T @ rows / len(rows))  # rising
        n = self.projection.shape[1]
        spread, least = variance[-n:], MIN_VARIANCE * variance[-1]
        # Axes without variance are arbitrary: they would differ from machine to machine.
        kept = axes[:, -n:] * (spread > least)
        self.projection.copy_(kept / spread.clamp_min(least) ** WHITENING)
        of_source = rows[: len(source)] @ self.projection
        self.centre_of_rows.copy_(of_source.mean(0))
        self.images.copy_(_unit(of_source - self.centre_of_rows))
        self.labels.copy_(labels)
        return self

    @torch.no_grad()
    def transform(self, target: Tensor, centred: bool = True) -> Tensor:
        """Project target features (N, D) into the common space.

        Args:
            target: of the backbone.
            centred: at their own mean; otherwise at that of the source.
        """
        if centred:
            return _unit(_unit(target - target.mean(0)) @ self.projection, centred=True)
        return _unit(_unit(target - self.centre) @ self.projection - self.centre_of_rows)

    @torch.no_grad()
    def describe(self, target: Tensor) -> TargetSigns | None:
        """Compare target features (N, D) with the source; None for fewer than `MIN_TARGET`."""
        n = len(target)
        if n < MIN_TARGET:
            return None
        rows = self.transform(target)
        near, margin = self._margins(rows)
        uncentred = self._margins(self.transform(target, centred=False))[1]
        of_source = _surest(self._margins(self.images)[1]).clamp_min(1e-9)
        density = _nearest(rows, rows, min(OF_DENSITY, n - 1), itself=True)[1].mean(1)
        small = margin.argsort(stable=True)[: round(SMALL_MARGIN * n)]
        return TargetSigns(
            margins=margin,
            reach=float(self._reach(rows, near)[small].mean()),
            density=float((density[small].mean() - density.mean()) / density.std().clamp_min(1e-9)),
            level=float(_surest(margin) / of_source),
            uncentred_level=float(_surest(uncentred) / of_source),
        )

    def _reach(self, rows: Tensor, near: Tensor) -> Tensor:
        """How often rows are among the nearest of source images, every class weighing the same.

        Averaged over a row and its nearest neighbours (N, k), relative to the mean of all.
        """
        hits, _ = _nearest(self.images, rows, max(1, min(NEAREST, len(rows) // 8)))
        weight = 1 / torch.bincount(self.labels)[self.labels].to(rows.dtype)
        counts = torch.zeros(len(rows), dtype=rows.dtype, device=rows.device)
        counts.index_add_(0, hits.flatten(), weight.repeat_interleave(hits.shape[1]))
        counts /= counts.mean()
        return (counts + counts[near].sum(1)) / (1 + near.shape[1])

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


def _surest(margins: Tensor) -> Tensor:
    return margins.topk(max(1, round(SUREST * len(margins)))).values.mean()


def _unit(rows: Tensor, centred: bool = False) -> Tensor:
    return F.normalize(rows - rows.mean(0) if centred else rows)


def _nearest(rows: Tensor, bank: Tensor, k: int, itself: bool = False) -> tuple[Tensor, Tensor]:
    """Indices and cosine similarities (B, k) of the nearest rows of a bank.

    Args:
        rows: (B, D), of unit length.
        bank: (N, D), of unit length.
        k: neighbours.
        itself: whether the rows are those of the bank, which are not their own neighbours.
    """
    found = []
    for index in torch.split(torch.arange(len(rows), device=rows.device), 1024):
        similarity = rows[index] @ bank.T
        if itself:
            similarity[torch.arange(len(index), device=rows.device), index] = -2.0
        found.append(similarity.topk(k, 1))
    return torch.cat([f.indices for f in found]), torch.cat([f.values for f in found])
