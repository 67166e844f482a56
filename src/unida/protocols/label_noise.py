"""Symmetric label noise, for benchmarks of robustness."""

import numpy as np

from unida.errors import require
from unida.types import IntArray
from unida.utils.rng import derive_seed


def flip_labels(labels: IntArray, n_classes: int, share: float, seed: int) -> IntArray:
    """Change exactly round(share · N) labels to another class.

    Each new label is drawn uniformly from the other classes. With one seed a larger share changes
    the labels of a smaller one in the same way and some more, so that a curve over shares is a
    paired comparison.

    Args:
        labels: classes from 0 to `n_classes` − 1, (N,).
        n_classes: how many classes there are.
        share: of labels to change, from 0 to 1.
        seed: of the draws.

    Returns:
        The labels with noise; the input is not changed.
    """
    require(0 <= share <= 1, "label_noise", share, "from 0 to 1")
    n_flips = round(share * len(labels))
    require(n_flips == 0 or n_classes > 1, "label_noise", share, "0 where there is one class")
    noisy = labels.copy()
    if n_flips:
        draw = np.random.default_rng(derive_seed(seed, "label noise"))
        changed = draw.permutation(len(labels))
        steps = draw.integers(1, n_classes, len(labels))  # 1 … n − 1 further: never the same class
        changed, steps = changed[:n_flips], steps[:n_flips]
        noisy[changed] = (labels[changed] + steps) % n_classes
    return noisy
