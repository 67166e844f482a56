"""The contrastive losses of SAN on pairs of views: figure 1a and appendix A of the paper.

No results are needed: the losses are those that train, on made-up features.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from unida.bench.figures.sheet import FigureData
from unida.bench.figures.theme import draw_line, legend, panels
from unida.losses import info_nce, soft_contrastive
from unida.losses.contrastive import NU_Y, NU_Z, pair_masks, pair_terms, similarities
from unida.ops.kernels import log_t_kernel, t_kernel

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

IMAGES, WIDTH, DRAWS = 32, 64, 4
"""Images of a batch, dimensions of its features, and batches that are averaged."""
REAL = 400.0
"""Mean squared distance of pooled ResNet-50 features of different images, about."""
ALPHAS = (0.0, 0.25, 0.5, 0.75, 1.0)

Loss = Callable[[Tensor, Tensor], Tensor]


def contrastive(y: Tensor, z: Tensor) -> Tensor:
    """Compute CL with the kernel of SCL (Eq. 2): P is 1 for two views of one image, else 0."""
    _, log_q, log_not_q = similarities(y, z, "scaled")
    positive, negative = pair_masks(len(z), z.device)
    terms = pair_terms(positive.to(z.dtype), log_q, log_not_q)
    return terms[positive].mean() + terms[negative].mean()


LOSSES: dict[str, tuple[Loss, float]] = {
    "CL, InfoNCE (Eq. 1)": (lambda y, z: info_nce(z), 2.0),
    "CL with the kernel (Eq. 2)": (contrastive, 2.0),
    "SCL, scaled (default)": (lambda y, z: soft_contrastive(y, z, "scaled"), 2.0),
    "SCL, printed, unit features": (lambda y, z: soft_contrastive(y, z, "paper"), 2.0),
    "SCL, printed, real distances": (lambda y, z: soft_contrastive(y, z, "paper"), REAL),
    "SCL, released, real distances": (lambda y, z: soft_contrastive(y, z, "released"), REAL),
}
"""Losses, each with the mean squared distance of y between different images."""


@dataclass(frozen=True)
class Pull:
    """How strongly a loss pulls the second view of an image towards the first.

    Attributes:
        loss: key of `LOSSES`.
        pair: `clean`, two views that look alike, or `noisy`, one that looks like another image.
        angle: between the two views in z, in degrees.
        pull: the slope of the loss over that angle, in radians.
    """

    loss: str
    pair: str
    angle: float
    pull: float


def gradients() -> FigureData[Pull]:
    """Return the pull of every loss on clean and noisy pairs, as in figure 1a."""
    rows = [
        Pull(name, pair, angle, _pull(loss, distance, pair == "noisy", angle))
        for name, (loss, distance) in LOSSES.items()
        for pair in ("clean", "noisy")
        for angle in range(10, 180, 10)
    ]
    text = (
        f"{IMAGES} random images with two views, {WIDTH} dimensions, mean of {DRAWS} draws. Of one "
        "image the second view looks like the first (clean) or like another image (noisy) in the "
        "backbone's features y. Above zero the loss pulls its views together in z."
    )
    return FigureData("Gradients on clean and noisy pairs", text, rows)


def views(distance: float, noisy: bool, angle: float, draw: int) -> tuple[Tensor, Tensor]:
    """Make y and z, (2B, D) each, where the two views of the first image are the pair.

    Args:
        distance: mean squared distance of y between different images.
        noisy: whether its second view looks like another image.
        angle: between its views in z, in degrees.
        draw: number of the batch.
    """
    random = torch.Generator().manual_seed(draw)

    def unit(n: int) -> Tensor:
        return F.normalize(torch.randn(n, WIDTH, generator=random, dtype=torch.float64))

    first, other, noise = unit(IMAGES), unit(1)[0], unit(IMAGES)
    second = F.normalize(first + 0.3 * noise)
    if noisy:
        second[0] = other
    z = unit(2 * IMAGES)
    across = F.normalize(z[IMAGES] - (z[IMAGES] @ z[0]) * z[0], dim=0)
    z[IMAGES] = _turned(z[0], across, angle)
    return math.sqrt(distance / 2) * torch.cat([first, second]), z


def _pull(loss: Loss, distance: float, noisy: bool, angle: float) -> float:
    pulls = []
    for draw in range(DRAWS):
        y, z = views(distance, noisy, angle, draw)
        across = F.normalize(z[IMAGES] - (z[IMAGES] @ z[0]) * z[0], dim=0)
        onward = _turned(z[0], across, angle + 90)  # a larger angle
        (slope,) = torch.autograd.grad(loss(y, z.requires_grad_()), z)
        pulls.append((slope[IMAGES] @ onward).item())
    return math.fsum(pulls) / DRAWS


def _turned(start: Tensor, across: Tensor, angle: float) -> Tensor:
    """Return the unit vector at an angle, in degrees, from `start` in the plane with `across`."""
    turn = math.radians(angle)
    return math.cos(turn) * start + math.sin(turn) * across


def draw_gradients(data: FigureData[Pull]) -> "Picture":
    """Draw a panel per loss, with a line for clean and one for noisy pairs."""
    names = list(dict.fromkeys(row.loss for row in data.rows))
    picture, grid = panels(len(names), width=2.3, height=1.8, sharex=True)
    for axes, name in zip(grid, names, strict=True):
        for number, pair in enumerate(("clean", "noisy")):
            rows = [row for row in data.rows if (row.loss, row.pair) == (name, pair)]
            x, values = [row.angle for row in rows], [row.pull for row in rows]
            draw_line(axes, number, pair, x, values, [None] * len(rows), every=5)
        axes.axhline(0, color="#999999", linewidth=0.6)
        axes.set_title(name, loc="left", fontsize=7)
        axes.ticklabel_format(axis="y", scilimits=(-2, 3))
        axes.grid(axis="y")
    for axes in grid[-3:]:
        axes.set_xlabel("angle of the views in z (°)")
        axes.tick_params(labelbottom=True)
    legend(picture, grid)
    return picture


@dataclass(frozen=True)
class Difference:
    """L_CL − L_SCL of one pair.

    Attributes:
        pair: `positive` (H = 1), `positive, as printed` or `negative` (H = 0).
        alpha: α.
        distance: d, the same in y and z (k* = 1).
        difference: L_CL − L_SCL.
    """

    pair: str
    alpha: float
    distance: float
    difference: float


def difference() -> FigureData[Difference]:
    """Return L_CL − L_SCL of a pair against distance, for several α (appendix A)."""
    distance = torch.linspace(0, 5, 51, dtype=torch.float64)
    kappa_y = t_kernel(distance.square(), NU_Y)
    log_q = log_t_kernel(distance.square(), NU_Z, "pdf")
    log_not_q = torch.log1p(-log_q.exp())
    rows = []
    for alpha in ALPHAS:
        prior = math.exp(alpha)
        for pair, h, p in (
            ("positive", torch.ones_like(distance), prior * kappa_y),
            ("negative", torch.zeros_like(distance), kappa_y),
        ):
            gap = pair_terms(h, log_q, log_not_q) - pair_terms(p, log_q, log_not_q)
            rows += [Difference(pair, alpha, *both) for both in _both(distance, gap)]
        printed = (1 - prior) * kappa_y * (log_not_q - log_q)
        rows += [
            Difference("positive, as printed", alpha, *both) for both in _both(distance, printed)
        ]
    text = (
        "One pair at the same distance d in y and z, printed kernels. 'As printed' is the "
        "appendix's (1 − e^α) κ ln(1/κ − 1), where the difference is (1 − e^α κ) ln(1/κ − 1)."
    )
    return FigureData("L_CL − L_SCL against distance", text, rows)


def _both(x: Tensor, y: Tensor) -> list[tuple[float, float]]:
    return list(zip(x.tolist(), y.tolist(), strict=True))


def draw_difference(data: FigureData[Difference]) -> "Picture":
    """Draw a panel for positive pairs, for the printed formula and for negative ones."""
    names = list(dict.fromkeys(row.pair for row in data.rows))
    picture, grid = panels(len(names), width=2.3, height=2.2)
    for axes, name in zip(grid, names, strict=True):
        for number, alpha in enumerate(ALPHAS):
            rows = [row for row in data.rows if (row.pair, row.alpha) == (name, alpha)]
            x, values = [row.distance for row in rows], [row.difference for row in rows]
            draw_line(axes, number, f"α = {alpha:g}", x, values, [None] * len(rows), every=10)
        axes.axhline(0, color="#999999", linewidth=0.6)
        axes.set_title(name, loc="left")
        axes.set_xlabel("distance d")
        axes.grid(axis="y")
    legend(picture, grid)
    return picture
