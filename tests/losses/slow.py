"""The losses once more, one pair at a time, from the paper's equations and docs/methods/san.md.

Plain Python on lists of floats: nothing here calls the package or torch's own losses.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Rows = Sequence[Sequence[float]]


def rows(tensor: Tensor) -> Rows:
    return tensor.detach().double().tolist()


def distance(a: Sequence[float], b: Sequence[float]) -> float:
    """‖a − b‖²."""
    return math.fsum((p - q) ** 2 for p, q in zip(a, b, strict=True))


def height(nu: float) -> float:
    return math.gamma((nu + 1) / 2) / (math.sqrt(nu * math.pi) * math.gamma(nu / 2))


def kernel(d2: float, nu: float) -> float:
    """Eq. (5)."""
    return height(nu) * (1 + d2 / nu) ** (-(nu + 1) / 2)


def cross(p: float, q: float, eps: float = 0.0) -> float:
    return -(p * math.log(q + eps) + (1 - p) * math.log(1 - q + eps))


def paper_p(y: Rows, i: int, j: int, alpha: float) -> float:
    same_image = i != j and i % (len(y) // 2) == j % (len(y) // 2)
    return (math.exp(alpha) if same_image else 1.0) * kernel(distance(y[i], y[j]), 100)


def paper_anchors(y: Rows, z: Rows, alpha: float) -> list[float]:
    """Eq. (4) for every anchor, the anchor itself left out of the sum."""
    anchors = []
    for i in range(len(y)):
        total = 0.0
        for j in range(len(y)):
            if j != i:
                total += cross(paper_p(y, i, j, alpha), kernel(distance(z[i], z[j]), 10))
        anchors.append(total)
    return anchors


def paper(y: Rows, z: Rows, alpha: float = 0.5) -> float:
    anchors = paper_anchors(y, z, alpha)
    return sum(anchors) / len(anchors)


def released_base(d2: float, nu: float) -> float:
    return height(nu) ** 2 * (1 + d2 / nu) ** (-(nu + 1)) * 2 * 3.14


def released_similarity(d2_ij: float, d2_ji: float, nu: float) -> float:
    one, two = released_base(d2_ij, nu), released_base(d2_ji, nu)
    return one + two - one * two


def released_nearest(y: Rows, rate: float) -> list[float]:
    """Distance of a second view from its first: n_i = min_{j≠i} D_ij / rate."""
    b = len(y) // 2
    return [min(distance(y[i], y[j]) for j in range(b) if j != i) / rate for i in range(b)]


def released(
    y: Rows,
    z: Rows,
    sigma: float = 10.0,
    rate: float = 1e4,
    nearest: Sequence[float] | None = None,
) -> float:
    """`nearest` may be given, since the authors' code takes no gradient through it."""
    n, b = len(y), len(y) // 2
    near = released_nearest(y, rate) if nearest is None else nearest

    def d2_y(i: int, j: int) -> float:
        d2 = distance(y[i % b], y[j % b])
        if i >= b:
            d2 += near[i - b]
        if j >= b:
            d2 += near[j - b]
        return d2

    total = 0.0
    for i in range(n):
        for j in range(n):
            if i != j:
                p = released_similarity(d2_y(i, j) / sigma, d2_y(j, i) / sigma, 100)
                q = released_similarity(distance(z[i], z[j]), distance(z[j], z[i]), 10)
                total += cross(p, q, 1e-12)
    return total / n**2


def scaled(
    y: Rows,
    z: Rows,
    alpha: float = 0.5,
    unit: bool = True,
    bandwidth_y: float | None = None,
    bandwidth_z: float = 0.3,
    sharpness: float = 6.0,
    balance: bool = True,
) -> float:
    n, b = len(y), len(y) // 2
    if unit:
        y, z = [unit_vector(r) for r in y], [unit_vector(r) for r in z]
    apart = [distance(y[i], y[j]) for i in range(n) for j in range(n) if i % b != j % b]
    scale_y = sum(apart) / len(apart) / sharpness if bandwidth_y is None else bandwidth_y
    positives, negatives = [], []
    for i in range(n):
        for j in range(n):
            if i == j:
                continue
            same_image = i % b == j % b
            p = kernel(distance(y[i], y[j]) / scale_y, 100) / height(100)
            p = min(1.0, p * (math.exp(alpha) if same_image else 1.0))
            q = kernel(distance(z[i], z[j]) / bandwidth_z, 10) / height(10)
            q = min(max(q, 1e-6), 1 - 1e-6)
            (positives if same_image else negatives).append(cross(p, q))
    if balance:
        return sum(positives) / len(positives) + sum(negatives) / len(negatives)
    return (sum(positives) + sum(negatives)) / (n * (n - 1))


def unit_vector(a: Sequence[float]) -> list[float]:
    length = math.sqrt(sum(x * x for x in a))
    return [x / length for x in a]


def info_nce(z: Rows, temperature: float = 1.0, unit: bool = True) -> float:
    """Eq. (1), the positive kept in the denominator."""
    n, b = len(z), len(z) // 2
    if unit:
        z = [unit_vector(r) for r in z]

    def similarity(i: int, j: int) -> float:
        return math.exp(sum(p * q for p, q in zip(z[i], z[j], strict=True)) / temperature)

    total = 0.0
    for i in range(n):
        others = sum(similarity(i, j) for j in range(n) if j != i)
        total -= math.log(similarity(i, (i + b) % n) / others)
    return total / n


def kept_classes(is_k: Sequence[float], label: int, top_n: int) -> list[int]:
    """The label and the classes with the largest "is k", `top_n` together."""
    others = [k for k in range(len(is_k)) if k != label]
    others.sort(key=lambda k: -is_k[k])
    return sorted([label, *others[: top_n - 1]])


def joint_softmax(sample: Rows) -> tuple[list[float], list[float]]:
    """One softmax over both outputs of all classes: "is not", "is"."""
    top = max(max(block) for block in sample)
    total = sum(math.exp(x - top) for block in sample for x in block)
    c_not, c_is = ([math.exp(x - top) / total for x in block] for block in sample)
    return c_not, c_is


def all_in_one(
    logits: Sequence[Rows],
    labels: Sequence[int],
    top_n: int = 20,
    third: str = "log",
    third_weight: float = 1.0,
    floor: float = 0.05,
) -> float:
    total = 0.0
    for sample, label in zip(logits, labels, strict=True):
        kept = kept_classes(sample[1], label, top_n)
        c_not, c_is = joint_softmax([[block[k] for k in kept] for block in sample])
        y = kept.index(label)
        others = [c_not[k] for k in range(len(kept)) if k != y]
        if third == "log":  # Eqs. (6)–(8), the last logarithm continued by its tangent
            margin = c_is[y] - max(c_not)
            last = math.log(margin) if margin > floor else math.log(floor) + margin / floor - 1
            total -= math.log(c_is[y]) + min(math.log(c) for c in others) + third_weight * last
        else:
            positive = -math.log(c_is[y] + 1e-8)
            negative = max(-math.log(c + 1e-8) for c in others)
            gap = max(c_is) - max(c_not)
            contrast = -third_weight * math.log(1 / (1 + math.exp(-gap)))
            total += (positive + negative + contrast) / 3
    return total / len(labels)


def open_entropy(logits: Sequence[Rows]) -> float:
    entropies = []
    for no, yes in logits:
        for a, b in zip(no, yes, strict=True):
            top = max(a, b)
            e = [math.exp(a - top), math.exp(b - top)]
            entropies.append(-sum(x / sum(e) * math.log(x / sum(e) + 1e-8) for x in e))
    return sum(entropies) / len(entropies)


def slope(function: Callable[[Tensor], float], at: Tensor, step: float = 1e-5) -> Tensor:
    """Gradient by central differences."""
    at = at.detach().double()
    gradient = torch.zeros_like(at)
    for i in range(at.numel()):
        shift = torch.zeros_like(at)
        shift.view(-1)[i] = step
        gradient.view(-1)[i] = (function(at + shift) - function(at - shift)) / (2 * step)
    return gradient
