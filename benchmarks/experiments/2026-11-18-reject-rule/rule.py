"""A reject rule for every category shift: one threshold on unknown scores, without target labels.

Three observations about a target, none of which depends on the number of classes:

* Masked scores. The unknown score of an image computed again with its best class taken away is
  what an image of an unknown class would score *in this domain*. Between the typical masked score
  (0) and the typical score (1) of accepted images, one at a quarter or less is certainly unknown.
* Reach. Every source image has nearest target images. Where all target classes are known,
  these spread over the target nearly as far as the target's own neighbours do; where many are
  unknown, they cover a part of it only. The reach is the ratio of the two effective shares (inverse
  participation ratios), in the features the method decides on.
* Two groups. Only where the reach is low is a mixture of two groups in the scores taken
  to be known against unknown: badly recognised known images form a second group just as well.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

FEWEST = 20
"""Images below which nothing is fitted to the target."""
CLEAR = 0.25
"""Place between masked and accepted scores below which an image is unknown in any case."""
OPEN = 0.46
"""Reach below which the target is taken to hold many unknown images: halfway between the largest
of open-set runs (.44) and the least of closed ones (.48) on five exploration tasks."""
CAUTION = 0.25
"""Share of the missing reach that is rejected although two groups are not assumed."""
NEIGHBOURS, SMOOTHING = 20, 6
MOST, QUERIES = 5000, 2000


@dataclass(frozen=True)
class Scores:
    """Outputs of a method on N images.

    Attributes:
        unknown: (N,), unknown scores after k-NN smoothing; higher means more likely unknown.
        masked: (N,), the same score with the best class taken away.
        features: (N, D), the features the method decides on.
    """

    unknown: Array
    masked: Array
    features: npt.NDArray[np.floating]


@dataclass(frozen=True)
class Fit:
    """A fitted rule: an image is unknown if its score is `threshold` or more.

    Attributes:
        threshold: infinite where nothing is rejected.
        share: estimated share of unknown target images.
        interval: rough lower and upper bound of it.
        note: what was found, in words.
    """

    threshold: float
    share: float
    interval: tuple[float, float]
    note: str


def fit_threshold(
    target: Scores,
    source: npt.NDArray[np.floating],
    two_groups: "Callable[[Array], float | None] | None" = None,
) -> Fit:
    """Fits the threshold to an unlabelled target.

    Args:
        target: scores of the target; images whose score is no number are ignored.
        source: (M, D), features of source images.
        two_groups: where two groups in the scores cross; by default `crossing`. The library's own
            `two_groups.fit` (gamma or Gaussian lower group) was better in every setting measured.
    """
    fine = np.isfinite(target.unknown) & np.isfinite(target.masked)
    u, v = np.asarray(target.unknown, float)[fine], np.asarray(target.masked, float)[fine]
    if len(u) < FEWEST or np.ptp(u) <= 1e-9 * max(1.0, float(np.abs(u).max())):
        return Fit(math.inf, 0.0, (0.0, 1.0), "too few or equal scores; nothing is rejected")
    ratio = reach(np.asarray(source)[: 10**6], np.asarray(target.features)[fine])
    clear = clear_threshold(u, v)
    missing = float(np.clip(1 - ratio, 0.0, 1.0))
    if ratio < OPEN:
        found = (two_groups or crossing)(u)
        threshold = min(clear, math.inf if found is None else found)
        note = f"the source reaches {ratio:.0%} of the target: many images are unknown"
        share = float(np.mean(u >= threshold))
        return Fit(threshold, share, (max(0.0, share - 0.2), min(1.0, share + 0.2)), note)
    cautious = float(np.quantile(u, 1 - CAUTION * missing)) if missing > 0 else math.inf
    threshold = min(clear, cautious)
    share = float(np.mean(u >= clear))
    note = f"the source reaches {ratio:.0%} of the target: "
    note += "no sign of many unknown images" if share > 0.02 else "no sign of unknown classes"
    return Fit(threshold, share, (0.0, max(share, missing)), note)


def clear_threshold(unknown: Array, masked: Array, place: float = CLEAR) -> float:
    """Return the score at `place` between masked (0) and plain scores (1) of accepted images."""
    known, hidden = -unknown, -masked
    m0 = float(np.median(hidden))
    threshold = m0 + place * (float(np.quantile(known, 0.9)) - m0)
    for _ in range(50):
        accepted = known >= threshold
        if accepted.sum() < 3:
            break
        m0, m1 = float(np.median(hidden[accepted])), float(np.median(known[accepted]))
        if m1 <= m0:  # masking does not raise the scores: they do not separate
            return math.inf
        new = m0 + place * (m1 - m0)
        if abs(new - threshold) < 1e-9:
            break
        threshold = new
    return float(np.nextafter(-threshold, math.inf))


def reach(source: npt.NDArray[np.floating], target: npt.NDArray[np.floating]) -> float:
    """How far the source's nearest target images spread, relative to the target's own; about 1
    where every target class is known, more where the source has further classes."""
    rng = np.random.default_rng(0)
    s, t = _unit(_sample(source, QUERIES, rng)), _unit(_sample(target, MOST, rng))
    n = len(t)
    k = min(NEIGHBOURS, n // 8)
    if k < 1 or len(s) < 2:
        return 1.0
    m = min(len(s), n, QUERIES)
    s = s[rng.permutation(len(s))]
    own = rng.permutation(n)[:m]
    near = _nearest(t, t, min(SMOOTHING, n - 2), np.arange(n))
    spread = [
        _participation(np.bincount(hits.ravel(), minlength=n), near)
        for hits in (_nearest(s[:m], t, k), _nearest(t[own], t, k, own))
    ]
    return float(spread[0] / spread[1])


def crossing(values: Array) -> float | None:
    """Return where two Gaussian components, equally weighted, cross; None without two."""
    x = np.sort((values - values.mean()) / values.std())
    n, best = len(x), (-math.inf, None)
    for start in (0.1, 0.3, 0.5, 0.7, 0.9):
        upper, before = (np.arange(n) >= start * n).astype(float), -math.inf
        for _ in range(200):
            w = float(np.clip(upper.mean(), 1e-4, 1 - 1e-4))
            parts = []
            for r, share in ((1 - upper + 1e-12, 1 - w), (upper + 1e-12, w)):
                mean = float(np.average(x, weights=r))
                sd = math.sqrt(float(np.average((x - mean) ** 2, weights=r)) + 4e-4)
                parts.append(
                    (mean, sd, np.log(share) - 0.5 * ((x - mean) / sd) ** 2 - math.log(sd))
                )
            both = np.logaddexp(parts[0][2], parts[1][2])
            upper, after = np.exp(parts[1][2] - both), float(both.sum())
            if after - before < 1e-6 * n:
                break
            before = after
        if after > best[0]:
            best = (after, sorted((p[0], p[1]) for p in parts))
    (a, sa), (b, sb) = best[1]  # type: ignore[misc]
    places = np.linspace(a, b, 2001)
    above = (-0.5 * ((places - b) / sb) ** 2 - math.log(sb)) > (
        -0.5 * ((places - a) / sa) ** 2 - math.log(sa)
    )
    if above[0] or not above[-1]:
        return None
    return float(places[above.argmax()] * values.std() + values.mean())


def _participation(hits: npt.NDArray[np.integer], near: npt.NDArray[np.integer]) -> float:
    """Effective share of the images that are hit, hits averaged over an image and its nearest."""
    h = hits / max(hits.mean(), 1e-12)
    smooth = (h + h[near].sum(1)) / (1 + near.shape[1])
    return float(1 / max(np.mean(smooth**2), 1e-12))


def _nearest(queries: Array, rows: Array, k: int, itself: Array | None = None) -> Array:
    """Indices of the k nearest rows of each query; `itself` is the row that a query is."""
    found = np.empty((len(queries), k), np.int64)
    for i in range(0, len(queries), 1024):
        likeness = queries[i : i + 1024] @ rows.T
        if itself is not None:
            likeness[np.arange(len(likeness)), itself[i : i + 1024]] = -np.inf
        found[i : i + 1024] = np.argpartition(-likeness, k - 1, axis=1)[:, :k]
    return found


def _unit(rows: Array) -> Array:
    """Unit rows, centred by domain: the gap between the domains' means is taken out."""
    rows = np.nan_to_num(np.asarray(rows, np.float32))
    rows = rows - rows.mean(0)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def _sample(rows: Array, most: int, rng: np.random.Generator) -> Array:
    return rows[rng.permutation(len(rows))[:most]] if len(rows) > most else rows
