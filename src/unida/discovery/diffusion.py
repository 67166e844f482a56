"""Diffusion: every image moves towards its neighbours, so that images of one kind come together."""

import numpy as np
from scipy.sparse import csr_matrix, diags_array

from unida.discovery.clusters import normalize_rows
from unida.types import Features, FloatArray, IntArray

NEIGHBOURS = 20
ROWS_PER_NEIGHBOUR = 15
"""Of few images fewer neighbours are taken, or kinds would run together."""
STEPS = 3
OWN = 0.3
"""Weight of an image's own features against the mean of its neighbours."""
SHARPNESS = 3
"""Exponent of the cosines that neighbours are weighted by."""
CHUNK = 4096
"""Rows whose similarities are held in memory at a time."""


def diffuse(x: Features) -> Features:
    """Diffuse unit rows (N, D) over the graph of their nearest neighbours; quadratic in N."""
    count = _neighbours(len(x))
    if count < 1:
        return x
    index, weight = _nearest(x, x, count, own=True)
    rows = np.repeat(np.arange(len(x)), count)
    graph = csr_matrix((weight.ravel(), (rows, index.ravel())), (len(x), len(x)))
    graph = (graph + graph.T) / 2
    degree = np.asarray(graph.sum(1)).ravel()
    mean = diags_array(1 / np.where(degree == 0, 1, degree)) @ graph
    moved = x
    for _ in range(STEPS):
        moved = normalize_rows(OWN * x + (1 - OWN) * (mean @ moved))
    return moved


def diffuse_more(x: Features, sample: Features, diffused: Features) -> Features:
    """Diffuse further unit rows (N, D) towards rows that are diffused already; linear in N.

    Args:
        x: the rows.
        sample: the others, (M, D), as they were.
        diffused: the others now.
    """
    count = _neighbours(len(sample))
    if count < 1:
        return x
    moved = np.empty_like(x)
    for start in range(0, len(x), CHUNK):
        part = x[start : start + CHUNK]
        index, weight = _nearest(part, sample, count, own=False)
        total = weight.sum(1, keepdims=True)
        weight = weight / np.where(total == 0, 1, total)
        mean = np.einsum("nk,nkd->nd", weight, diffused[index])
        moved[start : start + CHUNK] = normalize_rows(OWN * part + (1 - OWN) * mean)
    return moved


def _neighbours(rows: int) -> int:
    return min(NEIGHBOURS, max(3, rows // ROWS_PER_NEIGHBOUR), rows - 1)


def _nearest(x: Features, others: Features, count: int, own: bool) -> tuple[IntArray, FloatArray]:
    """Return nearest rows and their weights; where x are the others themselves (`own`), not x."""
    index = np.empty((len(x), count), np.int64)
    weight = np.empty((len(x), count), np.float32)
    for start in range(0, len(x), CHUNK):
        part = slice(start, min(start + CHUNK, len(x)))
        cosine = x[part] @ others.T
        if own:
            cosine[np.arange(part.stop - start), np.arange(start, part.stop)] = -np.inf
        index[part] = np.argpartition(-cosine, count - 1, axis=1)[:, :count]
        weight[part] = np.take_along_axis(cosine, index[part], 1)
    return index, np.maximum(weight, 0) ** SHARPNESS
