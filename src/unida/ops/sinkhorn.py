"""Optimal transport between target images and prototypes (UniOT, NeurIPS 2022).

Letters in shapes: n images, k prototypes, D features, m rows added by the filling. Plans are
computed in float64, since e^(cos / 0.01) overflows float32, and returned in the input's type. They
are targets and carry no gradient. A plan has a row per image, so its table is updated in place.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from unida.ops.chunked import column_chunks

EPSILON = 0.05  # entropy weight of the balanced problem
REG, KAPPA = 0.01, 0.5  # entropy weight and marginal penalty of the unbalanced one
_CHECK_EVERY = 10  # rounds; measuring the change costs as much as a round


def _float64(x: Tensor) -> Tensor:
    """Copy to float64."""
    x = x.detach()
    host = x.cpu() if x.device.type == "mps" else x  # MPS has no float64
    return host.to(torch.float64, copy=True)


@torch.no_grad()
def sinkhorn(scores: Tensor, epsilon: float = EPSILON, rounds: int = 3) -> Tensor:
    """Assign images to prototypes with balanced masses, by a few rounds of scaling.

    Starting from exp(scores/ε), a round scales every prototype to mass 1/k, then every image to
    mass 1/n. The constants cancel, so a round is a softmax over images and one over prototypes.

    Args:
        scores: (n, k), similarities.
        epsilon: ε.
        rounds: scalings of both sides.

    Returns:
        (n, k), soft targets: n times the plan, so each row sums to 1.

    Example:
        >>> sinkhorn(torch.tensor([[1.0, 0.0], [0.0, 1.0]])).round(decimals=3).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    log_q = _float64(scores) / epsilon
    for _ in range(rounds):
        log_q = log_q.log_softmax(0).log_softmax(1)
    return log_q.exp().to(scores)


@torch.no_grad()
def unbalanced_sinkhorn(
    similarity: Tensor,
    beta: Tensor,
    reg: float = REG,
    kappa: float = KAPPA,
    stop: float = 1e-4,
    rounds: int = 1000,
) -> Tensor:
    """Solve entropic unbalanced transport at cost −similarity, with row masses 1/n.

    min_P ⟨P, −S⟩ + reg Σ P(ln P − 1) + κ KL(P1 ‖ 1/n) + κ KL(Pᵀ1 ‖ β)

    by P = diag(u) e^(S/reg) diag(v), u = ((1/n) / Kv)^f, v = (β / Kᵀu)^f, f = κ/(κ + reg). The
    entropy is relative to a matrix of ones, as in POT up to 0.9.4; later versions default to the
    product of the marginals, which gives another plan.

    Args:
        similarity: (n, k), S; cosines, so that e^(S/reg) fits float64.
        beta: (k,), target mass of each prototype.
        reg: weight of the entropy.
        kappa: κ, weight of the two marginals.
        stop: stop when u and v change by less in a round, relative to the larger of 1 and their
            largest entry.
        rounds: maximum number of rounds.

    Returns:
        (n, k), the plan; its mass is not 1.
    """
    if reg < 0.005:
        raise ValueError(f"reg is {reg}; 0.005 or more is needed to stay within float64")
    kernel, beta = _float64(similarity).div_(reg).exp_(), _float64(beta)
    n, k = kernel.shape
    power = kappa / (kappa + reg)
    u, v = kernel.new_full((n,), 1 / n), kernel.new_full((k,), 1 / k)
    for step in range(1, rounds + 1):
        old_u, old_v = u, v
        u = (1 / n / (kernel @ v)) ** power
        v = (beta / (u @ kernel)) ** power
        if step % _CHECK_EVERY == 0 and (_change(u, old_u) + _change(v, old_v)) / 2 < stop:
            break
    return kernel.mul_(u[:, None]).mul_(v).to(similarity)


def _change(new: Tensor, old: Tensor) -> Tensor:
    largest = torch.maximum(new.max(), old.max()).clamp_min(1)
    return (new - old).abs().max() / largest


@torch.no_grad()
def normalised_plan(similarity: Tensor, beta: Tensor, stop: float = 1e-4) -> Tensor:
    """Compute Q̄, the unbalanced plan scaled to mass 1; shapes as in `unbalanced_sinkhorn`."""
    plan = unbalanced_sinkhorn(similarity, beta, stop=stop)
    return plan.div_(plan.sum())


def pseudo_labels(plan: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Read pseudo labels off a plan of mass 1.

    A row is confident if its largest entry exceeds the average row mass, 1/n. A class is present in
    the target if its column holds at least 1/k.

    Args:
        plan: (n, k), Q̄.

    Returns:
        Label, whether the row is confident, and whether its class is present as well; (n,) each.
    """
    n, k = plan.shape
    weight, label = plan.max(1)
    confident = weight > 1 / n
    present = plan.sum(0) >= 1 / k
    return label, confident, confident & present[label]


@torch.no_grad()
def adaptive_filling(
    features: Tensor,
    prototypes: Tensor,
    beta: Tensor,
    gamma: float,
    draws: Tensor,
    stop: float = 1e-4,
) -> Tensor:
    """Add rows that balance the number of likely known and likely unknown images.

    An image is likely known if its largest similarity exceeds γ. If at most half are, copies of
    rows that a first transport is confident of are added; otherwise synthetic unknowns, half-way
    between an image and its farthest prototype.

    Args:
        features: (n, D), of unit length.
        prototypes: (k, D), of unit length.
        beta: (k,), as in `unbalanced_sinkhorn`.
        gamma: γ.
        draws: (n,), uniform in [0, 1); they pick the rows to add and may be on the CPU.
        stop: as in `unbalanced_sinkhorn`.

    Returns:
        (m, k), similarities of the added rows; m = |n known − n unknown|, or 0 if there is no
        confident row to copy.
    """
    similarity = features @ prototypes.T
    n_known = int((similarity.amax(1) > gamma).sum())
    n_unknown = len(features) - n_known
    draws = draws[: abs(n_known - n_unknown)]
    if n_known <= n_unknown:
        if not len(draws):
            return similarity[:0]
        plan = normalised_plan(similarity, beta, stop)
        copies = similarity[pseudo_labels(plan)[2]]
        return copies[_pick(draws, len(copies))] if len(copies) else copies
    picked, farthest = _pick(draws, len(features)), similarity.argmin(1)
    synthetic = (
        F.normalize((features[index] + prototypes[farthest[index]]) / 2)
        for index in (picked[part] for part in column_chunks(len(picked), features.shape[1]))
    )
    return torch.cat([rows @ prototypes.T for rows in synthetic])


def _pick(draws: Tensor, n: int) -> Tensor:
    # A draw of nearly 1 may be rounded up to n.
    return (draws * n).long().clamp_max(n - 1)
