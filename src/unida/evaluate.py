"""Model + images → arrays."""

from collections.abc import Iterable

import torch
from torch import Tensor

from unida import team
from unida.data.pixels import PixelStore
from unida.methods import Method
from unida.types import Outputs, Scored
from unida.views import PLAIN, make_view


def score_images(
    method: Method, pixels: PixelStore, image_size: int, device: torch.device, batch: int = 128
) -> Scored:
    """What the method says of every image, shown plainly, in order; a team shares the work."""
    chunks = torch.split(torch.arange(len(pixels))[team.share(len(pixels))], batch)
    return score_batches(method, (pixels.get(chunk) for chunk in chunks), image_size, device)


@torch.inference_mode()
def score_batches(
    method: Method, batches: Iterable[Tensor], image_size: int, device: torch.device
) -> Scored:
    """The same for batches of uint8 images (B, 3, S, S); the set is judged as a whole.

    A process of a team hands over its share of the images and gets the outputs of all.
    """
    method.eval()
    parts = []
    for images in batches:
        view = make_view(PLAIN, images.to(device), image_size, torch.Generator())
        parts.append(method.predict(view))
    whole = method.judge(
        Outputs(
            probs=team.gather(torch.cat([part.probs for part in parts])),
            unknown_score=team.gather(torch.cat([part.unknown_score for part in parts])),
            features=team.gather(torch.cat([part.features for part in parts])),
        )
    )
    return Scored(
        probs=whole.probs.cpu().double().numpy(),
        unknown_score=whole.unknown_score.cpu().double().numpy(),
        features=whole.features.float().cpu().numpy(),
    )
