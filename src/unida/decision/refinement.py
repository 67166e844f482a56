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
    """k-NN smoothing of scores and probabilities.

    The first round finds neighbours by the features that the method decides on, the second by those
    of the backbone where these are others.

    Args:
        n_images: target images that are kept.
        widths: length of the features of each round.
        n_classes: known classes.
        k: neighbours.
        n_source: source images that are kept.
        prototypes: of models of version 0.1 only: target prototypes replace the classifier's
            scores and probabilities before the smoothing.
    """

    def __init__(
        self,
        n_images: int,
        widths: Sequence[int],
        n_classes: int,
        k: int,
        n_source: int = 0,
        prototypes: bool = False,
    ) -> None:
        super().__init__()
        self.config = {
            "n_images": n_images,
            "widths": list(widths),
            "n_classes": n_classes,
            "k": k,
            "n_source": n_source,
            "prototypes": prototypes,
        }
        self.prototypes = TargetPrototypes(widths[0], n_classes) if prototypes else None
        rounds = [KNNSmoothing(n_images, width, 1 + n_classes, k, n_source) for width in widths]
        self.rounds = cast(Sequence[KNNSmoothing], nn.ModuleList(rounds))

    @torch.no_grad()
    def fit(self, target: tuple[Outputs, Tensor], source: tuple[Outputs, Tensor]) -> Outputs:
        """Fit to outputs and backbone features (N, D) of the kept target and source images.

        Returns:
            The refined outputs on these target images.
        """
        values = pack_outputs(target[0])
        features = zip(self._features(*target), self._features(*source), strict=True)
        for smoothing, (of_target, of_source) in zip(self.rounds, features, strict=True):
            values = smoothing.fit(of_target, values, of_source)
        return _unpack(values, target[0])

    def transform(self, outputs: Outputs, backbone_features: Tensor) -> Outputs:
        """Refine outputs on any images."""
        features = self._features(outputs, backbone_features)
        rows = [r.normalise(f) for r, f in zip(self.rounds, features, strict=True)]
        values = pack_outputs(outputs)
        if self.prototypes is not None:
            values = self.prototypes.score(rows[0], values)
        for smoothing, row in zip(self.rounds, rows, strict=True):
            values = smoothing.smooth(row, values)
        return _unpack(values, outputs)

    def _features(self, outputs: Outputs, backbone_features: Tensor) -> tuple[Tensor, ...]:
        """Features of each round of smoothing."""
        return (outputs.features.detach(), backbone_features.detach())[: len(self.rounds)]


def build_refiner(
    refinement: Refinement, n_target: int, n_source: int, outputs: Outputs, features: Tensor
) -> Refiner | None:
    """Build the refiner for a target; None for 'none' and for a target of one image.

    Args:
        refinement: which one.
        n_target: images of the target.
        n_source: source images that are kept.
        outputs: on some images, for the shapes.
        features: of the backbone, of the same images; the same object as those of the outputs
            where the method decides on them.
    """
    if refinement == "none" or n_target < 2:
        return None
    same = outputs.features is features
    widths = [f.shape[1] for f in (outputs.features, *([] if same else [features]))]
    n_images, n_classes = min(n_target, MAX_BANK), outputs.probs.shape[1]
    return Refiner(n_images, widths, n_classes, min(K, n_target + n_source - 1), n_source)


def bank_index(n_target: int) -> Tensor:
    """Indices of the target images that a refiner keeps."""
    return torch.from_numpy(subsample(n_target, MAX_BANK, 0, "neighbours"))


def pack_outputs(outputs: Outputs) -> Tensor:
    """Scores and probabilities side by side, (B, 1 + K)."""
    return torch.cat([outputs.unknown_score[:, None], outputs.probs], 1)


def _unpack(values: Tensor, outputs: Outputs) -> Outputs:
    """The inverse of `pack_outputs`, with the features of these outputs."""
    return Outputs(values[:, 1:], values[:, 0], outputs.features)
