"""Neighbours: images of the target that have a say in the verdict on another.

Images that look alike are likely the same thing. Soft contrastive learning trains for that; here a
verdict makes use of it, for methods that ask for it.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unida.errors import require
from unida.models.anchors import Anchors
from unida.rows import sample
from unida.types import Outputs

USUAL = 6
"""Neighbours that are heard, unless a user says how many."""
MOST = 8192
"""Images that are remembered; of a larger target, a sample."""


class Neighbours(nn.Module):
    """What was said of the target's images, averaged over an image and those most like it.

    With likeness P_ij = exp(−d²_ij / u), d² the squared distance of centred unit features and u
    its mean over the k nearest in the target, scores and probabilities of image i become
    Σ_j P_ij s_j / Σ_j P_ij over the image itself (P = 1) and its k nearest. An image of the target
    is not its own neighbour. Until `fill` was called there is nobody to hear: an image speaks for
    itself.

    Args:
        n_target: images of the target.
        features: numbers that describe one.
        n_classes: known classes.
        k: neighbours that are heard; 0 for none.
        anchored: whether images are judged by their likeness to `Anchors` that the classifier's
            verdicts are the beginning of, not by the classifier itself; not without neighbours.
    """

    rows: Tensor
    said: Tensor
    centre: Tensor
    unit: Tensor

    def __init__(
        self, n_target: int, features: int, n_classes: int, k: int, anchored: bool = False
    ) -> None:
        super().__init__()
        require(k > 0 or not anchored, "anchors", anchored, "only with neighbours")
        self.k, self.n_target = k, n_target
        if k == 0:
            return
        self.anchors = Anchors(features, n_classes) if anchored else None
        remembered = min(n_target, MOST)
        self.register_buffer("rows", torch.zeros(remembered, features))
        self.register_buffer("said", torch.zeros(remembered, 1 + n_classes))
        self.register_buffer("centre", torch.zeros(features))
        self.register_buffer("unit", torch.zeros(()))

    @property
    def index(self) -> Tensor:
        """Numbers of the images that are remembered."""
        return torch.from_numpy(sample(self.n_target, MOST, 0, "neighbours"))

    @torch.no_grad()
    def fill(self, said: Tensor) -> None:
        """Remembers the target: of each image at `index` what `in_a_row` makes of its outputs."""
        features, said = torch.split(said, [len(self.centre), self.said.shape[1]], 1)
        self.centre.copy_(features.mean(0))
        self.rows.copy_(F.normalize(features - self.centre))
        parts = [self._nearest(part) for part in torch.split(self.rows, 1024)]
        d2, near = (torch.cat(column) for column in zip(*parts, strict=True))
        self.unit.copy_(d2.mean())
        if self.anchors:
            self.anchors.fill(self.rows, said, lambda s: self._together(s, s[near], d2))
            said = self.anchors.says(self.rows, said)
        self.said.copy_(said)

    def heard(self, alone: Outputs) -> Outputs:
        """The outputs of images together with those of their neighbours."""
        if self.k == 0:
            return alone
        rows, said = F.normalize(alone.features.detach() - self.centre), _said(alone)
        if self.anchors:
            said = self.anchors.says(rows, said)
        d2, near = self._nearest(rows)
        mean = self._together(said, self.said[near], d2)
        return Outputs(mean[:, 1:], mean[:, 0], alone.features)

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


def in_a_row(outputs: Outputs) -> Tensor:
    """Outputs side by side: features, score, probabilities; (B, D + 1 + K)."""
    return torch.cat([outputs.features, _said(outputs)], 1)


def _said(outputs: Outputs) -> Tensor:
    return torch.cat([outputs.unknown_score[:, None], outputs.probs], 1)
