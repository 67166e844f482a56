"""Model + images → arrays."""

from collections.abc import Iterable

import torch
from torch import Tensor

from unida.data.augmentations import EVAL_VIEW, make_view
from unida.data.pixels import PixelStore
from unida.methods import Method
from unida.types import Outputs, Scored
from unida.utils import distributed
from unida.utils.chunking import RowBuffer


def predict_images(
    method: Method,
    pixels: PixelStore,
    image_size: int,
    device: torch.device,
    batch: int = 128,
    features: bool = True,
) -> Scored:
    """What the method says of every image, shown plainly, in order; a team shares the work."""
    mine = torch.arange(len(pixels))[distributed.shard(len(pixels))]
    batches = (pixels.get(chunk) for chunk in torch.split(mine, batch))
    return predict_batches(method, batches, len(mine), image_size, device, features)


@torch.inference_mode()
def predict_batches(
    method: Method,
    batches: Iterable[Tensor],
    most: int,
    image_size: int,
    device: torch.device,
    features: bool = True,
) -> Scored:
    """The same for batches of uint8 images (B, 3, S, S); the set is judged as a whole.

    A process of a team hands over its share of the images and gets the outputs of all.

    Args:
        method: is left in evaluation mode.
        batches: of this process.
        most: images there may be in them.
        image_size: side of what the network sees.
        device: where it computes.
        features: whether they are wanted; of very many images they are most of the memory.
    """
    method.eval()
    probs, scores, seen = RowBuffer(most), RowBuffer(most), RowBuffer(most)
    for images in batches:
        said = method.predict(
            make_view(EVAL_VIEW, images.to(device), image_size, torch.Generator())
        )
        probs.add(said.probs)
        scores.add(said.unknown_score)
        if features or method.about.transductive:
            seen.add(said.features)
    of_all = distributed.gather(probs.all())
    nothing = of_all.new_empty(len(of_all), 0)
    whole = method.postprocess(
        Outputs(
            probs=of_all,
            unknown_score=distributed.gather(scores.all()),
            features=distributed.gather(seen.all()) if seen.n else nothing,
        )
    )
    return Scored(
        probs=whole.probs.cpu().double().numpy(),
        unknown_score=whole.unknown_score.cpu().double().numpy(),
        features=(whole.features if features else nothing).float().cpu().numpy(),
    )
