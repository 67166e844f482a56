"""Model + images → arrays."""

from collections.abc import Iterable

import torch
from torch import Tensor

from unida.data.pixels import PixelStore
from unida.methods import Method
from unida.types import Outputs, Scored
from unida.views import PLAIN, make_view


def score_images(
    method: Method, pixels: PixelStore, image_size: int, device: torch.device, batch: int = 128
) -> Scored:
    """What the method says of every image, shown plainly, in order."""
    chunks = (torch.arange(i, min(i + batch, len(pixels))) for i in range(0, len(pixels), batch))
    return score_batches(method, (pixels.get(chunk) for chunk in chunks), image_size, device)


@torch.inference_mode()
def score_batches(
    method: Method, batches: Iterable[Tensor], image_size: int, device: torch.device
) -> Scored:
    """The same for batches of uint8 images (B, 3, S, S); the set is judged as a whole."""
    method.eval()
    parts = []
    for images in batches:
        view = make_view(PLAIN, images.to(device), image_size, torch.Generator())
        parts.append(method.predict(view))
    whole = method.judge(
        Outputs(
            probs=torch.cat([part.probs for part in parts]),
            unknown_score=torch.cat([part.unknown_score for part in parts]),
            features=torch.cat([part.features for part in parts]),
        )
    )
    return Scored(
        probs=whole.probs.cpu().double().numpy(),
        unknown_score=whole.unknown_score.cpu().double().numpy(),
        features=whole.features.float().cpu().numpy(),
    )
