"""Digests of the images of a run: a checkpoint is not continued on other images."""

from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

from torch import Tensor

from unida.config import RunConfig
from unida.data.cache import file_digests
from unida.data.domain import cache_folder
from unida.data.in_memory import InMemory

Fingerprint = dict[str, str]
"""A digest of each of `contents of the source`, `paths of the target`, …"""


def fingerprint(config: RunConfig, inputs: dict[str, InMemory]) -> Fingerprint:
    """Hash classes, labels, paths and contents of both domains.

    Args:
        config: of the run; it has the places that paths are relative to. Where the source is a
            model, it is the file of its weights.
        inputs: `source` and `target`, files or embeddings, as they were listed; without a source
            where it is a model.
    """
    size, folder = config.data.pixel_size, cache_folder(config)
    places = {"source": config.data.source, "target": config.data.target}
    found: Fingerprint = {}
    if config.data.source_model:
        file = (Path(str(config.model.weights)),)
        found["contents of the source model"] = _digest(file_digests(file, size, folder))
    for name, given in inputs.items():
        of_domain = given.samples
        labels = () if of_domain.labels is None else of_domain.labels.tolist()
        values = {
            "classes": _join(of_domain.classes),
            "labels": _join(map(str, labels)),
            "paths": _join(str(path).removeprefix(places[name]) for path in of_domain.paths),
            "contents": given.content.numpy().tobytes()
            if isinstance(given.content, Tensor)
            else file_digests(of_domain.paths, size, folder),
        }
        for key, value in values.items():
            found[f"{key} of the {name}"] = _digest(value)
    return found


def _digest(value: bytes) -> str:
    return blake2b(value, digest_size=16).hexdigest()


def _join(texts: Iterable[str]) -> bytes:
    return "\0".join(texts).encode("utf-8", "surrogatepass")
