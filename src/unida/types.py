"""What flows between the rooms."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

UNKNOWN = "unknown"
"""The label of an image that is none of the known classes."""


@dataclass(frozen=True)
class Batch:
    """What a method sees in one step: float images in [0, 1] of shape (B, 3, size, size).

    A tuple of views holds the same images in the same order, each view with its own draw.
    """

    source_views: tuple[Tensor, ...]
    source_labels: Tensor
    target_views: tuple[Tensor, ...]


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
    """`Outputs` of a whole set, as arrays on the host."""

    probs: FloatArray
    unknown_score: FloatArray
    features: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Prediction:
    """The verdict on one image.

    Attributes:
        path: where the image came from; None for an image handed over in memory.
        label: a known class, or `unknown`.
        confidence: probability of the most likely known class, whatever the verdict.
        unknown_score: the method's score; the reject rule compares it with its threshold.
        rule: the reject rule that decided.
    """

    path: Path | None
    label: str
    confidence: float
    unknown_score: float
    rule: str
