"""Types that packages exchange."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Features = npt.NDArray[np.float32]

UNKNOWN = "unknown"
"""The label of an image that is none of the known classes."""


@dataclass(frozen=True)
class Sizes:
    """Sizes that a method's parts, memories and schedules depend on.

    With `frozen`, only heads are trained, perhaps without a GPU; `schedule` is the learning rate's.
    """

    n_classes: int
    n_source: int
    n_target: int
    batch: int
    steps: int
    frozen: bool = False
    schedule: str = "inverse_decay"


@dataclass(frozen=True)
class Batch:
    """The images of one step: float images in [0, 1] of shape (B, 3, size, size).

    A tuple of views holds the same images in the same order, each view with its own random numbers.

    Attributes:
        step: number of the step, from 0.
        source_views: views of the source images; empty where the method uses none.
        source_labels: their classes.
        source_index: their numbers in the source.
        target_views: views of the target images; empty where the method uses none.
        target_index: their numbers in the target.
        extra: the images requested by `Method.extra`, by name.
    """

    step: int
    source_views: tuple[Tensor, ...]
    source_labels: Tensor
    source_index: Tensor
    target_views: tuple[Tensor, ...]
    target_index: Tensor
    extra: dict[str, Tensor] = field(default_factory=dict)

    def tensors(self) -> list[Tensor]:
        """Return all tensors in a fixed order."""
        numbers = [self.source_labels, self.source_index, self.target_index]
        return [*self.source_views, *self.target_views, *numbers, *self.extra.values()]


@dataclass(frozen=True)
class Outputs:
    """Outputs of a method on N images.

    Attributes:
        probs: (N, K), class probabilities over the known classes.
        unknown_score: (N,), higher means more likely unknown; the method's own rule rejects from
            zero on.
        features: (N, D), the features that the classifier uses.
    """

    probs: Tensor
    unknown_score: Tensor
    features: Tensor


@dataclass(frozen=True)
class Scored:
    """`Outputs` on a whole set, as arrays on the host; features are (N, 0) if not kept."""

    probs: FloatArray
    unknown_score: FloatArray
    features: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Prediction:
    """The prediction for one image.

    Attributes:
        path: where the image came from; None for an image in memory.
        label: a known class, or `unknown`.
        confidence: probability of the most likely known class, whatever the label; calibrated
            where source images were held out (`unida.decision.calibration`).
        unknown_score: the method's score; the reject rule compares it with its threshold.
        rule: the reject rule that was applied.
    """

    path: Path | None
    label: str
    confidence: float
    unknown_score: float
    rule: str
