"""Contrast between an anchor and several positives in a memory (TNT, AAAI 2022).

Rows are unit vectors; rows of zeros have not been visited and take no part. No table has more than
`unida.ops.chunked.MAX_ENTRIES` entries, however large the memory.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from unida.ops.chunked import checkpointed, column_chunks
from unida.ops.knn import Candidates, mask_rows

Positives = Literal["log_of_sum", "mean_of_logs"]


def multi_sample_contrast(
    anchors: Tensor,
    candidates: Sequence[Candidates],
    tau: float = 0.05,
    form: Positives = "log_of_sum",
) -> Tensor:
    """Contrast each anchor with a set of positives at once.

    With s_ij the dot product, P_i the positives and A_i all visited rows of any memory except the
    anchor's own:

    * `log_of_sum`: ℓ_i = −ln( Σ_{j∈P_i} e^{s_ij/τ} / Σ_{j∈A_i} e^{s_ij/τ} );
    * `mean_of_logs`: ℓ_i = −1/|P_i| Σ_{j∈P_i} ln( e^{s_ij/τ} / Σ_{l∈A_i} e^{s_il/τ} ).

    Args:
        anchors: (B, D).
        candidates: per memory, see `unida.ops.knn.memory_pairs`; constants.
        tau: temperature τ.
        form: how several positives combine.

    Returns:
        A scalar, the mean over the anchors with a positive; 0 if none has one.

    Reference:
        Reconstruction after Chen et al., "Evidential Neighborhood Contrastive Learning for
        Universal Domain Adaptation", AAAI 2022; docs/methods/tnt.md.

    Example:
        >>> near, positive, own = torch.tensor([[0]]), torch.tensor([[True]]), torch.tensor([-1])
        >>> candidates = [(torch.eye(2), near, positive, own)]
        >>> multi_sample_contrast(torch.eye(2)[:1], candidates, tau=1)
        tensor(0.3133)
    """
    masses = [_log_mass(anchors, rows.detach(), itself, tau) for rows, _, _, itself in candidates]
    log_total = torch.stack(masses).logsumexp(0)
    to_nearest = [
        torch.einsum("bd,bkd->bk", anchors, rows.detach()[nearest])
        for rows, nearest, *_ in candidates
    ]
    similarity = torch.cat(to_nearest, 1) / tau
    positive = torch.cat([mutual for _, _, mutual, _ in candidates], 1)
    count = positive.sum(1)
    if form == "log_of_sum":
        log_positive = similarity.masked_fill(~positive, _lowest(similarity)).logsumexp(1)
    elif form == "mean_of_logs":
        log_positive = (similarity * positive).sum(1) / count.clamp_min(1)
    else:
        raise ValueError(f"form is {form!r}; allowed: log_of_sum, mean_of_logs")
    has_positive = count > 0
    total = torch.where(has_positive, log_total - log_positive, 0).sum()
    return total / has_positive.sum().clamp_min(1)


def _log_mass(anchors: Tensor, rows: Tensor, itself: Tensor, tau: float) -> Tensor:
    """Compute ln Σ_{j∈A_i} e^{s_ij/τ} over one memory, (B,)."""
    columns = column_chunks(len(rows), len(anchors))
    if len(columns) == 1:
        return _log_mass_of_chunk(anchors, rows, itself, tau)
    masses = [
        checkpointed(_log_mass_of_chunk, anchors, rows[part], itself - part.start, tau)
        for part in columns
    ]
    return torch.stack(masses).logsumexp(0)


def _log_mass_of_chunk(anchors: Tensor, rows: Tensor, itself: Tensor, tau: float) -> Tensor:
    similarity = anchors @ rows.T / tau
    return mask_rows(similarity, rows, itself, _lowest(similarity)).logsumexp(1)


def _lowest(x: Tensor) -> float:
    return torch.finfo(x.dtype).min  # finite, so that an empty row has no nan gradient
