"""Word histograms and mosaics (a reconstruction of SPA, NeurIPS 2022).

Letters in shapes: B images, L locations of a map, K words, D channels.
"""

import torch
from torch import Tensor

from unida.ops.numerics import EPS

SIDE = 3  # cells of a mosaic, each way


def word_logits(maps: Tensor, words: Tensor, temperature: float = 0.1) -> Tensor:
    """⟨u, w⟩ / τ of every location u of a map with every word w; their softmax is the assignment.

    Args:
        maps: (B, D, h, w).
        words: (K, D).
        temperature: τ.

    Returns:
        (B, h · w, K).
    """
    return maps.flatten(2).transpose(1, 2) @ words.T / temperature


def word_histogram(logits: Tensor) -> Tensor:
    """How much of an image each word takes: the mean assignment over locations, (B, K)."""
    return logits.softmax(2).mean(1)


def assignment_entropy(logits: Tensor) -> Tensor:
    """Mean entropy of the assignment at a location: low where each is one word's."""
    log_p = logits.log_softmax(2)
    return -(log_p.exp() * log_p).sum(2).mean()


def unused_words(logits: Tensor) -> Tensor:
    """ln K − H(mean assignment of the batch): 0 where all words are used alike, at most ln K."""
    p = logits.softmax(2).mean((0, 1))
    return (p * (p * len(p) + EPS).log()).sum()


def make_mosaics(images: Tensor, owners: Tensor, places: Tensor) -> Tensor:
    """Mosaics of 3 × 3 cells, each cell a ninth of some image.

    Args:
        images: (B, 3, H, W); rows and columns beyond a multiple of three are left out.
        owners: (M, 9), for each cell the image it comes from.
        places: (M, 9), and which of its ninths it is.

    Returns:
        (M, 3, 3 ⌊H/3⌋, 3 ⌊W/3⌋).
    """
    n, h, w = len(images), images.shape[2] // SIDE, images.shape[3] // SIDE
    cut = images[:, :, : SIDE * h, : SIDE * w].reshape(n, -1, SIDE, h, SIDE, w)
    ninths = cut.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)  # (B, 9, 3, h, w)
    cells = ninths[owners, places].view(len(owners), SIDE, SIDE, -1, h, w)
    return cells.permute(0, 3, 1, 4, 2, 5).reshape(len(owners), -1, SIDE * h, SIDE * w)


def draw_mosaics(n: int, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """What `make_mosaics` needs for n mosaics of n images, from torch's own generator.

    Each mosaic shows g different images, every one of them at least once, g uniform in 1 … most
    (but no more than n). The nine places are in random order, so seams do not tell g.

    Returns:
        g (n,), owners (n, 9) and places (n, 9), on the CPU.
    """
    most = min(most, n)
    cells = SIDE * SIDE
    g = torch.randint(1, most + 1, (n,))
    shown = torch.rand(n, n).argsort(1)[:, :most]
    cell = torch.arange(cells)
    which = torch.where(cell < g[:, None], cell, (torch.rand(n, cells) * g[:, None]).long())
    which = which.gather(1, torch.rand(n, cells).argsort(1))
    return g, shown.gather(1, which), torch.rand(n, cells).argsort(1)
