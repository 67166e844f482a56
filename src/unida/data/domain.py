"""A domain ready for training: samples with their pixels or embeddings."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from unida.config import RunConfig
from unida.data.cache import default_cache_dir
from unida.data.pixels import (
    ArrayStore,
    Part,
    PixelStore,
    cached_bytes,
    choose_cache,
    load_pixels,
)
from unida.data.samples import Samples
from unida.types import IntArray
from unida.utils import distributed
from unida.utils.devices import send
from unida.utils.progress import Update


@dataclass(frozen=True)
class Domain:
    """The images of one domain, decoded."""

    samples: Samples
    pixels: PixelStore
    device: torch.device

    def __len__(self) -> int:
        return len(self.samples)

    def images(self, index: Tensor) -> Tensor:
        """Return the pixels at `index`, uint8 (B, 3, S, S), on the training device."""
        return send(self.pixels.get(index), self.device)

    def part(self, index: IntArray) -> "Domain":
        """Return the images at `index` as a domain; the domain itself where that is all."""
        if len(index) == len(self):
            return self
        rows = Part(self.pixels, torch.from_numpy(index))
        return Domain(self.samples.keep(index, ()), rows, self.device)


def load_domains(
    config: RunConfig,
    device: torch.device,
    named_samples: dict[str, Samples],
    progress: Callable[[str], Update],
) -> dict[str, Domain]:
    """Decode the images of all domains, within one budget of memory.

    Args:
        config: of the run; image size and cache settings are used.
        device: where training happens; pixels move there if they fit comfortably.
        named_samples: by domain name.
        progress: called with a domain's name, gives its progress callback.
    """
    size = config.data.pixel_size
    folder = cache_folder(config)
    needed = sum(len(samples) for samples in named_samples.values()) * 3 * size * size
    # Processes that share the images map one file, rather than each keeping its own.
    cache = (
        "disk"
        if config.data.cache == "auto" and distributed.world_size() > 1
        else config.data.cache
    )

    def cached() -> int:
        return sum(cached_bytes(samples, size, folder) for samples in named_samples.values())

    mode = choose_cache(cache, needed, config.data.memory_gb, folder, cached)
    domains = {}
    for name, samples in named_samples.items():
        samples, pixels = load_pixels(samples, size, mode, folder, progress(name))
        if isinstance(pixels, ArrayStore):
            pixels = on_device(pixels, device)
        domains[name] = Domain(samples, pixels, device)
    return domains


def cache_folder(config: RunConfig) -> Path:
    """Return the folder of decoded pixels and embeddings."""
    return Path(config.data.cache_dir) if config.data.cache_dir else default_cache_dir()


def on_device(store: ArrayStore, device: torch.device) -> ArrayStore:
    """Move a store to a GPU if it fits there comfortably; return it as it is otherwise."""
    if device.type != "cuda":
        return store
    free, _ = torch.cuda.mem_get_info(device)
    return store.to(device) if store.array.nbytes < 0.15 * free else store
