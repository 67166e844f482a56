"""k-NN smoothing: average a prediction with those on the most similar target images."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

K = 6
"""Neighbours that are averaged over."""

_SAME_IMAGE = 1e-4
"""Squared distance below which two rows are one image: another device or batch rounds otherwise."""


class KNNSmoothing(nn.Module):
    """Similarity-weighted mean of values over an image and its nearest target images.

    The k nearest neighbours of an image are searched among target and source images. With
    similarity P_ij = exp(−d²_ij / u), where d² is the squared distance of centred unit features and
    u its mean over the target, the values v_i of image i become
    (v_i + Σ_j P_ij v_j) / (1 + Σ_j P_ij), where j runs over the target images among the k. Source
    images contribute no values. Where they are half of the k or more, the image keeps its own
    values: it lies in the source, such as one of a class that the target lacks. An image is not
    its own neighbour.

    Args:
        n_images: target images that are kept.
        n_features: length of a feature vector.
        n_values: values an image has.
        k: neighbours.
        n_source: source images that are kept.
    """

    bank: Tensor
    values: Tensor
    centre: Tensor
    scale: Tensor

    def __init__(
        self, n_images: int, n_features: int, n_values: int, k: int, n_source: int = 0
    ) -> None:
        super().__init__()
        self.k = k
        self.register_buffer("bank", torch.zeros(n_images + n_source, n_features))
        self.register_buffer("values", torch.zeros(n_images, n_values))
        self.register_buffer("centre", torch.zeros(n_features))
        self.register_buffer("scale", torch.zeros(()))

    def fit(self, features: Tensor, values: Tensor, source: Tensor) -> Tensor:
        """Keep the target's features (N, D) and values (N, S), and the source's features (M, D).

        Returns:
            The smoothed values of these target images, (N, S).
        """
        self.centre.copy_(features.mean(0))
        self.bank.copy_(self.normalise(torch.cat([features, source])))
        self.values.copy_(values)
        rows = self.bank[: len(features)]
        parts = [self._nearest(part) for part in torch.split(rows, 1024)]
        d2, index = (torch.cat(column) for column in zip(*parts, strict=True))
        self.scale.copy_(d2.mean())
        return self._mean(values, d2, index)

    def normalise(self, features: Tensor) -> Tensor:
        """Centre features at the target's mean and scale each row to unit length."""
        return F.normalize(features - self.centre)

    def smooth(self, rows: Tensor, values: Tensor) -> Tensor:
        """Average values (B, S) of images at `rows` (B, D) with the kept ones of their neighbours.

        Args:
            rows: normalised features.
            values: of the same images.
        """
        return self._mean(values, *self._nearest(rows))

    def _mean(self, values: Tensor, d2: Tensor, index: Tensor) -> Tensor:
        last = len(self.values) - 1
        in_target = index <= last
        in_target &= (in_target.sum(1, keepdim=True) * 2) > self.k
        similarity = torch.exp(-d2 / self.scale.clamp_min(1e-12)) * in_target
        neighbours = self.values[index.clamp_max(last)]
        total = values + torch.einsum("bk,bks->bs", similarity, neighbours)
        return total / (1 + similarity.sum(1, keepdim=True))

    def _nearest(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Squared distances (B, k) of the nearest neighbours, and their indices."""
        d2 = (2 - 2 * rows @ self.bank.T).clamp_min(0)
        d2, index = d2.masked_fill(d2 < _SAME_IMAGE, 4.0).topk(self.k, largest=False)
        return d2, index
