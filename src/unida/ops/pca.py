"""Principal components that several sets of features share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unida.types import Features
from unida.utils.chunking import MAX_SAMPLES, subsample


def joint_pca(sets: Sequence[Features], dimensions: int, seed: int = 0) -> list[Features]:
    """Project sets of features onto their common principal components.

    The components are fitted on at most `MAX_SAMPLES` rows of all sets; every row is projected.

    Args:
        sets: arrays (N_i, D), such as the target and the source.
        dimensions: components to keep; fewer where there are fewer rows or columns.
        seed: of the sample and of the randomized solver.

    Returns:
        Arrays (N_i, dimensions) in the order of `sets`.
    """
    from sklearn.decomposition import PCA

    rows = np.concatenate(sets)
    sample = rows[subsample(len(rows), MAX_SAMPLES, seed, "pca")]
    n_components = min(dimensions, *sample.shape)
    pca = PCA(n_components, svd_solver="randomized", random_state=seed).fit(sample)
    chunks = np.array_split(rows, max(1, math.ceil(len(rows) / MAX_SAMPLES)))
    projected = np.concatenate([pca.transform(chunk) for chunk in chunks]).astype(np.float32)
    return np.split(projected, np.cumsum([len(features) for features in sets])[:-1])


@dataclass(frozen=True)
class Projection:
    """From rows of any length to principal components of rows of length one.

    Attributes:
        mean: (D,).
        components: (d, D), the one of the largest variance first.
    """

    mean: Tensor
    components: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        parts = [
            (torch.nn.functional.normalize(part.float(), dim=1) - self.mean) @ self.components.T
            for part in torch.split(rows, 4096)
        ]
        return torch.cat(parts)


def fit_projection(rows: Tensor, dimensions: int, seed: int = 0) -> Projection:
    """Fit a projection to rows (N, D), of many to a sample; with no dimensions it is empty."""
    from sklearn.decomposition import PCA

    index = torch.from_numpy(subsample(len(rows), MAX_SAMPLES, seed, "projection"))
    sample = torch.nn.functional.normalize(rows[index.to(rows.device)].float(), dim=1)
    if not dimensions:
        return Projection(sample.mean(0), sample[:0])
    n_components = min(dimensions, *sample.shape)
    pca = PCA(n_components, svd_solver="randomized", random_state=seed).fit(sample.cpu().numpy())
    mean, components = (torch.from_numpy(a).to(sample) for a in (pca.mean_, pca.components_))
    return Projection(mean, components)
