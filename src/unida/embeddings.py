"""Frozen backbones: every image is embedded once, in a few views; heads are trained on that.

The embeddings of a domain lie in one memory-mapped file, (N, 1 + views, D), named by a hash of all
they follow from: first those of the plain view, then those of the augmented ones.
"""

import math
import os
from collections.abc import Iterator
from hashlib import blake2b
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from unida.config import RunConfig
from unida.data.cache import is_whole, write_whole
from unida.data.domain import Domain, cache_folder, on_device
from unida.data.pixels import ArrayStore, Progress
from unida.errors import UserError
from unida.models.backbone import Backbone
from unida.streams import stream
from unida.views import PLAIN, WEAK, View, make_view

_CHUNK = 64  # images at a time


def embed(
    domain: Domain,
    backbone: Backbone,
    views: tuple[View, ...],
    config: RunConfig,
    progress: Progress,
) -> Domain:
    """The same domain with embeddings in the place of pixels.

    Args:
        domain: decoded images.
        backbone: computes in full precision, and is left in evaluation mode.
        views: how the method wants to see the domain; several kinds take turns, and are not told
            apart later.
        config: of the run.
        progress: called as images are done.
    """
    wanted = dict.fromkeys(view for view in views if view != PLAIN) or (WEAK,)
    augmented = tuple(view.adjusted(config.flip, config.jitter) for view in wanted)
    backbone.to(domain.device).eval()
    shape = (len(domain), 1 + config.frozen_views, backbone.out_features)
    folder = cache_folder(config)
    file = folder / f"{_key(domain, backbone, augmented, config)}.f32"
    if not is_whole(file, 4 * math.prod(shape)):
        blocks = _embeddings(domain, backbone, augmented, config, progress)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(file, lambda out: _write(out, blocks))
        except OSError as error:
            raise UserError(
                f"The embeddings cannot be written in {folder}: {error.strerror}. Free some space "
                "or name another --cache-dir."
            ) from None
    progress(len(domain), len(domain))
    # Mode "c": torch wants a writable array; nothing written ever reaches the file.
    rows = torch.from_numpy(np.memmap(file, np.float32, "c", shape=shape))
    return Domain(domain.samples, on_device(ArrayStore(rows), domain.device), domain.device)


@torch.inference_mode()
def _embeddings(
    domain: Domain,
    backbone: Backbone,
    augmented: tuple[View, ...],
    config: RunConfig,
    progress: Progress,
) -> Iterator[Tensor]:
    """Blocks of rows (n, 1 + views, D), in order."""
    low, backbone.dtype = backbone.dtype, None
    for block, index in enumerate(torch.split(torch.arange(len(domain)), _CHUNK)):
        images = domain.images(index)
        rows = []
        for number in range(1 + config.frozen_views):
            draws = stream(0, "embedding", number, block)  # of any seed: they are made once
            view = augmented[(number - 1) % len(augmented)] if number else PLAIN
            rows.append(backbone(make_view(view, images, config.image_size, draws)))
        yield torch.stack(rows, 1).cpu()
        progress(int(index[-1]) + 1, len(domain))
    backbone.dtype = low


def _write(out: BinaryIO, blocks: Iterator[Tensor]) -> None:
    for block in blocks:
        out.write(block.contiguous().numpy().tobytes())
    out.flush()
    os.fsync(out.fileno())


def _key(domain: Domain, backbone: Backbone, augmented: tuple[View, ...], config: RunConfig) -> str:
    """A name for the embeddings; the pixels are hashed only where nobody knows what they are of."""
    said = (augmented, config.frozen_views, config.image_size, backbone.spec)
    key = blake2b(repr((said, domain.pixels.key)).encode(), digest_size=16)
    if domain.pixels.key is None:
        for index in torch.split(torch.arange(len(domain)), _CHUNK):
            key.update(domain.pixels.get(index).cpu().numpy().tobytes())
    for tensor in backbone.state_dict().values():
        key.update(tensor.cpu().numpy().tobytes())
    return key.hexdigest()
