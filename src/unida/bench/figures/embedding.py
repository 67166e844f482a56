"""Features of a run in the plane, by t-SNE."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from unida.bench.arrays import Arrays
from unida.errors import UserError
from unida.types import IntArray
from unida.utils.rng import derive_seed

MOST_POINTS = 1000
"""Enough to show clusters, in a few seconds."""
FEWEST_POINTS = 5


class Position(NamedTuple):
    """Position of an image in the plane; `number` is its index in its domain's arrays."""

    domain: str
    number: int
    x: float
    y: float


def embed(arrays: Arrays, unknown: int, seed: int = 0) -> list[Position]:
    """Embed an even sample of both domains. Equal arrays and seed give equal positions."""
    rng = np.random.default_rng(derive_seed(seed, "t-SNE"))
    is_unknown = arrays.labels == unknown
    n_source = len(arrays.source_labels)
    classes = np.concatenate([arrays.source_labels.astype(str), arrays.true_class])
    part = np.concatenate([np.zeros(n_source), 1 + is_unknown])
    keep = _even_sample(part.astype(np.int64), classes, MOST_POINTS, rng)
    features = np.concatenate([arrays.source_features, arrays.features])[keep]
    if len(keep) < FEWEST_POINTS:
        raise UserError(f"{len(keep)} images are too few to be shown in the plane.")
    if not np.isfinite(features).all():
        raise UserError("Some features are not finite, so they have no place in the plane.")
    plane = _plane(features, derive_seed(seed, "t-SNE") % 2**32)
    return [
        Position("source", int(i), float(x), float(y))
        if i < n_source
        else Position("target", int(i) - n_source, float(x), float(y))
        for i, (x, y) in zip(keep, plane, strict=True)
    ]


def _plane(features: npt.NDArray[np.float32], seed: int) -> npt.NDArray[np.float32]:
    few = min(30.0, (len(features) - 1) / 3)
    # Several threads add in any order, and t-SNE amplifies a difference of the last bit.
    with threadpool_limits(1):
        model = TSNE(perplexity=few, init=_start(features), random_state=seed)
        plane: npt.NDArray[np.float32] = model.fit_transform(features)
    return plane


def _start(features: npt.NDArray[np.float32]) -> npt.NDArray[np.float32] | str:
    """Return the first two principal components as a start; random where there are none."""
    spread = features[:, :1].std()
    return features[:, :2] * (1e-4 / spread) if spread > 0 and features.shape[1] > 1 else "random"


def _even_sample(
    part: IntArray, classes: npt.NDArray[np.str_], most: int, rng: np.random.Generator
) -> IntArray:
    """Return indices of at most `most` images, balanced over parts and classes in a part."""
    parts = sorted((np.flatnonzero(part == p) for p in np.unique(part)), key=len)
    keep: list[IntArray] = []
    for number, indices in enumerate(parts):
        left = most - sum(map(len, keep))
        keep.append(_in_turn(indices, classes, left // (len(parts) - number), rng))
    return np.sort(np.concatenate(keep)) if keep else np.zeros(0, np.int64)


def _in_turn(
    indices: IntArray, classes: npt.NDArray[np.str_], most: int, rng: np.random.Generator
) -> IntArray:
    """Return one image of every class, then a second of every class, and so on."""
    shuffled = rng.permutation(indices)
    counts: dict[str, int] = {}
    turns = []
    for name in classes[shuffled].tolist():
        turns.append(counts.get(name, 0))
        counts[name] = turns[-1] + 1
    return shuffled[np.argsort(turns, kind="stable")][:most]
