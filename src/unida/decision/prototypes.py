"""Target prototypes of version 0.1, for models that were stored with them.

They are no longer fitted: a class without a prototype can never be predicted again.
"""

import torch
from torch import Tensor, nn

TEMPERATURE = 0.1
"""Of the softmax over cosine similarities."""


class TargetPrototypes(nn.Module):
    """One direction a class, the mean of target images that confidently showed it.

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
