"""Names for categories, suggested by a text-image model (extra `hf`); no network is needed."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unida.data.decode import BadImageError, open_image, to_rgb
from unida.discovery.categories import Suggestion
from unida.errors import UserError, require
from unida.utils.files import read_file

NONE_OF_THESE = ("object", "thing", "picture")
"""Names that say nothing: where one of them fits better than the vocabulary, no name does."""
MIN_CONFIDENCE = 0.3
"""Below it no name is suggested."""
SYNONYM = 0.95
"""Cosine of the embeddings of two names from which on they count as synonyms. A common value of
CLIP for singular and plural; it was not tuned."""


def suggest_names(
    model: str | Path,
    vocabulary: Sequence[str],
    images: Sequence[Sequence[Path]],
    prompt: str,
    known: Sequence[str] = (),
) -> list[Suggestion]:
    """Return for each list of images the most probable name, or none of these.

    Args:
        model: folder of a CLIP-like model of `transformers` with its tokenizer.
        vocabulary: names to choose from.
        images: of each category, some that show it.
        prompt: sentence in which `{}` is replaced by a name.
        known: classes the source has; a name that is one of them is marked.
    """
    require("{}" in prompt, "prompt", prompt, "a sentence with {} in it")
    net, processor = _load(Path(model))
    with torch.inference_mode():
        names = [*vocabulary, *NONE_OF_THESE, *known]
        texts = [prompt.replace("{}", _spoken(name)) for name in names]
        tokens = processor(text=texts, padding=True, truncation=True, return_tensors="pt")
        embedded = _unit(_embedding(net.get_text_features(**tokens)))
        candidates, of_known = torch.tensor_split(embedded, [len(names) - len(known)])
        scale = float(getattr(net, "logit_scale", torch.tensor(0.0)).exp())
        found = []
        for paths in images:
            cosines = _embed_images(net, processor, paths) @ candidates.T
            probability = torch.softmax(scale * cosines, 1).mean(0)
            nothing = float(probability[len(vocabulary) :].sum())
            best = int(probability[: len(vocabulary)].argmax())
            confidence = float(probability[best])
            if confidence < max(MIN_CONFIDENCE, nothing):
                found.append(Suggestion(None, max(nothing, 1 - confidence)))
                continue
            resembles = _synonym(vocabulary[best], candidates[best], known, of_known)
            found.append(Suggestion(vocabulary[best], confidence, resembles))
        return found


def _synonym(name: str, text: Tensor, known: Sequence[str], of_known: Tensor) -> str | None:
    """Return the known class that has the same name in other letters, or nearly the same text."""
    for one in known:
        if _plain(one) == _plain(name):
            return one
    if not known:
        return None
    cosine = of_known @ text
    return known[int(cosine.argmax())] if float(cosine.max()) >= SYNONYM else None


def _spoken(name: str) -> str:
    """Return a class name as a person says it: `Alarm_Clock` is alarm clock."""
    return re.sub(r"[_-]+", " ", name).strip()


def _plain(name: str) -> str:
    """Return letters and digits alone, without the s of a plural."""
    return re.sub(r"[\W_]+", "", name.casefold()).removesuffix("s")


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


def _embed_images(net: Any, processor: Any, paths: Sequence[Path]) -> Tensor:
    """Return the unit embeddings of some images."""
    images = []
    for path in paths:
        try:
            with open_image(path) as image:
                images.append(to_rgb(image))
        except (OSError, BadImageError) as error:
            raise UserError(f"{path} is needed to name its category: {error}.") from None
    pixels = processor(images=images, return_tensors="pt")
    return _unit(_embedding(net.get_image_features(**pixels)))


def _embedding(out: Any) -> Tensor:
    """Unwrap an embedding; newer versions of transformers return an object that holds it."""
    embedding: Tensor = out if isinstance(out, Tensor) else out.pooler_output
    return embedding


def _unit(x: Tensor) -> Tensor:
    return torch.nn.functional.normalize(x, dim=1)
