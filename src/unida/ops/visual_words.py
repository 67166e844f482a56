"""Bags of visual words: soft assignment of feature-map locations to words (SPA, NeurIPS 2022).

Letters in shapes: B images, L locations of a map, K words, D channels.
"""

from torch import Tensor


def word_logits(maps: Tensor, words: Tensor, temperature: float = 0.1) -> Tensor:
    """Compare every location u with every word w: ⟨u, w⟩ / τ; the softmax is the assignment.

    Args:
        maps: (B, D, h, w).
        words: (K, D).
        temperature: τ.

    Returns:
        (B, h · w, K).
    """
    return maps.flatten(2).transpose(1, 2) @ words.T / temperature


def word_histogram(logits: Tensor) -> Tensor:
    """Average the assignment over locations: (B, L, K) → (B, K).

    Example:
        >>> import torch
        >>> word_histogram(torch.zeros(1, 7, 4)).tolist()
        [[0.25, 0.25, 0.25, 0.25]]
    """
    return logits.softmax(2).mean(1)
