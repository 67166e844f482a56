"""Anchors: where in the target a known class lies, found without labels.

A classifier knows what a class looks like in the source. The target's own images of it lie
together, but elsewhere: its surest verdicts say where.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROUNDS = 3
SURE = 0.5
"""Share of the images the classifier accepts that anchors are made of, the surest."""
COMMON = 0.5
"""Of an even share of the accepted images: a class with more of them is surely there, and has an
anchor of its own surer half if none is among the surest."""
FEWEST = 20
"""Images a class that the classifier must accept, on average. In a target of a few hundred a class
is often missing among the surest by chance, and without an anchor it would be lost."""
TEMPERATURE = 0.1
"""Of likeness to the anchors, where probabilities are asked for."""

Hear = Callable[[Tensor], Tensor]


class Anchors(nn.Module):
    """A direction for each class: the mean of those target images that surely show it.

    First the classifier says which these are: the surer half of the images it accepts, by its own
    rule. Then, in further rounds, as many that are most like the anchors so far. An image is the
    more unknown the less it is like any anchor. A class that no sure image shows, and few accepted
    ones, has none: it is probably the source's alone, and nothing is given to it.

    The score is shifted so that as many images are below zero as the classifier accepts: it says
    how many are unknown, the anchors say which. If it accepts fewer than `FEWEST` a class, anchors
    would be built on too little, and it keeps the last word.

    Args:
        features: numbers that describe an image.
        n_classes: known classes.
    """

    directions: Tensor
    there: Tensor
    shift: Tensor

    def __init__(self, features: int, n_classes: int) -> None:
        super().__init__()
        self.register_buffer("directions", torch.zeros(n_classes, features))
        self.register_buffer("there", torch.zeros(n_classes, dtype=torch.bool))
        self.register_buffer("shift", torch.zeros(()))

    @property
    def decide(self) -> bool:
        """Whether they have the last word: they were found."""
        return bool(self.there.any())

    def says(self, rows: Tensor, classifier: Tensor) -> Tensor:
        """Score and probabilities of images, (B, 1 + K); until `fill`, the classifier's.

        Args:
            rows: (B, D), unit features.
            classifier: (B, 1 + K), its score and probabilities.
        """
        likeness = (rows @ self.directions.T).masked_fill(~self.there, -1.0)
        score = self.shift - likeness.amax(1, keepdim=True)
        said = torch.cat([score, (likeness / TEMPERATURE).softmax(1)], 1)
        return torch.where(self.there.any(), said, classifier)

    def fill(self, rows: Tensor, classifier: Tensor, hears: Sequence[Hear]) -> None:
        """Finds the anchors.

        Args:
            rows: (N, D), unit features of the target.
            classifier: (N, 1 + K), what it says of them.
            hears: give an image's neighbours their say, one after the other. Anchors are found by
                the first; how many images are unknown in the end is counted after all of them.
        """
        self.there.zero_()
        self.shift.zero_()
        hear, *others = hears
        said = hear(classifier)
        accepted = int((said[:, 0] < 0).sum())
        if accepted < FEWEST * len(self.there):
            return
        for _ in range(ROUNDS):
            self._place(rows, said, accepted)
            said = hear(self.says(rows, classifier))
        for other in others:
            said = other(said)
        self.shift.copy_(-_bound(said[:, 0], accepted))

    def _place(self, rows: Tensor, said: Tensor, accepted: int) -> None:
        """Anchors at the means of the images that are surest of their class."""
        surest_first = said[:, 0].argsort(stable=True)[:accepted]
        shown = F.one_hot(said[surest_first, 1:].argmax(1), len(self.there))
        sure = _sure(shown).to(rows.dtype)
        self.directions.copy_(F.normalize(sure.T @ rows[surest_first]))
        self.there.copy_(sure.any(0))


def _sure(shown: Tensor) -> Tensor:
    """What the surer half of the images shows, and the surer half of a common class it overlooks.

    Args:
        shown: (N, K), 1 for the class of each image, else 0; the surest first.

    Returns:
        The same, all 0 for the images that are not among these.
    """
    n, n_classes = shown.shape
    total = shown.sum(0)
    sure = shown * (torch.arange(n, device=shown.device) < SURE * n)[:, None]
    overlooked = ~sure.any(0) & (total >= COMMON * n / n_classes)
    own_half = shown.cumsum(0) <= torch.ceil(SURE * total)
    return sure + shown * (own_half & overlooked)


def _bound(scores: Tensor, below: int) -> Tensor:
    """A number with that many of the scores below it."""
    ordered = scores.sort().values
    return torch.cat([ordered[:1] - 1, ordered, ordered[-1:] + 1])[below : below + 2].mean()
