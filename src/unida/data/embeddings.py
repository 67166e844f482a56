"""Embeddings of frozen backbones: every image is embedded once, in the plain view and a few more.

The embeddings of a domain are one memory-mapped file, (N, 1 + views, D), plain view first, named by
a hash of everything they depend on. A second file lists the digests of its images: another domain
that shares some of them reuses their embeddings, if they are of the plain view alone. An
unfinished domain is stored in parts: an interrupted run continues from there.
"""

import itertools
import math
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import torch
from torch import Tensor

from unida.config import RunConfig
from unida.data.augmentations import EVAL_VIEW, WEAK_VIEW, View, make_view
from unida.data.cache import is_whole, touch, write_whole, write_with_checksum
from unida.data.domain import Domain, cache_folder, on_device
from unida.data.pixels import MappedStore
from unida.errors import UserError
from unida.utils import distributed
from unida.utils.devices import send
from unida.utils.progress import Update
from unida.utils.rng import generator

_CHUNK = 64  # images at a time
_PART = 16  # chunks in a stored part, at the most
_PART_SECONDS = 30  # so long at the most: what is computed after it is lost by a kill


class Embedder(Protocol):
    """What embeds images: a `unida.models.backbones.base.Backbone`.

    Attributes:
        spec: text that identifies the network, without its weights.
        out_features: numbers in an embedding.
        evaluation_precision: of the arithmetic; embeddings of another one are others.
    """

    spec: str
    out_features: int

    @property
    def evaluation_precision(self) -> str: ...

    def __call__(self, images: Tensor) -> Tensor: ...

    def to(self, device: torch.device) -> Any: ...

    def eval(self) -> Any: ...

    def evaluating(self, n_images: int) -> AbstractContextManager[None]: ...

    def state_dict(self) -> dict[str, Any]: ...


def embed(
    domain: Domain,
    backbone: Embedder,
    views: tuple[View, ...],
    config: RunConfig,
    progress: Update,
) -> Domain:
    """Replace the pixels of a domain by embeddings.

    Args:
        domain: decoded images.
        backbone: is left in evaluation mode.
        views: the method's views of the domain; several kinds take turns and are not distinguished
            later.
        config: of the run.
        progress: called as images are done.
    """
    training_views = dict.fromkeys(view for view in views if view != EVAL_VIEW) or (WEAK_VIEW,)
    augmented = tuple(
        view.adjusted(config.data.flip, config.data.jitter) for view in training_views
    )
    augmented = augmented[: config.model.frozen_views]
    backbone.to(domain.device)
    backbone.eval()
    shape = (len(domain), 1 + config.model.frozen_views, backbone.out_features)
    folder = cache_folder(config)
    network = _fingerprint(backbone, augmented, config)
    file = folder / f"{_key(domain, network)}.f32"
    if not is_whole(file, 4 * math.prod(shape)):
        cache = EmbeddingCache(folder, network, backbone.out_features, reuse=not augmented)
        blocks = _embeddings(domain, backbone, augmented, config, progress, cache)
        with _write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            kept = blocks if augmented else _store_parts(blocks, cache, file)
            with backbone.evaluating(len(domain)):
                write_with_checksum(file, lambda out: _write(out, kept))
            cache.note(file, cache.digests)
            for suffix in (".f32", ".rows"):  # but nothing that another process is writing
                for part in folder.glob(f"{file.stem}-*{suffix}"):
                    part.unlink(missing_ok=True)
    progress(len(domain), len(domain))
    rows = MappedStore(file, shape, dtype=np.float32)
    return Domain(domain.samples, on_device(rows, domain.device), domain.device)


def embed_shard(domain: Domain, backbone: Embedder, config: RunConfig, progress: Update) -> None:
    """Embed this process's shard of a domain, plain views alone, into parts in the cache folder.

    `embed` then finds the parts of all processes there.
    """
    mine = distributed.shard(-(-len(domain) // _CHUNK))  # whole chunks, as one process computes
    first, last = mine.start * _CHUNK, min(mine.stop * _CHUNK, len(domain))
    backbone.to(domain.device)
    backbone.eval()
    folder = cache_folder(config)
    network = _fingerprint(backbone, (), config)
    file = folder / f"{_key(domain, network)}.f32"
    n_bytes = 4 * len(domain) * backbone.out_features
    if first < last and not is_whole(file, n_bytes):
        cache = EmbeddingCache(folder, network, backbone.out_features)
        shard = domain.part(np.arange(first, last))
        blocks = _embeddings(shard, backbone, (), config, progress, cache)
        with _write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for _ in _store_parts(blocks, cache, file, first):
                pass


def open_cache(folder: Path, backbone: Embedder, image_size: int) -> "EmbeddingCache":
    """Return what the cache folder has of plain views by a network."""
    config = RunConfig.from_flat(image_size=image_size)
    return EmbeddingCache(folder, _fingerprint(backbone, (), config), backbone.out_features)


@contextmanager
def _write_errors(folder: Path) -> Iterator[None]:
    """Turn a failed write into a `UserError`."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"The embeddings cannot be written in {folder}: {error.strerror}. Free some space "
            "or name another --cache-dir."
        ) from None


class EmbeddingCache:
    """Embeddings that the same network computed in earlier runs, by digest of the image.

    Args:
        folder: the cache folder.
        network: fingerprint of everything the embeddings depend on but the image.
        width: numbers in one.
        reuse: whether to search the folder; augmented views are drawn for each run.
    """

    def __init__(self, folder: Path, network: bytes, width: int, reuse: bool = True) -> None:
        self.network, self.width, self.digests = network, width, list[bytes]()
        self.found: dict[bytes, tuple[Path, int, int]] = {}  # file, rows in it, number of the row
        for record in folder.glob("*.rows") if reuse else ():
            with suppress(OSError):  # another process has finished the domain, or it is private
                self._read(record)

    def _read(self, record: Path) -> None:
        content, file = record.read_bytes(), record.with_suffix(".f32")
        digests = [content[i : i + 16] for i in range(16, len(content), 16)]
        if content[:16] == self.network and is_whole(file, 4 * self.width * len(digests)):
            touch(record)
            self.found |= {digest: (file, len(digests), i) for i, digest in enumerate(digests)}

    def split(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the indices of new images, and the embeddings of the others."""
        pixels = images.cpu().numpy()
        digests = [blake2b(one.tobytes(), digest_size=16).digest() for one in pixels]
        self.digests += digests
        try:
            rows = self._rows(digests)
        except FileNotFoundError:  # another process has put parts together and removed them
            self.found = {key: at for key, at in self.found.items() if at[0].exists()}
            rows = self._rows(digests)
        new = [i for i, digest in enumerate(digests) if digest not in self.found]
        return torch.tensor(new, dtype=torch.long), rows

    def _rows(self, digests: list[bytes]) -> list[Tensor]:
        """Read what is stored of these images.

        Files are mapped for this long only: there may be more of them than a process can open.
        """
        known = (self.found[digest] for digest in digests if digest in self.found)
        rows: list[Tensor] = []
        for (file, n), group in itertools.groupby(known, lambda at: at[:2]):
            store = MappedStore(file, (n, 1, self.width), dtype=np.float32)
            rows += store.get(torch.tensor([i for _, _, i in group]))
        return rows

    @torch.inference_mode()
    def embed(self, images: Tensor, backbone: Embedder, image_size: int) -> Tensor:
        """Return the embeddings (B, 1, D) of the plain views; new ones are computed, not stored."""
        new, known = self.split(images)
        rows = torch.empty(len(images), 1, self.width, device=images.device)
        if known:
            is_known = torch.ones(len(images), dtype=torch.bool).index_fill(0, new, False)
            rows[is_known.to(images.device)] = torch.stack(known).to(images.device)
        if len(new):
            index = send(new, images.device)
            view = make_view(EVAL_VIEW, images[index], image_size, torch.Generator())
            rows[index, 0] = backbone(view)
        return rows

    def note(self, file: Path, digests: list[bytes]) -> None:
        """Write the digests of the images of a file."""
        content = b"".join([self.network, *digests])
        write_whole(file.with_suffix(".rows"), lambda out: out.write(content))


@torch.inference_mode()
def _embeddings(
    domain: Domain,
    backbone: Embedder,
    augmented: tuple[View, ...],
    config: RunConfig,
    progress: Update,
    cache: EmbeddingCache,
) -> Iterator[Tensor]:
    """Compute blocks of embeddings (n, 1 + views, D), in order."""
    for block, index in enumerate(torch.split(torch.arange(len(domain)), _CHUNK)):
        images = domain.images(index)
        new, known = cache.split(images)
        rows = torch.empty(len(index), 1 + config.model.frozen_views, backbone.out_features)
        if known:
            is_known = torch.ones(len(index), dtype=torch.bool).index_fill(0, new, False)
            rows[is_known] = torch.stack(known)
        for number in range((1 + config.model.frozen_views) * bool(len(new))):
            # One fixed stream whatever the run's seed: embeddings are computed once for all runs.
            draws = generator(0, "embedding", number, block)
            view = augmented[(number - 1) % len(augmented)] if number else EVAL_VIEW
            pixels = make_view(
                view, images[send(new, images.device)], config.data.image_size, draws
            )
            rows[new, number] = backbone(pixels).cpu()
        yield rows
        progress(int(index[-1]) + 1, len(domain))


def _store_parts(
    blocks: Iterator[Tensor], cache: EmbeddingCache, file: Path, start: int = 0
) -> Iterator[Tensor]:
    """Pass the blocks on; every few of them are also stored as a file of their own.

    Args:
        blocks: of embeddings.
        cache: has the digests of the images in them.
        file: of the domain.
        start: number of the first image in the domain.
    """
    first = 0
    while some := list(_part_of(blocks)):
        yield from some
        part = file.with_stem(f"{file.stem}-{start + first}")
        write_with_checksum(part, partial(_write, blocks=iter(some)))
        cache.note(part, cache.digests[first:])
        first = len(cache.digests)


def _part_of(blocks: Iterator[Tensor]) -> Iterator[Tensor]:
    """Yield the blocks of the next part."""
    began = time.monotonic()
    for block in itertools.islice(blocks, _PART):
        yield block
        if time.monotonic() - began > _PART_SECONDS:
            return


def _write(out: BinaryIO, blocks: Iterator[Tensor]) -> None:
    for block in blocks:
        out.write(block.contiguous().numpy().tobytes())
    out.flush()
    os.fsync(out.fileno())


def _fingerprint(backbone: Embedder, augmented: tuple[View, ...], config: RunConfig) -> bytes:
    """Hash everything that embeddings depend on but the images.

    Runtimes and devices that compute in float32 differ by rounding and share embeddings.
    """
    values = (augmented, config.model.frozen_views, config.data.image_size, backbone.spec)
    precision = backbone.evaluation_precision
    text = repr(values) if precision == "fp32" else repr((*values, precision))
    key = blake2b(text.encode(), digest_size=16)
    for tensor in backbone.state_dict().values():
        key.update(tensor.cpu().numpy().tobytes())
    return key.digest()


def _key(domain: Domain, network: bytes) -> str:
    """Name the embeddings; pixels are hashed only where their content key is not known."""
    key = blake2b(repr((network, domain.pixels.key)).encode(), digest_size=16)
    if domain.pixels.key is None:
        for index in torch.split(torch.arange(len(domain)), _CHUNK):
            key.update(domain.pixels.get(index).cpu().numpy().tobytes())
    return key.hexdigest()
