"""Feature spaces and pseudo labels of LEAD: docs/methods/lead.md, a slow copy, edges."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.mixture import GaussianMixture

from unida.ops.decomposition import decomposition_labels, space_norms, upper_mean

WEIGHT = torch.tensor([[2.0, 0, 0, 0], [1, 1, 0, 0]], dtype=torch.float64)
FEATURES = F.normalize(
    torch.tensor(
        [
            *([0.9, 0.1, 0.1, 0.05], [0.8, 0.3, 0.1, 0.1], [0.2, 0.9, 0.1, 0.1]),
            *([0.1, 0.8, 0.2, 0.1], [0.1, 0.1, 0.9, 0.2], [0.2, 0.1, 0.3, 0.9]),
            [0.5, 0.45, 0.6, 0.1],
        ],
        dtype=torch.float64,
    )
)
PROBS = (5 * FEATURES[:, :2]).softmax(1)


def test_norms_are_those_of_the_singular_vectors_of_the_release() -> None:
    g = torch.Generator().manual_seed(0)
    weight, x = torch.randn(3, 7, generator=g), F.normalize(torch.randn(5, 7, generator=g))
    u = torch.linalg.svd(weight.T).U
    known, unknown = space_norms(x, weight)
    torch.testing.assert_close(known, (x @ u[:, :3]).norm(dim=1))
    torch.testing.assert_close(unknown, (x @ u[:, 3:]).norm(dim=1))
    torch.testing.assert_close(known.square() + unknown.square(), torch.ones(5))


def slow_labels(ratio: float, certain: bool) -> tuple[list[int], list[float]]:
    """Image by image, with the singular value decomposition."""
    x, p, w = (t.numpy() for t in (FEATURES, PROBS, WEIGHT))
    n, c = p.shape
    u = np.linalg.svd(w.T)[0]
    norms = [float(np.linalg.norm(u[:, c:].T @ row)) for row in x]
    top = GaussianMixture(2, random_state=0).fit(np.array(norms)[:, None]).means_.max()
    first = [np.argsort(-p[:, k], kind="stable")[: int(n / int(c * ratio))] for k in range(c)]
    labels, weights = [], []
    for i, row in enumerate(x):
        scores, limits = [], []
        for k in range(c):
            prototype, anchor = x[first[k]].mean(0), w[k]
            t = max(0.0, row @ prototype / np.linalg.norm(prototype))
            a = max(0.0, row @ anchor / np.linalg.norm(anchor))
            scores.append(math.sqrt((1 - math.exp(-t)) * math.exp(a - 1)))
            base = np.mean([norms[j] for j in first[k]])
            limits.append((base, base + scores[-1] * max(0.0, top - base)))
        k = int(np.argmax(scores))
        base, limit = limits[k]
        labels.append(c if norms[i] >= limit else k)
        weight = 1 - (1 + (norms[i] - limit) ** 2 / 1e-4) ** (-(1e-4 + 1) / 2)
        weights.append(1.0 if certain and (norms[i] >= top or norms[i] < base) else weight)
    return labels, weights


@pytest.mark.parametrize("ratio", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("certain", [True, False])
def test_labels_and_weights_are_those_of_a_slow_copy(ratio: float, certain: bool) -> None:
    labels, weights = decomposition_labels(FEATURES, PROBS, WEIGHT, ratio, certain)
    expected = slow_labels(ratio, certain)
    assert labels.tolist() == expected[0]
    assert weights.tolist() == pytest.approx(expected[1], abs=1e-9)


def test_the_check_case() -> None:
    labels, weights = decomposition_labels(FEATURES, PROBS, WEIGHT, 1.0)
    assert labels.tolist() == [0, 0, 1, 1, 2, 2, 1]
    assert weights[:6].tolist() == [1] * 6
    assert weights[6].item() == pytest.approx(0.861781327, abs=1e-8)
    _, released = decomposition_labels(FEATURES, PROBS, WEIGHT, 1.0, certain=False)
    assert released[0].item() == pytest.approx(0.984576911, abs=1e-8)


def test_equal_features_and_few_images_have_labels_too() -> None:
    same = FEATURES[:1].expand(5, -1)
    labels, weights = decomposition_labels(same, PROBS[:1].expand(5, -1), WEIGHT, 3.0)
    assert labels.shape == weights.shape == (5,)
    assert weights.isfinite().all()
    assert decomposition_labels(FEATURES[:1], PROBS[:1], WEIGHT, 0.25)[0].shape == (1,)
    assert upper_mean(torch.tensor([0.5, 0.5])).item() == 0.5
