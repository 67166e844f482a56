"""Views: augmentations of a whole batch on the training device, a different draw for every image.

A view is a box cut from the image (and perhaps mirrored), resampled to the network's size, and a
change of colour. Every draw comes from a CPU generator, so views are the same on CPU and GPU.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from unida.utils.devices import send

GREY = (0.299, 0.587, 0.114)  # weights of red, green and blue in brightness


@dataclass(frozen=True)
class View:
    """The augmentation that makes a view.

    Attributes:
        crop: `centre`: the middle of the image; `random`: a box of the network's size anywhere;
            `resized`: a box of random area and shape, scaled to the network's size.
        least_area: smallest share of the image in a `resized` box.
        flip: mirror half of the images.
        jitter: strengths of brightness, contrast, saturation and hue.
        jitter_chance: share of the images whose colours change.
    """

    crop: Literal["centre", "random", "resized"]
    least_area: float = 1.0
    flip: bool = False
    jitter: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    jitter_chance: float = 0.8

    def adjusted(self, flip: bool, jitter: float) -> "View":
        """Apply a run's options: no mirroring, weaker or stronger colour changes."""
        b, c, s, h = (jitter * strength for strength in self.jitter)
        return replace(self, flip=self.flip and flip, jitter=(b, c, s, min(h, 0.5)))


EVAL_VIEW = View("centre")
"""The view a trained model predicts on."""

WEAK_VIEW = View("random", flip=True)
"""OVANet's training view: 224 from 256, mirrored at random."""


def strong_view(least_area: float) -> View:
    """Make SAN's target view: a box of at least this area, mirrored, colours changed."""
    return View("resized", least_area, flip=True, jitter=(0.4, 0.4, 0.2, 0.1))


def make_view(
    view: View,
    images: Tensor,
    size: int,
    draws: Generator,
    place: tuple[int, int] | None = None,
) -> Tensor:
    """Make one view of each image.

    Args:
        view: the augmentation.
        images: uint8 (B, 3, S, S), S ≥ size; or the embeddings of a frozen backbone, float
            (B, 1 + V, D), the plain view first.
        size: side of the result.
        draws: source of all randomness; a CPU generator.
        place: (start, n) where the images are a shard of a larger batch: start of the shard, and
            images in the batch. Their draws are those they would have in the whole batch.

    Returns:
        Float (B, 3, size, size) in [0, 1]; or one embedding of each image, (B, D).
    """
    first, n = place or (0, images.shape[0])  # len() would fix the size of an exported batch

    def uniform(rows: int) -> Tensor:
        return torch.rand(rows, n, generator=draws)[:, first : first + len(images)]

    if images.is_floating_point():
        if view == EVAL_VIEW:
            return images[:, 0]
        return _stored(images, uniform) if images.shape[1] > 1 else images[:, 0].clone()
    pixels = images.float() / 255
    if view.crop == "centre" and not view.flip:
        corner = (images.shape[-1] - size) // 2
        cut = pixels[..., corner : corner + size, corner : corner + size]
    else:
        boxes = _boxes(view, uniform(5), images.shape[-1], size)
        cut = _cut(pixels, send(boxes, images.device), size)
    if any(view.jitter):
        cut = _recolour(cut, view, 2 * uniform(5) - 1)
    return cut


def _stored(embeddings: Tensor, uniform: Callable[[int], Tensor]) -> Tensor:
    """Pick the embedding of any view of each image, the plain one included."""
    n, variants = embeddings.shape[:2]
    picked = send((uniform(1)[0] * variants).long(), embeddings.device)
    return embeddings[torch.arange(n, device=embeddings.device), picked]


def _boxes(view: View, u: Tensor, side: int, size: int) -> Tensor:
    """Draw boxes (n, 4): centre x, y in [−1, 1], half width (negative: mirrored), half height."""
    n = u.shape[1]
    if view.crop == "resized":
        area = view.least_area + (1 - view.least_area) * u[0]
        shape = torch.exp((2 * u[1] - 1) * math.log(4 / 3))
        width, height = (area * shape).sqrt().clamp_max(1), (area / shape).sqrt().clamp_max(1)
        x, y = (2 * u[2] - 1) * (1 - width), (2 * u[3] - 1) * (1 - height)
    else:
        width = height = torch.full((n,), size / side)
        room = side - size
        if view.crop == "random":  # whole pixels, so that nothing is blurred
            x, y = (((u[i] * (room + 1)).floor() * 2 - room) / side for i in (2, 3))
        else:
            x = y = torch.full((n,), (room // 2 * 2 - room) / side)
    if view.flip:
        width = torch.where(u[4] < 0.5, -width, width)
    return torch.stack([x, y, width, height], 1)


def _cut(pixels: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Resample each box to a square of `size`."""
    centres = (torch.arange(size, device=pixels.device) * 2 + 1) / size - 1  # of pixels, in [−1, 1]
    x, y = (boxes[:, i, None] + boxes[:, i + 2, None] * centres for i in (0, 1))
    square = (len(boxes), size, size)
    grid = torch.stack([x[:, None, :].expand(square), y[:, :, None].expand(square)], -1)
    return F.grid_sample(pixels, grid, padding_mode="border", align_corners=False)


def _recolour(images: Tensor, view: View, u: Tensor) -> Tensor:
    """Change brightness, contrast, saturation and hue by one linear map of RGB a sample.

    All four map grey to grey, so they compose to a 3×3 matrix and one grey offset; hue rotates
    colours about the grey axis.
    """
    chosen = (u[4] + 1) / 2 < view.jitter_chance
    b, c, s, h = (torch.where(chosen, strength * u[i], 0) for i, strength in enumerate(view.jitter))
    brightness, contrast, saturation = ((1 + x).clamp_min(0) for x in (b, c, s))
    grey = torch.tensor(GREY)
    desaturate = (1 - saturation)[:, None, None] * grey.expand(3, 3)
    matrix = saturation[:, None, None] * torch.eye(3) + desaturate
    matrix = (contrast * brightness)[:, None, None] * (_hue_turn(h) @ matrix)
    lift = (1 - contrast) * brightness

    matrix, lift, grey = (send(t, images.device) for t in (matrix, lift, grey))
    mixed = (lift * (images.mean((2, 3)) * grey).sum(1))[:, None, None, None]
    for channel in range(3):  # a product of matrices this thin is slow on a GPU
        mixed = torch.addcmul(mixed, matrix[:, :, channel, None, None], images[:, channel, None])
    return mixed.clamp_(0, 1)


def _hue_turn(turns: Tensor) -> Tensor:
    """Make rotations (n, 3, 3) about the grey axis by the given fractions of a full turn."""
    angle = 2 * math.pi * turns[:, None, None]
    axis = 1 / math.sqrt(3)
    cross = axis * torch.tensor([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    onto_axis = torch.full((3, 3), 1 / 3)
    return angle.cos() * (torch.eye(3) - onto_axis) + angle.sin() * cross + onto_axis
