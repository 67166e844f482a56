"""A stored model without the weights of its backbone: they are found again by name and hash."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unida.errors import UserError
from unida.models.backbones.base import Backbone, WeightsSource
from unida.models.weights import download_weights, read_weights

NET = "backbone.net."
"""Start of the names of the weights in a stored model."""


def require_slim(backbone: Backbone, frozen: bool) -> WeightsSource:
    """Return the source of a backbone's weights; refuse one that no file has, before it trains."""
    source = backbone.weights_source
    if source is None:
        raise UserError(
            "slim is on, but the weights of this backbone are not from a file of their own: leave "
            "it out."
        )
    if not frozen:
        raise UserError("slim is on, but the backbone is trained: leave it out, or add --frozen.")
    return source


def refer(backbone: Backbone) -> dict[str, Any]:
    """Describe the file that has the weights of a backbone.

    Raises:
        UserError: there is no such file, or its weights are not the backbone's.
    """
    source = require_slim(backbone, frozen=True)
    file = Path(source.file)
    tensors, _ = read_weights(file)
    if not _same(backbone.net, tensors):
        raise UserError(
            f"slim is on, but the backbone was trained and differs from {file}: leave it out, or "
            "train with --frozen."
        )
    return {
        "file": str(file.absolute()),
        "sha256": _sha256(file),
        "backbone": source.backbone,
        "repository": source.repository,
    }


def find(
    reference: Mapping[str, Any], model: Path, named: str | Path | None = None
) -> tuple[WeightsSource, dict[str, Tensor]]:
    """Find the file that a model refers to, and read it.

    Args:
        reference: made by `refer`.
        model: the file of the model.
        named: the file, by the user; else the noted one, one beside the model and the hub's.
    """
    wanted, other = reference["sha256"], None
    for place in _places(reference, model, named):
        if _sha256(place) == wanted:
            source = WeightsSource(reference["backbone"], str(place), reference["repository"])
            return source, read_weights(place)[0]
        other = place
    if other is not None:
        raise UserError(
            f"{model} refers to weights with the sha256 {wanted[:12]}…, and {other} has another: "
            "name the right file with --weights."
        )
    raise UserError(
        f"{model} refers to the weights {reference['file']}, which are not there: name the file "
        "with --weights."
    )


def fill(
    tensors: Mapping[str, Tensor], weights: Mapping[str, Tensor], backbone: Backbone
) -> dict[str, Tensor]:
    """Return the tensors of a stored model with the weights of a file that its network has."""
    own = backbone.net.state_dict()
    return {**tensors, **{f"{NET}{k}": v for k, v in weights.items() if k in own}}


def halve(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Store matrices and kernels in half precision where their numbers fit its range.

    Vectors, such as the statistics of batch norm, take little space and stay.
    """
    most = torch.finfo(torch.float16).max
    return {
        name: t.half()
        if t.dtype == torch.float32 and t.ndim > 1 and t.numel() and t.abs().max() < most
        else t
        for name, t in tensors.items()
    }


def _places(reference: Mapping[str, Any], model: Path, named: str | Path | None) -> Iterator[Path]:
    """Yield the files that exist, the likeliest first."""
    if named is not None:
        if not Path(named).is_file():
            raise UserError(f"weights: {named} is not a file.")
        yield Path(named)
        return
    noted = Path(reference["file"])
    yield from (place for place in (noted, model.parent / noted.name) if place.is_file())
    if reference["repository"]:
        with suppress(UserError):
            yield download_weights(reference["backbone"], reference["repository"])


def _same(net: nn.Module, tensors: Mapping[str, Tensor]) -> bool:
    own = {k: v for k, v in net.state_dict().items() if not k.endswith("num_batches_tracked")}
    return all(
        k in tensors and torch.equal(v.cpu(), tensors[k].to(v.dtype)) for k, v in own.items()
    )


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
