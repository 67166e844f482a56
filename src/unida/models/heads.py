"""Heads on the backbone's features: projection, neck and classifiers."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Projection(nn.Sequential):
    """Projection H: y → z, a two-layer perceptron.

    The paper states a "two-layer MLP with 2048 neurons"; the released code has 2048 → 4096 → 2048
    with batch norm and leaky ReLU, that is `out` once the features and `hidden` twice that.
    """

    def __init__(self, features: int, hidden: int, out: int) -> None:
        super().__init__(
            nn.Linear(features, hidden),
            nn.BatchNorm1d(hidden),
            nn.LeakyReLU(0.01),
            nn.Linear(hidden, out),
        )
        self.out_features = out

    def forward(self, *batches: Tensor) -> Tensor:
        """Compute z of all batches, concatenated; batch norm gets one batch at a time.

        The result equals one forward a batch, with each weight read once.
        """
        before, norm, leaky, after = self
        parts = torch.split(before(torch.cat(batches)), [batch.shape[0] for batch in batches])
        z: Tensor = after(leaky(torch.cat([norm(part) for part in parts])))
        return z


class Neck(nn.Sequential):
    """Backbone features → z: a linear layer and batch norm, nothing after it.

    Batch norm has the bias, so the linear layer needs none.
    """

    def __init__(self, features: int, out: int) -> None:
        super().__init__(nn.Linear(features, out, bias=False), nn.BatchNorm1d(out))
        self.out_features = out


class UnitLinear(nn.Linear):
    """A linear layer without bias whose rows have unit length, divided by a temperature."""

    def __init__(self, features: int, out: int, temperature: float = 1.0) -> None:
        super().__init__(features, out, bias=False)
        self.temperature = temperature

    def forward(self, x: Tensor) -> Tensor:
        # Dividing the output is less work than dividing the weights, and equivalent.
        lengths: Tensor = torch.linalg.vector_norm(self.weight, dim=1)
        return F.linear(x, self.weight) / (self.temperature * lengths.clamp_min(1e-12))

    @torch.no_grad()
    def scale_rows(self) -> None:
        """Set the rows to unit length: no output changes, only how far a step rotates them."""
        self.weight.copy_(F.normalize(self.weight))


class AllInOne(nn.Module):
    """All-in-One classifier: z → logits over the classes (B, K) and pairs (B, 2, K).

    Of the pairs, `[:, 0]` says "is not k" and `[:, 1]` "is k"; the latter are the class logits.

    Args:
        features: of z.
        n_classes: K.
        hashed: the released code's form, unit rows at temperature 0.05 and a sigmoid before the
            linear layer; otherwise linear on z, the simplest reading of the paper.
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

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        pairs = self.linear(self.hash(z)).view(-1, 2, self.n_classes)
        return pairs[:, 1], pairs

    @staticmethod
    def unknown_score(closed: Tensor, pairs: Tensor) -> Tensor:
        """By how much the largest "is not k" exceeds the largest "is k": (B,)."""
        return pairs[:, 0].amax(1) - closed.amax(1)


class ClosedAndOpen(nn.Module):
    """OVANet's two classifiers: f → logits over the classes (B, K) and pairs (B, 2, K).

    The closed one is linear; the open one holds a pair of unit rows a class, `[:, 0]` "is not k",
    `[:, 1]` "is k".
    """

    def __init__(self, features: int, n_classes: int) -> None:
        super().__init__()
        self.n_classes = n_classes
        self.closed = nn.Linear(features, n_classes, bias=False)
        self.open = UnitLinear(features, 2 * n_classes)
        self.open.scale_rows()

    def forward(self, f: Tensor) -> tuple[Tensor, Tensor]:
        pairs: Tensor = self.open(f)
        return self.closed(f), pairs.view(-1, 2, self.n_classes)

    @staticmethod
    def unknown_score(closed: Tensor, pairs: Tensor) -> Tensor:
        """Score the most likely class (`pair_score`)."""
        return pair_score(closed, pairs)


def pair_score(closed: Tensor, pairs: Tensor) -> Tensor:
    """By how much "is not k" exceeds "is k" for the most likely class k: (B,)."""
    not_k, is_k = pairs.unbind(1)
    return (not_k - is_k).gather(1, closed.argmax(1, keepdim=True))[:, 0]
