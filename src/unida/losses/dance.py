"""Neighbourhood clustering and entropy separation on the target (DANCE, NeurIPS 2020)."""

import torch
from torch import Tensor

from unida.ops.chunked import checkpointed, column_chunks

EPS = 1e-5
"""Added inside the logarithms, as in the released code."""


def neighbourhood_clustering(
    logits: Tensor, unit: Tensor, memory: Tensor, index: Tensor, tau: float
) -> Tensor:
    """Move every target image to a class prototype or to another target image.

    L_nc = −mean_i Σ_j p_ij ln(p_ij + ε), p = softmax[logits, S_memory, S_batch], ε = 1e−5

    The entropy runs over the K prototypes, the N remembered target images and the B images of the
    batch. Batch images count with their current features, so the similarity of their remembered
    copies is set to −1/τ, and so is that of an image with itself. The memory is a constant; a row
    of zeros (an image not yet visited) counts with similarity 0.

    A large memory is processed in chunks, at four matrix products instead of two, and without a
    B × N table.

    Args:
        logits: (B, K), cosines with the prototypes over τ.
        unit: (B, D), unit features.
        memory: (N, D), unit rows or zeros.
        index: (B,), the images' rows in `memory`.
        tau: temperature τ.

    Returns:
        A scalar, the mean over the batch.

    Reference:
        Saito et al., "Universal Domain Adaptation through Self-Supervision", NeurIPS 2020,
        neighbourhood clustering; docs/methods/dance.md.

    Example:
        >>> unit, memory, index = torch.eye(2), torch.zeros(2, 2), torch.tensor([0, 1])
        >>> neighbourhood_clustering(unit, unit, memory, index, tau=1.0)
        tensor(1.4842)
    """
    if len(column_chunks(len(memory), len(unit))) == 1:
        return _entropies(_all_logits(logits, unit, memory, index, tau)).mean()
    return _chunked_entropies(logits, unit, memory, index, tau).mean()


def entropy_separation(logits: Tensor, rho: float, m: float) -> Tensor:
    """Push entropies away from the boundary between known and unknown.

    L_es = −mean_i max(|H(p_i) − ρ|, m)

    Within the margin m there is no gradient: the sample's side is too uncertain.

    Args:
        logits: (B, K).
        rho: boundary ρ, an entropy in nats.
        m: margin m.

    Returns:
        A scalar, the mean over the batch.

    Reference:
        Saito et al., NeurIPS 2020, entropy separation; docs/methods/dance.md.

    Example:
        >>> entropy_separation(torch.zeros(1, 2), rho=0.25, m=0.1)  # −(ln 2 − ¼)
        tensor(-0.4431)
    """
    return -(_entropies(logits) - rho).abs().clamp_min(m).mean()


def _all_logits(logits: Tensor, unit: Tensor, memory: Tensor, index: Tensor, tau: float) -> Tensor:
    """Similarities to prototypes, memory and batch, (B, K + N + B)."""
    to_memory = _memory_logits(unit, memory, _in_batch(memory, index), tau)
    return torch.cat([logits, to_memory, _batch_logits(unit, tau)], 1)


def _batch_logits(unit: Tensor, tau: float) -> Tensor:
    itself = torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    return (unit @ unit.T / tau).masked_fill(itself, -1 / tau)


def _memory_logits(unit: Tensor, rows: Tensor, in_batch: Tensor, tau: float) -> Tensor:
    return (unit @ rows.detach().T / tau).masked_fill(in_batch, -1 / tau)


def _in_batch(memory: Tensor, index: Tensor) -> Tensor:
    """Mark the rows whose images are in the batch, (N,), bool."""
    mask = torch.zeros(len(memory), dtype=torch.bool, device=memory.device)
    return mask.index_fill(0, index, True)


def _entropies(logits: Tensor) -> Tensor:
    p = logits.softmax(1)
    return -(p * (p + EPS).log()).sum(1)


def _chunked_entropies(
    logits: Tensor, unit: Tensor, memory: Tensor, index: Tensor, tau: float
) -> Tensor:
    """`_entropies` of `_all_logits`: first Z = Σ_j e^{z_j}, then the terms of p_j = e^{z_j}/Z.

    Z is computed without gradient, which saves a pass. The missing part, ∂H/∂ln Z · ∂ln Z, is added
    through Σ_j p_j, whose derivative by z_j is that of ln Z: p_j.
    """
    columns, in_batch = column_chunks(len(memory), len(unit)), _in_batch(memory, index)
    others = torch.cat([logits, _batch_logits(unit, tau)], 1)
    chunks = [(memory[part], in_batch[part]) for part in columns]
    with torch.no_grad():
        sums = [_memory_logits(unit, *chunk, tau).logsumexp(1) for chunk in chunks]
        log_z = torch.stack([others.logsumexp(1), *sums]).logsumexp(0)
    terms = _terms(others, log_z)
    for chunk in chunks:
        terms = terms + checkpointed(_terms_of_memory, unit, *chunk, tau, log_z)
    entropy, total, slope = terms.unbind(0)
    return entropy + slope.detach() * (total - total.detach())


def _terms_of_memory(
    unit: Tensor, rows: Tensor, in_batch: Tensor, tau: float, log_z: Tensor
) -> Tensor:
    return _terms(_memory_logits(unit, rows, in_batch, tau), log_z)


def _terms(z: Tensor, log_z: Tensor) -> Tensor:
    """Partial sums of the entropy H, of Σ p and of ∂H/∂ln Z, (3, B)."""
    p = (z - log_z[:, None]).exp()
    log_p = (p + EPS).log()
    with torch.no_grad():
        slope = (p * (log_p + p / (p + EPS))).sum(1)
    return torch.stack([-(p * log_p).sum(1), p.sum(1), slope])
