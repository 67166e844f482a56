"""Rows with clusters in them."""

import torch
import torch.nn.functional as F
from torch import Tensor


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_clusters(counts: list[int], width: int = 8, spread: float = 0.1) -> tuple[Tensor, Tensor]:
    """Unit rows about the axes, so many about each."""
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    noise = torch.randn(len(labels), width, generator=draws(), dtype=torch.float64)
    return F.normalize(torch.eye(width, dtype=torch.float64)[labels] + spread * noise), labels
