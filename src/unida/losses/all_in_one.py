"""The All-in-One loss (SAN, ICCV 2023, Eqs. 6–8)."""

import math
from typing import Literal

import torch
from torch import Tensor

from unida.ops.numerics import EPS, at_least_float32

# Logits beyond this act as infinite; the bound keeps their differences finite.
_LOGIT_LIMIT = 1e30


def all_in_one(
    logits: Tensor,
    labels: Tensor,
    top_n: int = 20,
    third: Literal["log", "sigmoid"] = "log",
    *,
    third_weight: float = 1.0,
    floor: float = 0.05,
) -> Tensor:
    """Compute the All-in-One loss over both outputs of every class (Eqs. 6–8).

    With c^k ("is k") and c̃^k ("is not k") from one softmax over both outputs of the top-N classes:

    * `third="log"`, as printed: L_AIO = −[ln c^y + min_{k≠y} ln c̃^k + ln(c^y − max_k c̃^k)]. The
      last logarithm is undefined for every misclassified sample; below `floor` it is continued by
      its tangent, so value and gradient exist everywhere and agree at `floor`.
    * `third="sigmoid"`, as released: the mean of −ln(c^y + ε), max_{k≠y} −ln(c̃^k + ε) and
      −ln σ(max_k c^k − max_k c̃^k), ε = 1e−8. The last term uses the largest output instead of the
      label's and is bounded.

    Args:
        logits: (B, 2, K), `[:, 0]` is "is not k", `[:, 1]` is "is k"; K ≥ 2.
        labels: (B,), true classes.
        top_n: N, classes in the softmax: those with the largest "is k" and always the label (the
            choice carries no gradient). K or more means all.
        third: form of the last term, and with it of the whole loss.
        third_weight: factor of the last term (`beta` of the released code).
        floor: where the tangent takes over (`log`).

    Returns:
        A scalar, the mean over the batch.

    Reference:
        Zang et al., "Boosting Novel Category Discovery Over Domains with Soft Contrastive Learning
        and All in One Classifier", ICCV 2023, Eqs. (6)–(8).

    Example:
        >>> logits = torch.tensor([[[0.0, 9.0], [9.0, 0.0]]])  # "is 0" and "is not 1"
        >>> all_in_one(logits, torch.tensor([0]), third="sigmoid")
        tensor(0.6932)
    """
    if logits.ndim != 3 or logits.shape[1] != 2 or logits.shape[2] < 2:
        raise ValueError(f"logits have shape {tuple(logits.shape)}; (B, 2, K) with K ≥ 2 is needed")
    if top_n < 2:
        raise ValueError(f"top_n is {top_n}; 2 or more is needed")
    logits, labels = at_least_float32(logits).clamp(-_LOGIT_LIMIT, _LOGIT_LIMIT), labels.long()
    if top_n < logits.shape[2]:
        logits, labels = _keep_top(logits, labels, top_n)

    batch, _, n_classes = logits.shape
    log_c = logits.flatten(1).log_softmax(1).view(batch, 2, n_classes)
    log_not, log_is = log_c[:, 0], log_c[:, 1]
    log_is_y = log_is.gather(1, labels[:, None])[:, 0]
    is_label = torch.nn.functional.one_hot(labels, n_classes).bool()
    hardest_not = log_not.masked_fill(is_label, math.inf).amin(1)

    if third == "log":
        margin = log_is_y.exp() - log_not.amax(1).exp()
        return -(log_is_y + hardest_not + third_weight * _log_with_tangent(margin, floor)).mean()
    if third == "sigmoid":
        gap = log_is.amax(1).exp() - log_not.amax(1).exp()
        pull = -(log_is_y.exp() + EPS).log() - (hardest_not.exp() + EPS).log()
        return (pull - third_weight * torch.nn.functional.logsigmoid(gap)).mean() / 3
    raise ValueError(f"third is {third!r}; allowed: log, sigmoid")


def _keep_top(logits: Tensor, labels: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Keep both outputs of the label and of the classes with the largest "is k", in class order."""
    rank = logits[:, 1].detach().scatter(1, labels[:, None], math.inf)
    kept = rank.topk(n, dim=1).indices.sort(dim=1).values
    new_labels = (kept == labels[:, None]).int().argmax(1)
    return logits.gather(2, kept[:, None].expand(-1, 2, -1)), new_labels


def _log_with_tangent(x: Tensor, floor: float) -> Tensor:
    """Evaluate ln x for x ≥ floor and its tangent at floor below."""
    tangent = math.log(floor) + (x - floor) / floor
    return torch.where(x > floor, x.clamp_min(floor).log(), tangent)
