"""Places of images on the map: nearest neighbours attract, random pairs repel.

A short version of UMAP's layout (McInnes, Healy and Melville, 2018): a graph of nearest neighbours
whose edges attract with the weight of UMAP's fuzzy sets, and random pairs that repel, initialized
by the first two principal components. Differences: edges are not made symmetric, and all images
move at once.
"""

import numpy as np
from sklearn.neighbors import NearestNeighbors

from unida.types import Features, FloatArray, IntArray
from unida.utils.rng import derive_seed

MIN_LAYOUT_IMAGES = 20
"""Of fewer images the first two principal components are shown."""
NEIGHBOURS = 10
NEGATIVE_SAMPLES = 3
A, B = 0.583, 1.334  # UMAP's curve for min_dist 0.5, so that marks do not hide each other
MAX_STEP = 4.0


def layout_2d(features: Features, seed: int) -> tuple[FloatArray, str]:
    """Place images in the plane.

    Args:
        features: (N, D), principal components of all images shown.
        seed: of the random pairs.

    Returns:
        Places (N, 2), and a description of how they were found.
    """
    x = features.astype(np.float64)
    start = np.zeros((len(x), 2))
    start[:, : x.shape[1]] = x[:, :2]
    if len(x) < MIN_LAYOUT_IMAGES or not np.ptp(start, axis=0).any():
        return start, "the first two principal components of the features"
    rng = np.random.default_rng(derive_seed(seed, "plane"))
    start *= 10 / np.abs(start).max()
    start += rng.normal(scale=1e-3, size=start.shape)  # equal images must not share a point
    return _optimize(start, *_graph(x), rng), (
        "UMAP's layout: images with similar features lie close together; "
        "distances between far groups mean little"
    )


def _graph(x: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return nearest neighbours (N, k) of each image, and the weights of these edges."""
    k = min(NEIGHBOURS, len(x) - 1)
    distance, near = NearestNeighbors(n_neighbors=k + 1, n_jobs=1).fit(x).kneighbors(x)
    distance, near = distance[:, 1:], near[:, 1:]
    beyond = distance - distance[:, :1]
    low, high = np.full(len(x), 1e-12), np.full(len(x), distance.max() + 1e-9)
    for _ in range(30):  # bisection for the width at which the weights sum to log2 k
        width = (low + high) / 2
        too_wide = np.exp(-beyond / width[:, None]).sum(1) > np.log2(k + 1)
        high, low = np.where(too_wide, width, high), np.where(too_wide, low, width)
    return near, np.exp(-beyond / ((low + high) / 2)[:, None])


def _optimize(
    place: FloatArray, near: IntArray, weight: FloatArray, rng: np.random.Generator
) -> FloatArray:
    n = len(place)
    n_iter = int(np.clip(600_000 / n, 80, 150))
    everything = np.arange(n)
    for i in range(n_iter):
        step = 1 - i / n_iter
        for k in range(near.shape[1]):  # one edge of each image at a time, against overshooting
            heads = everything[rng.random(n) < weight[:, k]]
            tails = near[heads, k]
            gap = place[heads] - place[tails]
            squared = (gap**2).sum(1) + 1e-9
            move = step * _clip(
                gap * (-2 * A * B * squared ** (B - 1) / (1 + A * squared**B))[:, None]
            )
            _add(place, heads, move)
            _add(place, tails, -move)
            heads = np.tile(heads, NEGATIVE_SAMPLES)
            gap = place[heads] - place[rng.integers(0, n, len(heads))]
            squared = (gap**2).sum(1)
            repulsion = 2 * B / ((0.001 + squared) * (1 + A * squared**B))
            _add(place, heads, step * _clip(gap * repulsion[:, None]))
    return place


def _clip(move: FloatArray) -> FloatArray:
    return np.clip(move, -MAX_STEP, MAX_STEP)


def _add(place: FloatArray, index: IntArray, move: FloatArray) -> None:
    """Add moves, also several to one image; faster than `np.add.at`."""
    for axis in (0, 1):
        place[:, axis] += np.bincount(index, move[:, axis], minlength=len(place))


def to_grid(place: FloatArray, steps: int = 65535) -> IntArray:
    """Scale places to whole numbers from 0 to `steps`, centred, the longer axis horizontal."""
    centred = place - place.mean(0)
    place = centred @ np.linalg.svd(centred, full_matrices=False)[2].T  # screens are wide
    low, high = place.min(0), place.max(0)
    scale = steps / max(float((high - low).max()), 1e-12)
    grid: IntArray = np.rint((place - (low + high) / 2) * scale + steps / 2).astype(np.int64)
    return grid
