"""Inputs of a run: files, tables of embeddings, and from Python what is in memory.

Nothing is copied or decoded before it is needed: an image that is in no file is an `Opener`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from unida.config import RunConfig
from unida.data.decode import BadImageError, Pixels, open_image, to_square
from unida.data.domain import Domain, load_domains, on_device
from unida.data.pixels import (
    ArrayStore,
    PixelStore,
    StreamedStore,
    decode_all,
    decode_to_memory,
    without,
)
from unida.data.samples import Samples, read_source, read_unlabelled
from unida.data.tables import is_table, read_table
from unida.errors import UserError, require
from unida.utils.progress import Update

Opener = Callable[[], Image.Image]
"""Returns an image when it is called."""

InputKind = Literal["place", "dataset", "images", "embeddings"]


@dataclass(frozen=True)
class InMemory:
    """Images of one domain, wherever they are.

    Attributes:
        samples: the path of an image that is in no file is its index.
        content: one opener an image; embeddings (N, views, D), the plain view first; or None for
            the files at the paths.
    """

    samples: Samples
    content: Sequence[Opener] | Tensor | None = None

    @property
    def items(self) -> Sequence[Path] | Sequence[Opener] | Tensor:
        """What a model predicts on."""
        return self.samples.paths if self.content is None else self.content


def kind_of(images: Any) -> InputKind:
    """Classify an input; what is nothing else is taken for embeddings, a row an image."""
    if isinstance(images, str | Path):
        return "place"
    if isinstance(images, dict):  # as a Hugging Face `DatasetDict` is
        names = ", ".join(map(str, images))
        raise UserError(f"These are several sets of images ({names}): hand over one of them.")
    if hasattr(images, "column_names") and hasattr(images, "features"):
        require(hasattr(images, "__len__"), "a data set", type(images).__name__, "one in memory")
        return "dataset"
    if isinstance(images, list | tuple):
        return "images" if images and _is_image(images[0]) else "embeddings"
    dimensions, dtype = getattr(images, "ndim", 2), getattr(images, "dtype", None)
    if dimensions == 1 and len(images) and _is_image(next(iter(images))):
        return "images"
    if dimensions > 2 and str(dtype) not in ("uint8", "torch.uint8"):
        raise UserError(f"Images in an array are {dtype}; allowed: uint8, from 0 to 255.")
    if dimensions == 3 and images.shape[-1] in (3, 4):
        raise UserError(f"An array of shape {tuple(images.shape)} is one image: hand over x[None].")
    return "images" if dimensions > 2 else "embeddings"


def _is_image(item: Any) -> bool:
    pixels = isinstance(item, np.ndarray) and item.ndim in (2, 3)
    return pixels or isinstance(item, str | Path | Image.Image)


def wrap_place(place: str | Path, labelled: bool = False) -> InMemory:
    """Wrap a folder, a list file or a CSV of images, or a table of embeddings.

    Args:
        place: where they are.
        labelled: whether they are a source.
    """
    samples = (read_source if labelled else read_unlabelled)(place)
    if not is_table(place):
        return InMemory(samples)
    rows = wrap_embeddings(read_table(place).embeddings)
    require(len(rows.samples) == len(samples), str(place), "changed", "a file that stays as it is")
    return InMemory(samples, rows.content)


def wrap_images(images: Any) -> InMemory:
    """Wrap a sequence of paths, PIL images or arrays, or an array of images of one size."""
    items = list(images.numpy(force=True) if isinstance(images, Tensor) else images)
    if all(isinstance(item, str | Path) for item in items):
        return InMemory(Samples(tuple(map(Path, items))))
    return wrap_openers([_opener(item) for item in items])


def wrap_openers(openers: Sequence[Opener]) -> InMemory:
    """Wrap images that are opened when they are needed."""
    return InMemory(_numbered(len(openers)), openers)


def wrap_embeddings(rows: npt.NDArray[Any]) -> InMemory:
    """Wrap one embedding of each image, (N, D): training uses it in the place of every view."""
    array = np.require(rows[:, None], np.float32, ("C", "W"))  # as torch requires it
    return InMemory(_numbered(len(rows)), torch.from_numpy(array))


def wrap_array(array: npt.NDArray[Any]) -> InMemory:
    """Wrap images, paths or embeddings in an array."""
    return wrap_embeddings(array) if kind_of(array) == "embeddings" else wrap_images(array)


def wrap_dataset(dataset: Any, column: str | None) -> InMemory:
    """Wrap the images of a Hugging Face `datasets.Dataset`, in the column of that name.

    Args:
        dataset: its rows are decoded when they are needed.
        column: by default the one that holds images.
    """
    name = column or _column_of_type(dataset, "image_column", "Image")
    require(name in dataset.column_names, "image_column", name, ", ".join(dataset.column_names))
    rows = dataset.select_columns([name])
    return wrap_openers([partial(_open_row, rows, i, name) for i in range(len(rows))])


def labels_of(dataset: Any, column: str | None) -> npt.NDArray[Any]:
    """Read the labels of a Hugging Face `datasets.Dataset`; class numbers become names.

    Args:
        dataset: with a column of labels.
        column: by default the one of type `ClassLabel`.
    """
    name = column or _column_of_type(dataset, "label_column", "ClassLabel")
    require(name in dataset.column_names, "label_column", name, ", ".join(dataset.column_names))
    labels = np.asarray(dataset[name][:])
    names = getattr(dataset.features[name], "names", None)
    return np.array(names)[labels] if names else labels


def load_in_memory(
    config: RunConfig,
    device: torch.device,
    inputs: dict[str, InMemory],
    progress: Callable[[str], Update],
) -> dict[str, Domain]:
    """Make domains of inputs, as `load_domains` makes them of files.

    Args:
        config: of the run.
        device: where training happens.
        inputs: by domain name.
        progress: called with a domain's name, gives its progress callback.
    """
    files = {name: one.samples for name, one in inputs.items() if one.content is None}
    domains = load_domains(config, device, files, progress)
    for name, one in inputs.items():
        if isinstance(one.content, Tensor):
            domains[name] = Domain(one.samples, on_device(ArrayStore(one.content), device), device)
        elif one.content is not None:
            samples, pixels = _load_opened(one.samples, one.content, config, progress(name))
            domains[name] = Domain(samples, pixels, device)
    return domains


def decode_opened(opener: Opener, size: int) -> Pixels:
    """Decode an image that is in no file, as `decode_file` does one that is."""
    try:
        return to_square(opener(), size)
    except BadImageError:
        raise
    except UnidentifiedImageError:
        raise BadImageError("not an image") from None
    except Exception as error:  # the code that decodes it may raise anything
        raise BadImageError(f"broken: {str(error) or type(error).__name__}") from None


def _load_opened(
    samples: Samples, openers: Sequence[Opener], config: RunConfig, progress: Update
) -> tuple[Samples, PixelStore]:
    """Open every image once; keep the pixels if they fit, and leave bad images out."""
    size = config.data.pixel_size

    def decode(opener: Opener) -> Pixels:
        return decode_opened(opener, size)

    if len(openers) * 3 * size * size <= config.data.memory_gb * 2**30:
        pixels, bad = decode_to_memory(samples, openers, decode, size, progress)
        return without(samples, bad), ArrayStore(pixels)
    bad = decode_all(samples, openers, decode, lambda pixels: None, progress)
    good = [opener for i, opener in enumerate(openers) if i not in bad]
    samples = without(samples, bad)
    return samples, StreamedStore(samples, good, decode, size)


def _opener(item: Any) -> Opener:
    if isinstance(item, Image.Image):
        return lambda: item
    if isinstance(item, str | Path):
        return partial(open_image, item)
    if isinstance(item, np.ndarray) and item.dtype == np.uint8 and item.ndim in (2, 3):
        return partial(_from_pixels, item)
    raise UserError(
        f"An image is {type(item).__name__} {getattr(item, 'shape', '')}; allowed: a path, a PIL "
        "image, or uint8 of shape (H, W), (H, W, 3) or (3, H, W)."
    )


def _from_pixels(pixels: Pixels) -> Image.Image:
    if pixels.ndim == 3 and pixels.shape[-1] not in (1, 3, 4):
        pixels = pixels.transpose(1, 2, 0)
    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    return Image.fromarray(np.ascontiguousarray(pixels))


def _open_row(rows: Any, i: int, column: str) -> Image.Image:
    image = rows[i][column]
    if not isinstance(image, Image.Image):
        raise BadImageError(f"column {column!r} holds no image, but {type(image).__name__}")
    return image


def _column_of_type(dataset: Any, field: str, kind: str) -> str:
    """Find the one column whose feature is of that type."""
    found = [name for name, f in dataset.features.items() if type(f).__name__ == kind]
    columns = ", ".join(dataset.column_names)
    require(
        len(found) == 1, field, None, f"a column, for {len(found)} are of type {kind} ({columns})"
    )
    return str(found[0])


def _numbered(n: int) -> Samples:
    return Samples(tuple(Path(str(i)) for i in range(n)))
