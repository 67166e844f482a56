"""Model + images → arrays."""

import numpy as np
import torch
from torch import Tensor

from unida.data.pixels import PixelStore
from unida.methods import Method
from unida.types import Outputs, Scored
from unida.views import PLAIN, make_view


@torch.inference_mode()
def score_images(
    method: Method, pixels: PixelStore, image_size: int, device: torch.device, batch: int = 128
) -> Scored:
    """What the method says of every image, shown plainly, in order."""
    method.eval()
    parts = []
    for start in range(0, len(pixels), batch):
        index = torch.arange(start, min(start + batch, len(pixels)))
        parts.append(score_batch(method, pixels.get(index).to(device), image_size))
    return Scored(
        probs=_gather([p.probs for p in parts]).astype(np.float64),
        unknown_score=_gather([p.unknown_score for p in parts]).astype(np.float64),
        features=_gather([p.features for p in parts]),
    )


def score_batch(method: Method, images: Tensor, image_size: int) -> Outputs:
    """The method's outputs for uint8 images (B, 3, S, S)."""
    return method.predict(make_view(PLAIN, images, image_size, torch.Generator()))


def _gather(parts: list[Tensor]) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    return torch.cat(parts).float().cpu().numpy()
