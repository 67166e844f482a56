"""Target prototypes: where each known class lies in the target, estimated without labels."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROUNDS = 3
CONFIDENT_FRACTION = 0.5
"""Fraction of the accepted images, the most confident, that prototypes are means of."""
MIN_CLASS_FRACTION = 0.5
"""Of an even share of the accepted images. A class that is predicted more often is present, and
gets a prototype from its own more confident half if the confident images show none of it."""
MIN_PER_CLASS = 20
"""Accepted images a class, on average, that prototypes require. On a target of a few hundred
images a class is often missing among the confident by chance, and would be lost."""
TEMPERATURE = 0.1
"""Of the softmax over cosine similarities."""

Smoothing = Callable[[Tensor], Tensor]


class TargetPrototypes(nn.Module):
    """One direction a class: the mean of target images that confidently show it.

    The first round takes the more confident half of the images that the classifier accepts by its
    own rule; each further round takes as many, ranked by similarity to the prototypes so far. The
    unknown score is minus the largest cosine similarity. It is shifted so that as many images are
    accepted as by the classifier: the classifier decides how many images are unknown, the
    prototypes decide which. A class without prototype is not predicted. With fewer than
    `MIN_PER_CLASS` accepted images a class there are no prototypes, and the classifier decides.

    Args:
        n_features: length of a feature vector.
        n_classes: known classes.
    """

    directions: Tensor
    present: Tensor
    shift: Tensor

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.register_buffer("directions", torch.zeros(n_classes, n_features))
        self.register_buffer("present", torch.zeros(n_classes, dtype=torch.bool))
        self.register_buffer("shift", torch.zeros(()))

    @property
    def is_fitted(self) -> bool:
        """Whether there are prototypes; without them the classifier decides."""
        return bool(self.present.any())

    def score(self, rows: Tensor, values: Tensor) -> Tensor:
        """Unknown score and class probabilities of images, (B, 1 + K).

        Args:
            rows: (B, D), unit features.
            values: (B, 1 + K), the classifier's; returned where there are no prototypes.
        """
        similarity = (rows @ self.directions.T).masked_fill(~self.present, -1.0)
        score = self.shift - similarity.amax(1, keepdim=True)
        own = torch.cat([score, (similarity / TEMPERATURE).softmax(1)], 1)
        return torch.where(self.present.any(), own, values)

    def fit(self, rows: Tensor, values: Tensor, smoothings: Sequence[Smoothing]) -> None:
        """Estimate the prototypes.

        Args:
            rows: (N, D), unit features of the target.
            values: (N, 1 + K), the classifier's score and probabilities.
            smoothings: applied to values, one after the other. Prototypes are estimated after the
                first; the number of accepted images is matched after all of them.
        """
        self.present.zero_()
        self.shift.zero_()
        smooth, *others = smoothings
        smoothed = smooth(values)
        n_accepted = int((smoothed[:, 0] < 0).sum())
        if n_accepted < MIN_PER_CLASS * len(self.present):
            return
        for _ in range(ROUNDS):
            self._update(rows, smoothed, n_accepted)
            smoothed = smooth(self.score(rows, values))
        for other in others:
            smoothed = other(smoothed)
        self.shift.copy_(-_threshold(smoothed[:, 0], n_accepted))

    def _update(self, rows: Tensor, values: Tensor, n_accepted: int) -> None:
        """Move the prototypes to the means of the images that confidently show their class."""
        accepted = values[:, 0].argsort(stable=True)[:n_accepted]
        predicted = F.one_hot(values[accepted, 1:].argmax(1), len(self.present))
        confident = _select_confident(predicted).to(rows.dtype)
        self.directions.copy_(F.normalize(confident.T @ rows[accepted]))
        self.present.copy_(confident.any(0))


def _select_confident(predicted: Tensor) -> Tensor:
    """Keep the confident half of all images, and that of each frequent class missing there.

    Args:
        predicted: (N, K), one-hot predictions; the most confident image first.

    Returns:
        The same, zero for the images that are not selected.
    """
    n, n_classes = predicted.shape
    counts = predicted.sum(0)
    rank = torch.arange(n, device=predicted.device)
    confident = predicted * (rank < CONFIDENT_FRACTION * n)[:, None]
    missing = ~confident.any(0) & (counts >= MIN_CLASS_FRACTION * n / n_classes)
    own_half = predicted.cumsum(0) <= torch.ceil(CONFIDENT_FRACTION * counts)
    return confident + predicted * (own_half & missing)


def _threshold(scores: Tensor, below: int) -> Tensor:
    """A number with that many of the scores below it."""
    ordered = scores.sort().values
    return torch.cat([ordered[:1] - 1, ordered, ordered[-1:] + 1])[below : below + 2].mean()
