"""What flows between the rooms."""

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
    """What a method may size its parts, memories and schedules by.

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
    """What a method sees in one step: float images in [0, 1] of shape (B, 3, size, size).

    A tuple of views holds the same images in the same order, each view with its own draw.

    Attributes:
        step: number of the step, from 0.
        source_views: views of the source images; empty where the method asks for none.
        source_labels: their classes.
        source_index: their numbers in the source.
        target_views: views of the target images; empty where the method asks for none.
        target_index: their numbers in the target.
        extra: the images a method asked for by `Method.extra`, by its names.
    """

    step: int
    source_views: tuple[Tensor, ...]
    source_labels: Tensor
    source_index: Tensor
    target_views: tuple[Tensor, ...]
    target_index: Tensor
    extra: dict[str, Tensor] = field(default_factory=dict)

    def tensors(self) -> list[Tensor]:
        """All of them, in a fixed order."""
        numbers = [self.source_labels, self.source_index, self.target_index]
        return [*self.source_views, *self.target_views, *numbers, *self.extra.values()]


@dataclass(frozen=True)
class Outputs:
    """What a method says of N images.

    Attributes:
        probs: (N, K), class probabilities over the known classes.
        unknown_score: (N,), larger is stranger; the method's own rule rejects at zero and above.
        features: (N, D), the representation the decision was made on.
    """

    probs: Tensor
    unknown_score: Tensor
    features: Tensor


@dataclass(frozen=True)
class Scored:
    """`Outputs` of a whole set, as arrays on the host; features (N, 0) where nobody wants them."""

    probs: FloatArray
    unknown_score: FloatArray
    features: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Prediction:
    """The verdict on one image.

    Attributes:
        path: where the image came from; None for an image handed over in memory.
        label: a known class, or `unknown`.
        confidence: probability of the most likely known class, whatever the verdict; calibrated
            where source images were held out (`unida.decision.calibration`).
        unknown_score: the method's score; the reject rule compares it with its threshold.
        rule: the reject rule that decided.
    """

    path: Path | None
    label: str
    confidence: float
    unknown_score: float
    rule: str
