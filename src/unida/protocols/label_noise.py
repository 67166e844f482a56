"""Wrong labels on purpose: how well does a method bear them?"""

import numpy as np

from unida.errors import require
from unida.types import IntArray
from unida.utils.rng import derive_seed


def flip_labels(labels: IntArray, n_classes: int, share: float, seed: int) -> IntArray:
    """Symmetric label noise: exactly round(share · N) labels become another class.

    Each changed label is drawn evenly from the other classes. With one seed a larger share changes
    the labels of a smaller one in the same way and then some more, so a curve over shares compares
    like with like.

    Args:
        labels: classes from 0 to `n_classes` − 1, (N,).
        n_classes: how many classes there are.
        share: of labels to change, from 0 to 1.
        seed: of the draws.

    Returns:
        The labels with noise; the given ones stay as they are.
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
