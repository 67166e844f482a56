"""Principal components that several sets of features share."""

import math
from collections.abc import Sequence

import numpy as np

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
