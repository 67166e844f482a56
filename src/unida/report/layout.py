"""Where images lie on the map: neighbours attract, all others repel.

The layout of UMAP (McInnes, Healy and Melville, 2018) in short: a graph of nearest neighbours,
whose edges pull with the weight of UMAP's fuzzy sets, and random pairs that push. It begins at the
two main directions. Differences: edges are not made symmetric, and all images move at once.
"""

import numpy as np
from sklearn.neighbors import NearestNeighbors

from unida.types import Features, FloatArray, IntArray
from unida.utils.rng import derive_seed

FEWEST = 20
"""Fewer images have no neighbourhoods to speak of: their two main directions are shown."""
NEIGHBOURS = 10
PUSHES = 3
A, B = 0.583, 1.334  # UMAP's curve for the smallest distance 0.5: marks should not hide each other
MOST_MOVE = 4.0


def layout_2d(features: Features, seed: int) -> tuple[FloatArray, str]:
    """Puts images into the plane.

    Args:
        features: of all images shown, (N, D), main directions first.
        seed: of the random pairs.

    Returns:
        Places (N, 2), and how they were found in words.
    """
    x = features.astype(np.float64)
    start = np.zeros((len(x), 2))
    start[:, : x.shape[1]] = x[:, :2]
    if len(x) < FEWEST or not np.ptp(start, axis=0).any():
        return start, "the two directions in which the features differ most"
    rng = np.random.default_rng(derive_seed(seed, "plane"))
    start *= 10 / np.abs(start).max()
    start += rng.normal(scale=1e-3, size=start.shape)  # equal images must not sit on one point
    return _spread(start, *_graph(x), rng), (
        "a map on which images with similar features lie close together (UMAP's layout); "
        "distances between far groups mean little"
    )


def _graph(x: FloatArray) -> tuple[IntArray, FloatArray]:
    """Nearest neighbours (N, k) of each image, and how strongly each of them pulls."""
    k = min(NEIGHBOURS, len(x) - 1)
    distance, near = NearestNeighbors(n_neighbors=k + 1, n_jobs=1).fit(x).kneighbors(x)
    distance, near = distance[:, 1:], near[:, 1:]
    beyond = distance - distance[:, :1]
    low, high = np.full(len(x), 1e-12), np.full(len(x), distance.max() + 1e-9)
    for _ in range(30):  # the width at which the pulls sum to log2 k
        width = (low + high) / 2
        wide = np.exp(-beyond / width[:, None]).sum(1) > np.log2(k + 1)
        high, low = np.where(wide, width, high), np.where(wide, low, width)
    return near, np.exp(-beyond / ((low + high) / 2)[:, None])


def _spread(
    place: FloatArray, near: IntArray, pull: FloatArray, rng: np.random.Generator
) -> FloatArray:
    n = len(place)
    rounds = int(np.clip(600_000 / n, 80, 150))
    every = np.arange(n)
    for done in range(rounds):
        step = 1 - done / rounds
        for k in range(near.shape[1]):  # one edge of each image at a time, or they overshoot
            heads = every[rng.random(n) < pull[:, k]]
            tails = near[heads, k]
            gap = place[heads] - place[tails]
            far = (gap**2).sum(1) + 1e-9
            move = step * _limited(gap * (-2 * A * B * far ** (B - 1) / (1 + A * far**B))[:, None])
            _add(place, heads, move)
            _add(place, tails, -move)
            heads = np.tile(heads, PUSHES)
            gap = place[heads] - place[rng.integers(0, n, len(heads))]
            far = (gap**2).sum(1)
            push = 2 * B / ((0.001 + far) * (1 + A * far**B))
            _add(place, heads, step * _limited(gap * push[:, None]))
    return place


def _limited(move: FloatArray) -> FloatArray:
    return np.clip(move, -MOST_MOVE, MOST_MOVE)


def _add(place: FloatArray, index: IntArray, move: FloatArray) -> None:
    """Adds moves, several to the same image too; `np.add.at` is slower."""
    for axis in (0, 1):
        place[:, axis] += np.bincount(index, move[:, axis], minlength=len(place))


def to_grid(place: FloatArray, steps: int = 65535) -> IntArray:
    """Places as whole numbers from 0 to `steps`, in the middle, the longer way across."""
    centred = place - place.mean(0)
    place = centred @ np.linalg.svd(centred, full_matrices=False)[2].T  # screens are wide
    low, high = place.min(0), place.max(0)
    scale = steps / max(float((high - low).max()), 1e-12)
    grid: IntArray = np.rint((place - (low + high) / 2) * scale + steps / 2).astype(np.int64)
    return grid
