"""The two self-supervised losses on the target of DANCE (NeurIPS 2020)."""

import torch
from torch import Tensor

from unida.ops.chunked import checkpointed, column_chunks

EPS = 1e-5
"""Added inside the logarithms, as in the released code."""


def neighbourhood_clustering(
    logits: Tensor, unit: Tensor, memory: Tensor, index: Tensor, tau: float
) -> Tensor:
    """L_nc: every target image moves to a class prototype or to another target image.

    The mean entropy −Σ_j p_j ln(p_j + ε) of p = softmax[logits, S_memory, S_batch] over all it may
    resemble: the K prototypes, the N target images as remembered and the B images of the batch.
    Images of the batch count as they are now, so their remembered copies get similarity −1/τ, and
    so does an image with itself. The memory is a constant; a row of zeros (an image not yet seen)
    counts with similarity 0.

    A large memory is seen a part at a time, which costs four products with it instead of two and
    never a table of all B × N.

    Args:
        logits: (B, K), cosines with the prototypes over τ.
        unit: (B, D), features of unit length.
        memory: (N, D), unit rows or zeros.
        index: (B,), the images' rows in `memory`.
        tau: temperature τ.
    """
    if len(column_chunks(len(memory), len(unit))) == 1:
        return _entropies(_to_all_others(logits, unit, memory, index, tau)).mean()
    return _entropies_in_parts(logits, unit, memory, index, tau).mean()


def entropy_separation(logits: Tensor, rho: float, m: float) -> Tensor:
    """L_es = −mean_i max(|H(p_i) − ρ|, m): entropies leave the boundary ρ, known or unknown.

    Within the margin m there is no gradient, since it is not clear which way an image belongs.

    Args:
        logits: (B, K).
        rho: boundary ρ, an entropy in nats.
        m: margin m.
    """
    return -(_entropies(logits) - rho).abs().clamp_min(m).mean()


def _to_all_others(
    logits: Tensor, unit: Tensor, memory: Tensor, index: Tensor, tau: float
) -> Tensor:
    """(B, K + N + B): prototypes, memory, batch."""
    to_memory = _to_memory(unit, memory, _in_batch(memory, index), tau)
    return torch.cat([logits, to_memory, _to_batch(unit, tau)], 1)


def _to_batch(unit: Tensor, tau: float) -> Tensor:
    itself = torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    return (unit @ unit.T / tau).masked_fill(itself, -1 / tau)


def _to_memory(unit: Tensor, rows: Tensor, in_batch: Tensor, tau: float) -> Tensor:
    return (unit @ rows.detach().T / tau).masked_fill(in_batch, -1 / tau)


def _in_batch(memory: Tensor, index: Tensor) -> Tensor:
    """(N,), bool: the rows whose images are in the batch."""
    nobody = torch.zeros(len(memory), dtype=torch.bool, device=memory.device)
    return nobody.index_fill(0, index, True)


def _entropies(logits: Tensor) -> Tensor:
    p = logits.softmax(1)
    return -(p * (p + EPS).log()).sum(1)


def _entropies_in_parts(
    logits: Tensor, unit: Tensor, memory: Tensor, index: Tensor, tau: float
) -> Tensor:
    """`_entropies` of `_to_all_others`: first Z = Σ_j e^{z_j}, then the terms of p_j = e^{z_j}/Z.

    Z comes without gradient, which spares a pass. What is missing of it, ∂H/∂ln Z · ∂ln Z, has the
    slopes of Σ_j p_j in place of those of ln Z: both are p_j.
    """
    columns, in_batch = column_chunks(len(memory), len(unit)), _in_batch(memory, index)
    to_few = torch.cat([logits, _to_batch(unit, tau)], 1)
    seen = [(memory[part], in_batch[part]) for part in columns]
    with torch.no_grad():
        sums = [_to_memory(unit, *part, tau).logsumexp(1) for part in seen]
        log_z = torch.stack([to_few.logsumexp(1), *sums]).logsumexp(0)
    terms = _terms(to_few, log_z)
    for part in seen:
        terms = terms + checkpointed(_terms_of_memory, unit, *part, tau, log_z)
    entropy, total, slope = terms.unbind(0)
    return entropy + slope.detach() * (total - total.detach())


def _terms_of_memory(
    unit: Tensor, rows: Tensor, in_batch: Tensor, tau: float, log_z: Tensor
) -> Tensor:
    return _terms(_to_memory(unit, rows, in_batch, tau), log_z)


def _terms(z: Tensor, log_z: Tensor) -> Tensor:
    """(3, B): of the entropy H, of Σ p and of ∂H/∂ln Z."""
    p = (z - log_z[:, None]).exp()
    log_p = (p + EPS).log()
    with torch.no_grad():
        slope = (p * (log_p + p / (p + EPS))).sum(1)
    return torch.stack([-(p * log_p).sum(1), p.sum(1), slope])
