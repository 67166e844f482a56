"""The signal-to-noise ratio of SCL and CL (appendix B of the paper), from the real losses.

SNR = PL / NL: the mean loss of images whose two views belong together over that of images whose
second view shows something else. The paper claims that SCL's is larger, in three lines of algebra
for one similarity S of two alike views and one S' of two others. Here it is computed for that case
and for batches: made-up ones, and digits before and after training.
"""

import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from unida.bench.figures.pair_losses import views
from unida.bench.figures.sheet import FigureData
from unida.bench.figures.theme import COLOURS, draw_line, legend, panels
from unida.data.augmentations import make_view, strong_view
from unida.data.decode import to_square
from unida.losses.contrastive import Form, pair_masks, pair_terms, similarities
from unida.methods import Method
from unida.methods.presets import configure
from unida.pipeline import run_adaptation
from unida.protocols.digits import SHARED, TARGET_ONLY, uci, write_digits
from unida.protocols.tasks import load_protocol

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

UNLIKE = 0.01
"""Similarity of two views that do not look alike, in the case of the proof."""
ALPHAS = (0.0, 0.5, 1.0)
FORMS: tuple[Form, ...] = ("scaled", "paper", "released")
STEPS, CROP, BATCH = 200, 0.7, 32


@dataclass(frozen=True)
class Ratio:
    """Signal-to-noise ratios of both losses on the same pairs.

    Attributes:
        where: `proof`, or the batch.
        form: of SCL, or `S`, the similarity of the proof.
        alpha: α.
        similarity: S of two alike views, in the proof; mean P of clean pairs in a batch.
        ratio_cl, ratio_scl: PL / NL of the losses.
        gradient_cl, gradient_scl: the same of the norms of the gradient at z, in a batch.
        holds: whether SCL's ratio of losses is the larger one, as claimed.
    """

    where: str
    form: str
    alpha: float
    similarity: float
    ratio_cl: float
    ratio_scl: float
    gradient_cl: float | None
    gradient_scl: float | None
    holds: bool


def signal_to_noise() -> FigureData[Ratio]:
    """Return the ratios in the case of the proof, on made-up batches and on digits."""
    rows = [*_of_proof()]
    for where, y, z in (("made up", *_made_up()), *_of_digits()):
        rows += [
            _of_batch(where, form, alpha, y, z)
            for form in FORMS
            for alpha in (ALPHAS if form != "released" else ALPHAS[:1])
        ]
    text = (
        f"Proof: S alike, {UNLIKE:g} unlike, one negative a positive. Batches: of every other "
        f"image the second view is another image's; digits, crop {CROP:g}, before and after "
        f"{STEPS} steps. Ratio above 1 of SCL over CL: the claim holds."
    )
    return FigureData("Signal-to-noise ratio of SCL and CL", text, rows)


def _of_proof() -> Iterator[Ratio]:
    """Yield the ratios where P and Q are e^α S and S, as in the appendix."""
    s = torch.linspace(0.02, 0.98, 49, dtype=torch.float64)
    unlike = torch.full_like(s, UNLIKE)
    for alpha in ALPHAS:
        prior = math.exp(alpha)

        def total(same: Tensor, other: Tensor, soft: bool, prior: float = prior) -> Tensor:
            """Add a positive pair of similarity `same` and a negative one of `other`."""
            one, none = torch.ones_like(same), torch.zeros_like(same)
            p, n = (prior * same, other) if soft else (one, none)
            positive = pair_terms(p, same.log(), torch.log1p(-same))
            return positive + pair_terms(n, other.log(), torch.log1p(-other))

        cl, scl = (total(s, unlike, soft) / total(unlike, s, soft) for soft in (False, True))
        for at, of_cl, of_scl in zip(s.tolist(), cl.tolist(), scl.tolist(), strict=True):
            yield Ratio("proof", "S", alpha, at, of_cl, of_scl, None, None, of_scl > of_cl)


def _made_up() -> tuple[Tensor, Tensor]:
    y, _ = views(2.0, False, 60, 0)
    z = y + 0.1 * torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype)
    return y, z


def _of_batch(where: str, form: Form, alpha: float, y: Tensor, z: Tensor) -> Ratio:
    """Return the ratios where every other image's second view is that of the next such image."""
    b = len(z) // 2
    noisy = torch.arange(0, b, 2)
    order = torch.arange(2 * b)
    order[b + noisy] = b + noisy.roll(1)
    y, z = y[order], z[order].clone().requires_grad_()
    p, log_q, log_not_q = similarities(y, z, form, alpha)
    positive, negative = pair_masks(2 * b, z.device)
    is_noisy = torch.zeros(2 * b, dtype=torch.bool)
    is_noisy[noisy] = is_noisy[b + noisy] = True

    def ratios(target: Tensor) -> tuple[float, float]:
        terms = pair_terms(target, log_q, log_not_q)
        per_image = (terms * positive).sum(1) + (terms * negative).sum(1) / (2 * b - 2)
        norms = torch.stack(
            [torch.autograd.grad(one, z, retain_graph=True)[0][i].norm()
             for i, one in enumerate(per_image)]
        )  # fmt: skip
        return tuple(  # type: ignore[return-value]
            (values[~is_noisy].mean() / values[is_noisy].mean()).item()
            for values in (per_image.detach(), norms)
        )

    cl, gradient_cl = ratios(positive.to(z.dtype))
    scl, gradient_scl = ratios(p)
    clean = p[positive & ~is_noisy[:, None]].mean().item()
    return Ratio(where, form, alpha, clean, cl, scl, gradient_cl, gradient_scl, scl > cl)


def _of_digits() -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield y and z of two views of digits, before and after training; classes differ in turn."""
    options = load_protocol("digits").run | {"device": "cpu", "report": False, "cache": "memory"}
    size = int(options["image_size"])
    pixels, labels = uci()
    of_class = [np.flatnonzero(labels == digit) for digit in SHARED + TARGET_ONLY]
    in_turn = np.stack([rows[: BATCH // len(of_class)] for rows in of_class], 1).ravel()
    larger = size * 8 // 7
    squares = [to_square(Image.fromarray(pixels[i]), larger) for i in in_turn]
    images = torch.from_numpy(np.stack(squares))
    with tempfile.TemporaryDirectory() as folder:
        places = write_digits(Path(folder) / "data")
        options |= {"source": str(places["mnist"][0]), "target": str(places["uci"][1])}
        for when, steps in (("before", 1), ("after", STEPS)):
            out = {"out": str(Path(folder) / when), "steps": steps}
            method = run_adaptation(configure("san", **(options | out))).method.eval()
            yield f"digits, {when} training", *_features(method, images, size)


@torch.inference_mode()
def _features(method: Method, images: Tensor, size: int) -> tuple[Tensor, Tensor]:
    draws, view = torch.Generator().manual_seed(0), strong_view(CROP).adjusted(False, 1.0)
    pair = [make_view(view, images, size, draws) for _ in range(2)]
    y = method.backbone(torch.cat(pair))
    return y.double().clone(), method.projection(y).double().clone()  # type: ignore[operator]


def draw_signal_to_noise(data: FigureData[Ratio]) -> "Picture":
    """Draw the proof's case as lines, and the batches as pairs of points."""
    picture, grid = panels(3, width=2.6, height=2.4)
    for number, alpha in enumerate(ALPHAS):
        rows = [row for row in data.rows if row.where == "proof" and row.alpha == alpha]
        s = [row.similarity for row in rows]
        if not number:
            draw_line(grid[0], 3, "CL", s, [r.ratio_cl for r in rows], [None] * len(s), every=10)
        scl = [row.ratio_scl for row in rows]
        draw_line(grid[0], number, f"SCL, α = {alpha:g}", s, scl, [None] * len(s), every=10)
    grid[0].set_title("the proof's case", loc="left")
    grid[0].set_xlabel("S of two alike views")
    grid[0].set_ylim(-1, 4)
    batches = [row for row in data.rows if row.where != "proof"]
    for axes, (title, of_cl, of_scl) in zip(
        grid[1:],
        (
            ("losses", "ratio_cl", "ratio_scl"),
            ("gradients at z", "gradient_cl", "gradient_scl"),
        ),
        strict=True,
    ):
        places = range(len(batches))
        for number, name in enumerate((of_cl, of_scl)):
            values = [getattr(row, name) for row in batches]
            label = ("CL in batches", "SCL in batches")[number]
            style: dict[str, Any] = {
                "marker": ("o", "s")[number],
                "color": COLOURS[4 + number],
                "label": label,
            }
            axes.scatter(values, places, s=10, **style)
        texts = [f"{row.where}, {row.form} {row.alpha:g}" for row in batches]
        axes.set_yticks(places, texts, fontsize=5)
        axes.set_xscale("log")
        axes.axvline(1, color="#999999", linewidth=0.6)
        axes.invert_yaxis()
        axes.set_title(f"PL / NL of {title}", loc="left")
    legend(picture, grid)
    return picture
