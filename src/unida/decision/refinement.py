"""Refinement: predictions of any method, corrected by the structure of the target.

A refiner is fitted once, after training, to the outputs on the unlabelled target. It is stored and
exported with the model and applied to every later image.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from unida.config import Refinement
from unida.decision.knn import K, KNNSmoothing
from unida.decision.prototypes import TargetPrototypes
from unida.types import Outputs
from unida.utils.chunking import subsample

MAX_BANK = 8192
"""Target images that a refiner keeps; of a larger target, a sample."""


class Refiner(nn.Module):
    """k-NN smoothing of scores and probabilities, after target prototypes where these are wanted.

    Smoothing finds neighbours by the features that the method decides on. With prototypes a second
    round follows, by the features of the backbone where these are others; on a target too small for
    prototypes it is left out.

    Args:
        n_images: target images that are kept.
        widths: length of the features of each round of smoothing.
        n_classes: known classes.
        k: neighbours.
        prototypes: whether prototypes replace the classifier's scores and probabilities.
    """

    def __init__(
        self, n_images: int, widths: Sequence[int], n_classes: int, k: int, prototypes: bool
    ) -> None:
        super().__init__()
        self.config = {
            "n_images": n_images,
            "widths": list(widths),
            "n_classes": n_classes,
            "k": k,
            "prototypes": prototypes,
        }
        self.prototypes = TargetPrototypes(widths[0], n_classes) if prototypes else None
        rounds = [KNNSmoothing(n_images, width, 1 + n_classes, k) for width in widths]
        self.rounds = cast(Sequence[KNNSmoothing], nn.ModuleList(rounds))

    @property
    def is_partial(self) -> bool:
        """Whether the target was too small for the requested prototypes."""
        return self.prototypes is not None and not self.prototypes.is_fitted

    @torch.no_grad()
    def fit(self, outputs: Outputs, backbone_features: Tensor) -> None:
        """Fit to the outputs on the kept target images and their features (N, D)."""
        values = pack_outputs(outputs)
        features = self._features(outputs, backbone_features)
        smoothings = [r.fit(f) for r, f in zip(self.rounds, features, strict=True)]
        if self.prototypes is not None:
            rows = self.rounds[0].bank
            self.prototypes.fit(rows, values, smoothings)
            values = self.prototypes.score(rows, values)
            if not self.prototypes.is_fitted:
                for later in self.rounds[1:]:
                    later.disable()
        for smoothing, smooth in zip(self.rounds, smoothings, strict=True):
            smoothing.values.copy_(values)
            values = smooth(values)

    def transform(self, outputs: Outputs, backbone_features: Tensor) -> Outputs:
        """Refine outputs on any images."""
        features = self._features(outputs, backbone_features)
        rows = [r.normalise(f) for r, f in zip(self.rounds, features, strict=True)]
        values = pack_outputs(outputs)
        if self.prototypes is not None:
            values = self.prototypes.score(rows[0], values)
        for smoothing, row in zip(self.rounds, rows, strict=True):
            values = smoothing.smooth(row, values)
        return Outputs(values[:, 1:], values[:, 0], outputs.features)

    def _features(self, outputs: Outputs, backbone_features: Tensor) -> tuple[Tensor, ...]:
        """Features of each round of smoothing."""
        return (outputs.features.detach(), backbone_features.detach())[: len(self.rounds)]


def build_refiner(
    refinement: Refinement, n_target: int, outputs: Outputs, backbone_features: Tensor
) -> Refiner | None:
    """Build the refiner for a target; None for 'none' and for a target of one image.

    Args:
        refinement: which stages.
        n_target: images of the target.
        outputs: on some images, for the shapes.
        backbone_features: of the same images.
    """
    if refinement == "none" or n_target < 2:
        return None
    widths = [outputs.features.shape[1]]
    prototypes = refinement == "prototypes,knn"
    if prototypes and outputs.features is not backbone_features:
        widths.append(backbone_features.shape[1])
    n_classes = outputs.probs.shape[1]
    return Refiner(min(n_target, MAX_BANK), widths, n_classes, min(K, n_target - 1), prototypes)


def bank_index(n_target: int) -> Tensor:
    """Indices of the target images that a refiner keeps."""
    return torch.from_numpy(subsample(n_target, MAX_BANK, 0, "neighbours"))


def pack_outputs(outputs: Outputs) -> Tensor:
    """Scores and probabilities side by side, (B, 1 + K)."""
    return torch.cat([outputs.unknown_score[:, None], outputs.probs], 1)
