"""Synthetic samples: mosaics of image pieces (SPA) and mixtures of features (GATE).

Letters in shapes: B images, M mosaics, D features.
"""

import torch
from torch import Tensor

GRID = 3
"""Cells of a mosaic along each axis."""


def make_mosaics(images: Tensor, sources: Tensor, pieces: Tensor) -> Tensor:
    """Build mosaics of 3 × 3 cells, each cell one ninth of some image.

    Args:
        images: (B, 3, H, W); rows and columns beyond a multiple of three are cropped.
        sources: (M, 9), the image each cell is taken from.
        pieces: (M, 9), which ninth of that image.

    Returns:
        (M, 3, 3 ⌊H/3⌋, 3 ⌊W/3⌋).

    Example:
        >>> images, order = torch.arange(9.0).view(1, 1, 3, 3), torch.arange(9).flip(0)[None]
        >>> make_mosaics(images, torch.zeros(1, 9).long(), order)[0, 0, 0].tolist()
        [8.0, 7.0, 6.0]
    """
    n, h, w = len(images), images.shape[2] // GRID, images.shape[3] // GRID
    grid = images[:, :, : GRID * h, : GRID * w].reshape(n, -1, GRID, h, GRID, w)
    ninths = grid.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)  # (B, 9, 3, h, w)
    cells = ninths[sources, pieces].view(len(sources), GRID, GRID, -1, h, w)
    return cells.permute(0, 3, 1, 4, 2, 5).reshape(len(sources), -1, GRID * h, GRID * w)


def draw_mosaics(n: int, g_max: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw the arguments of `make_mosaics` for n mosaics of n images, from torch's generator.

    Each mosaic shows g different images, every one at least once; g is uniform in 1 … g_max (at
    most n). The pieces are in random order, so that seams do not reveal g.

    Returns:
        g (n,), sources (n, 9) and pieces (n, 9), on the CPU.
    """
    g_max = min(g_max, n)
    n_cells = GRID * GRID
    g = torch.randint(1, g_max + 1, (n,))
    shown = torch.rand(n, n).argsort(1)[:, :g_max]
    cell = torch.arange(n_cells)
    which = torch.where(cell < g[:, None], cell, (torch.rand(n, n_cells) * g[:, None]).long())
    which = which.gather(1, torch.rand(n, n_cells).argsort(1))
    return g, shown.gather(1, which), torch.rand(n, n_cells).argsort(1)


def mix_unknowns(z: Tensor, labels: Tensor, share: Tensor, draws: Tensor) -> Tensor:
    """Mix features of different classes into unknown ones.

    z̃_i = λ_i z_i + (1 − λ_i) z_j with y_j ≠ y_i

    Args:
        z: (B, D).
        labels: (B,).
        share: λ, (B,).
        draws: (B, B), random numbers; the partner of i is the allowed j with the largest one.

    Returns:
        (B, D), or (0, D) if all labels are the same.

    Example:
        >>> share = torch.tensor([0.3, 0.3])
        >>> mixed = mix_unknowns(torch.eye(2), torch.tensor([0, 1]), share, torch.rand(2, 2))
        >>> torch.allclose(mixed, torch.tensor([[0.3, 0.7], [0.7, 0.3]]))
        True
    """
    differs = labels[:, None] != labels
    if not differs.any():
        return z[:0]
    partner = draws.masked_fill(~differs, -torch.inf).argmax(1)
    return share[:, None] * z + (1 - share)[:, None] * z[partner]
