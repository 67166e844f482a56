"""Names for categories, suggested by a text-image model (extra `hf`); no network is needed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unida.data.decode import BadImageError, open_image, to_rgb
from unida.errors import UserError, require
from unida.utils.files import read_file


def suggest_names(
    model: str | Path, vocabulary: Sequence[str], images: Sequence[Sequence[Path]], prompt: str
) -> list[str]:
    """Return for each list of images the name nearest to their mean embedding.

    Args:
        model: folder of a CLIP-like model of `transformers` with its tokenizer.
        vocabulary: names to choose from.
        images: of each category, some that show it.
        prompt: sentence in which `{}` is replaced by a name.
    """
    require("{}" in prompt, "prompt", prompt, "a sentence with {} in it")
    net, processor = _load(Path(model))
    with torch.inference_mode():
        texts = [prompt.replace("{}", name) for name in vocabulary]
        tokens = processor(text=texts, padding=True, truncation=True, return_tensors="pt")
        embedded = _unit(_embedding(net.get_text_features(**tokens)))
        scores = [embedded @ _mean_embedding(net, processor, paths) for paths in images]
        return [vocabulary[int(score.argmax())] for score in scores]


def read_vocabulary(path: Path) -> list[str]:
    """Read a file with a name on every line."""
    try:
        lines = read_file(path, pipe=True).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as a list of names ({error}).") from None
    names = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not names:
        raise UserError(f"{path} holds no name: write one on every line.")
    return names


def is_text_image_model(folder: Path) -> bool:
    """Return whether a folder holds a model with a text encoder and an image encoder."""
    try:
        config = (folder / "config.json").read_text()
    except (OSError, UnicodeDecodeError):
        return False
    return '"text_config"' in config and '"vision_config"' in config


def _load(folder: Path) -> tuple[Any, Any]:
    try:
        import transformers

        library: Any = transformers
    except ImportError:
        raise UserError("Names need transformers (extra 'hf'): pip install transformers.") from None
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder with a text-image model.")
    try:
        net = library.AutoModel.from_pretrained(folder, local_files_only=True)
        processor = library.AutoProcessor.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"{folder} is not a complete text-image model: {reason}") from None
    if not hasattr(net, "get_text_features"):
        raise UserError(f"{folder} holds {net.config.model_type}, which has no text encoder.")
    return net.eval(), processor


def _mean_embedding(net: Any, processor: Any, paths: Sequence[Path]) -> Tensor:
    """Return the mean of the unit embeddings of some images."""
    images = []
    for path in paths:
        try:
            with open_image(path) as image:
                images.append(to_rgb(image))
        except (OSError, BadImageError) as error:
            raise UserError(f"{path} is needed to name its category: {error}.") from None
    pixels = processor(images=images, return_tensors="pt")
    return _unit(_embedding(net.get_image_features(**pixels))).mean(0)


def _embedding(out: Any) -> Tensor:
    """Unwrap an embedding; newer versions of transformers return an object that holds it."""
    embedding: Tensor = out if isinstance(out, Tensor) else out.pooler_output
    return embedding


def _unit(x: Tensor) -> Tensor:
    return torch.nn.functional.normalize(x, dim=1)
