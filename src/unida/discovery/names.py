"""A name for a category, from a text-image model (extra `hf`). Nothing here needs a network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from unida.data.decode import to_rgb
from unida.errors import UserError


def suggest(
    model: str | Path, words: Sequence[str], images: Sequence[Sequence[Path]], prompt: str
) -> list[str]:
    """For each list of images the word that their mean embedding is nearest to.

    Args:
        model: directory of a CLIP-like model of `transformers` with its tokenizer.
        words: names to choose from.
        images: of each category, some that show it.
        prompt: sentence that a word is put into, at `{}`.
    """
    net, processor = _load(Path(model))
    with torch.inference_mode():
        texts = [prompt.replace("{}", word) for word in words]
        tokens = processor(text=texts, padding=True, truncation=True, return_tensors="pt")
        of_words = _unit(_embedding(net.get_text_features(**tokens)))
        return [words[int((of_words @ _look(net, processor, some)).argmax())] for some in images]


def read_words(place: Path) -> list[str]:
    """A file with a name on every line."""
    try:
        lines = place.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{place} cannot be read as a list of names ({error}).") from None
    words = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not words:
        raise UserError(f"{place} holds no name: write one on every line.")
    return words


def is_text_image_model(place: Path) -> bool:
    """Whether a directory holds a model with a text half and an image half, and a tokenizer."""
    try:
        config = (place / "config.json").read_text()
    except (OSError, UnicodeDecodeError):
        return False
    return '"text_config"' in config and '"vision_config"' in config


def _load(place: Path) -> tuple[Any, Any]:
    try:
        import transformers

        kinds: Any = transformers
    except ImportError:
        raise UserError("Names need transformers: pip install 'unida[hf]'.") from None
    if not place.is_dir():
        raise UserError(f"{place} is not a folder with a text-image model.")
    try:
        net = kinds.AutoModel.from_pretrained(place, local_files_only=True)
        processor = kinds.AutoProcessor.from_pretrained(place, local_files_only=True)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"{place} is not a whole text-image model: {reason}") from None
    if not hasattr(net, "get_text_features"):
        raise UserError(f"{place} holds {net.config.model_type}, which has no text half.")
    return net.eval(), processor


def _look(net: Any, processor: Any, paths: Sequence[Path]) -> Tensor:
    """Mean of the unit embeddings of some images."""
    pictures = []
    for path in paths:
        try:
            with Image.open(path) as picture:
                pictures.append(to_rgb(picture))
        except OSError as error:
            raise UserError(f"{path} is needed to name its category: {error}.") from None
    pixels = processor(images=pictures, return_tensors="pt")
    return _unit(_embedding(net.get_image_features(**pixels))).mean(0)


def _embedding(out: Any) -> Tensor:
    """Newer versions of transformers give an object that holds the embedding."""
    found: Tensor = out if isinstance(out, Tensor) else out.pooler_output
    return found


def _unit(x: Tensor) -> Tensor:
    return torch.nn.functional.normalize(x, dim=1)
