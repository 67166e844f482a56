"""Heads: what sits on the backbone's features."""

import torch.nn.functional as F
from torch import Tensor, nn


class Projection(nn.Sequential):
    """Projection H: y → z, a two-layer perceptron.

    The paper says "two-layer MLP with 2048 neurons"; the released code has 2048 → 4096 → 2048
    with batch norm and leaky ReLU, that is `hidden` twice and `out` once the features.
    """

    def __init__(self, features: int, hidden: int, out: int) -> None:
        super().__init__(
            nn.Linear(features, hidden),
            nn.BatchNorm1d(hidden),
            nn.LeakyReLU(0.01),
            nn.Linear(hidden, out),
        )
        self.out_features = out


class UnitLinear(nn.Linear):
    """A linear layer without bias whose rows have unit length, divided by a temperature."""

    def __init__(self, features: int, out: int, temperature: float = 1.0) -> None:
        super().__init__(features, out, bias=False)
        self.temperature = temperature

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, F.normalize(self.weight)) / self.temperature


class AllInOne(nn.Module):
    """All-in-One classifier: z → logits (B, 2, K), `[:, 0]` "is not k", `[:, 1]` "is k".

    Args:
        features: of z.
        n_classes: K.
        hashed: the released code's form, unit rows at temperature 0.05 and a sigmoid before the
            linear layer; otherwise linear on z, as in the paper.
    """

    def __init__(self, features: int, n_classes: int, hashed: bool = False) -> None:
        super().__init__()
        self.n_classes = n_classes
        self.hash = (
            nn.Sequential(UnitLinear(features, features, 0.05), nn.Sigmoid())
            if hashed
            else nn.Identity()
        )
        self.linear = nn.Linear(features, 2 * n_classes, bias=False)

    def forward(self, z: Tensor) -> Tensor:
        logits: Tensor = self.linear(self.hash(z))
        return logits.view(-1, 2, self.n_classes)
