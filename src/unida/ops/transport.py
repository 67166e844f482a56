"""Optimal transport between target images and prototypes (UniOT, NeurIPS 2022).

Letters in shapes: n images, k prototypes, D features, m rows added by the filling. Everything is
computed in float64, since e^(cos / 0.01) does not fit float32, and returned as it came. Nothing
here carries a gradient: plans are targets. A plan is as long as the set that is judged, so the one
table of it is worked on in place.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from unida.ops.chunked import column_chunks

EPSILON = 0.05  # entropy weight of the balanced problem
REG, KAPPA = 0.01, 0.5  # entropy weight and marginal penalty of the unbalanced one
_CHECK_EVERY = 10  # rounds; to look at the change costs as much as a round


def _float64(x: Tensor) -> Tensor:
    """A copy."""
    x = x.detach()
    host = x.cpu() if x.device.type == "mps" else x  # MPS has no float64
    return host.to(torch.float64, copy=True)


@torch.no_grad()
def sinkhorn(scores: Tensor, epsilon: float = EPSILON, rounds: int = 3) -> Tensor:
    """Balanced assignment of images to prototypes, after a few rounds of scaling.

    From exp(scores/ε), every round gives each prototype the same mass (1/k), then each image the
    same (1/n). The constants cancel, so a round is a softmax over images and one over prototypes.

    Args:
        scores: (n, k), similarities.
        epsilon: ε.
        rounds: how often both sides are scaled.

    Returns:
        (n, k), soft targets: n times the plan, so each row sums to 1.
    """
    log_q = _float64(scores) / epsilon
    for _ in range(rounds):
        log_q = log_q.log_softmax(0).log_softmax(1)
    return log_q.exp().to(scores)


@torch.no_grad()
def unbalanced_transport(
    similarity: Tensor,
    beta: Tensor,
    reg: float = REG,
    kappa: float = KAPPA,
    stop: float = 1e-4,
    rounds: int = 1000,
) -> Tensor:
    """The plan of entropic unbalanced transport at cost −similarity, rows weighing 1/n each.

    min_P ⟨P, −S⟩ + reg Σ P(ln P − 1) + κ KL(P1 ‖ 1/n) + κ KL(Pᵀ1 ‖ β)

    by P = diag(u) e^(S/reg) diag(v), u = ((1/n) / Kv)^f, v = (β / Kᵀu)^f, f = κ/(κ + reg). The
    entropy is relative to a matrix of ones, as in POT up to 0.9.4; later versions refer to the
    product of the marginals unless told otherwise, which is another plan.

    Args:
        similarity: (n, k), S; cosines, so that e^(S/reg) fits float64.
        beta: (k,), mass wished for each prototype.
        reg: weight of the entropy.
        kappa: κ, weight of the two marginals.
        stop: end when u and v change by less in a round, as a share of their largest entry (or of
            1, if that is more).
        rounds: the most rounds.

    Returns:
        (n, k), the plan; its mass is not 1.
    """
    if reg < 0.005:
        raise ValueError(f"reg is {reg}; 0.005 or more is needed to stay within float64")
    kernel, beta = _float64(similarity).div_(reg).exp_(), _float64(beta)
    n, k = kernel.shape
    power = kappa / (kappa + reg)
    u, v = kernel.new_full((n,), 1 / n), kernel.new_full((k,), 1 / k)
    for done in range(1, rounds + 1):
        old_u, old_v = u, v
        u = (1 / n / (kernel @ v)) ** power
        v = (beta / (u @ kernel)) ** power
        if done % _CHECK_EVERY == 0 and (_change(u, old_u) + _change(v, old_v)) / 2 < stop:
            break
    return kernel.mul_(u[:, None]).mul_(v).to(similarity)


def _change(new: Tensor, old: Tensor) -> Tensor:
    largest = torch.maximum(new.max(), old.max()).clamp_min(1)
    return (new - old).abs().max() / largest


@torch.no_grad()
def normalised_plan(similarity: Tensor, beta: Tensor, stop: float = 1e-4) -> Tensor:
    """Q̄: the unbalanced plan, scaled to a mass of 1; shapes as in `unbalanced_transport`."""
    plan = unbalanced_transport(similarity, beta, stop=stop)
    return plan.div_(plan.sum())


def pseudo_labels(plan: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What a plan of mass 1 says of every row.

    A row is confident if its largest entry exceeds 1/n, what a row would have on average. A class
    is taken to be in the target if its column holds 1/k at least.

    Args:
        plan: (n, k), Q̄.

    Returns:
        Label, whether the row is confident, and whether moreover its class is in the target; (n,)
        each.
    """
    n, k = plan.shape
    weight, label = plan.max(1)
    confident = weight > 1 / n
    in_target = plan.sum(0) >= 1 / k
    return label, confident, confident & in_target[label]


@torch.no_grad()
def adaptive_filling(
    features: Tensor,
    prototypes: Tensor,
    beta: Tensor,
    gamma: float,
    draws: Tensor,
    stop: float = 1e-4,
) -> Tensor:
    """Rows that even out how many images look known and how many unknown.

    An image looks known if its largest similarity exceeds γ. If at most half do, copies of images
    that a first transport is confident of are added; otherwise made-up unknowns, half-way between
    an image and its farthest prototype.

    Args:
        features: (n, D), of unit length.
        prototypes: (k, D), of unit length.
        beta: (k,), as in `unbalanced_transport`.
        gamma: γ.
        draws: (n,), uniform numbers in [0, 1) that pick the rows to add; may stay on the host.
        stop: as in `unbalanced_transport`.

    Returns:
        (m, k), similarities of the added rows; m = |n known − n unknown|, or 0 where there is no
        confident image to copy.
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
    made_up = (
        F.normalize((features[some] + prototypes[farthest[some]]) / 2)
        for some in (picked[part] for part in column_chunks(len(picked), features.shape[1]))
    )
    return torch.cat([rows @ prototypes.T for rows in made_up])


def _pick(draws: Tensor, n: int) -> Tensor:
    # A draw of nearly 1 may be rounded up to n.
    return (draws * n).long().clamp_max(n - 1)
