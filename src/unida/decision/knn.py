"""Neighbours: images of the target that have a say in the verdict on another.

Images that look alike are likely the same thing. Soft contrastive learning trains for that; here a
verdict makes use of it, for methods that ask for it.
"""

from collections.abc import Callable, Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unida.decision.prototypes import Anchors
from unida.errors import require
from unida.types import Outputs
from unida.utils.chunking import subsample

USUAL = 6
"""Neighbours that are heard, unless a user says how many."""
MOST = 8192
"""Images that are remembered; of a larger target, a sample."""


class Circle(nn.Module):
    """The target as some features show it, and what was said of each of its images.

    With likeness P_ij = exp(−d²_ij / u), d² the squared distance of centred unit features and u
    its mean over the k nearest in the target, what was said of image i becomes
    Σ_j P_ij s_j / Σ_j P_ij over the image itself (P = 1) and its k nearest. An image of the target
    is not its own neighbour. Until `place` was called, and after `leave`, an image speaks for
    itself.
    """

    rows: Tensor
    said: Tensor
    centre: Tensor
    unit: Tensor

    def __init__(self, remembered: int, features: int, n_classes: int, k: int) -> None:
        super().__init__()
        self.k = k
        self.register_buffer("rows", torch.zeros(remembered, features))
        self.register_buffer("said", torch.zeros(remembered, 1 + n_classes))
        self.register_buffer("centre", torch.zeros(features))
        self.register_buffer("unit", torch.zeros(()))

    def place(self, features: Tensor) -> Callable[[Tensor], Tensor]:
        """Remembers where the target's images lie; returns how they hear each other."""
        self.centre.copy_(features.mean(0))
        self.rows.copy_(self.seen(features))
        parts = [self._nearest(part) for part in torch.split(self.rows, 1024)]
        d2, near = (torch.cat(column) for column in zip(*parts, strict=True))
        self.unit.copy_(d2.mean())
        return lambda said: self._together(said, said[near], d2)

    def leave(self) -> None:
        """From here on nobody is heard."""
        self.unit.zero_()

    def seen(self, features: Tensor) -> Tensor:
        """Centred unit features."""
        return F.normalize(features - self.centre)

    def hear(self, rows: Tensor, said: Tensor) -> Tensor:
        """What is said of images at `rows` (B, D), with what was said of their neighbours."""
        d2, near = self._nearest(rows)
        return self._together(said, self.said[near], d2)

    def _together(self, said: Tensor, others: Tensor, d2: Tensor) -> Tensor:
        """What was said of images (B, S) and of their neighbours (B, k, S), by likeness."""
        likeness = torch.exp(-d2 / self.unit.clamp_min(1e-12))
        total = said + torch.einsum("bk,bks->bs", likeness, others)
        return total / (1 + likeness.sum(1, keepdim=True))

    def _nearest(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Squared distances of the k nearest, and which they are; an image itself is far away."""
        d2 = (2 - 2 * rows @ self.rows.T).clamp_min(0)
        itself = d2 < 1e-4  # not 0: another device, or another batch, may have computed it
        nearest, near = d2.masked_fill(itself, 4.0).topk(self.k, largest=False)
        return nearest, near


class Neighbours(nn.Module):
    """Scores and probabilities, averaged over an image and those of the target most like it.

    There is a `Circle` for what the classifier sees, and there may be one for the features y of the
    backbone: an image first hears its nearest by the one, and then, of what all have heard there,
    its nearest by the other. With anchors, a target too small for them has too few images of a
    class for a second circle, too. Until `fill` was called there is nobody to hear.

    Args:
        n_target: images of the target.
        features: numbers in what the classifier sees and, for a second circle, in y.
        n_classes: known classes.
        k: neighbours that are heard; 0 for none.
        anchored: whether images are judged by their likeness to `Anchors` that the classifier's
            verdicts are the beginning of, not by the classifier itself; not without neighbours.
    """

    def __init__(
        self,
        n_target: int,
        features: tuple[int] | tuple[int, int],
        n_classes: int,
        k: int,
        anchored: bool = False,
    ) -> None:
        super().__init__()
        require(k > 0 or not anchored, "anchors", anchored, "only with neighbours")
        self.k, self.n_target = k, n_target
        if k == 0:
            return
        self.columns = [*features, 1 + n_classes]
        self.anchors = Anchors(features[0], n_classes) if anchored else None
        remembered = min(n_target, MOST)
        circles = [Circle(remembered, width, n_classes, k) for width in features]
        self.circles = cast(Sequence[Circle], nn.ModuleList(circles))

    @property
    def index(self) -> Tensor:
        """Numbers of the images that are remembered."""
        return torch.from_numpy(subsample(self.n_target, MOST, 0, "neighbours"))

    def ask(self, look: Callable[..., Tensor], alone: Callable[[Tensor], Outputs]) -> None:
        """Remembers the target.

        Args:
            look: see `unida.methods.base.Look`.
            alone: what the classifier says of images with features y.
        """
        if self.k:
            self.fill(look("target", self.index, lambda y: self.in_a_row(alone(y), y)))

    def in_a_row(self, alone: Outputs, y: Tensor) -> Tensor:
        """What is remembered of images, side by side."""
        return torch.cat([*self._features(alone, y), _said(alone)], 1)

    @torch.no_grad()
    def fill(self, target: Tensor) -> None:
        """The same for what `in_a_row` makes of the images at `index`."""
        *features, said = torch.split(target, self.columns, 1)
        hears = [c.place(f) for c, f in zip(self.circles, features, strict=True)]
        if self.anchors:
            rows = self.circles[0].rows
            self.anchors.fill(rows, said, hears)
            said = self.anchors.says(rows, said)
            if not self.anchors.decide:
                for circle in self.circles[1:]:
                    circle.leave()
        for circle, hear in zip(self.circles, hears, strict=True):
            circle.said.copy_(said)
            said = hear(said)

    def heard(self, alone: Outputs, y: Tensor) -> Outputs:
        """What the classifier says of images with features y, together with their neighbours."""
        if self.k == 0:
            return alone
        features = self._features(alone, y)
        rows = [c.seen(f) for c, f in zip(self.circles, features, strict=True)]
        said = _said(alone)
        if self.anchors:
            said = self.anchors.says(rows[0], said)
        for circle, row in zip(self.circles, rows, strict=True):
            said = circle.hear(row, said)
        return Outputs(said[:, 1:], said[:, 0], alone.features)

    def _features(self, alone: Outputs, y: Tensor) -> tuple[Tensor, ...]:
        """What the images look like, for each circle."""
        return (alone.features.detach(), y.detach())[: len(self.circles)]


def _said(outputs: Outputs) -> Tensor:
    return torch.cat([outputs.unknown_score[:, None], outputs.probs], 1)
