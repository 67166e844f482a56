"""Backbones by name: our ResNet, EfficientNet-Lite2 and small CNN, `hf:` and `timm:` adapters.

Each maps images in [0, 1] to features (B, D). A backbone is added as one file with an `nn.Module`
that has `out_features`, and one line of `BACKBONES`.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from unida.errors import UserError, require, require_known
from unida.models.backbones import hf, timm
from unida.models.backbones.base import (
    PRECOMPUTED,
    Backbone,
    WeightsSource,
    precomputed_features,
)
from unida.models.backbones.efficientnet_lite import EfficientNetLite2
from unida.models.backbones.resnet import ResNet
from unida.models.backbones.small_cnn import SmallCNN
from unida.models.description import refusing_damage
from unida.models.slim import fill, find
from unida.models.weights import (
    FROM_SCRATCH,
    download_weights,
    load_strictly,
    read_model,
    read_weights,
)


class Architecture(NamedTuple):
    """One of our own networks.

    Attributes:
        build: makes the network with random weights.
        weights: used by default: a repository of the Hugging Face hub, `none` for random ones, or
            None where a file must be named.
    """

    build: Callable[[], nn.Module]
    weights: str | None = None


BACKBONES: dict[str, Architecture] = {
    "small_cnn": Architecture(SmallCNN, FROM_SCRATCH),
    "resnet18": Architecture(partial(ResNet, "resnet18"), "timm/resnet18.tv_in1k"),
    "resnet34": Architecture(partial(ResNet, "resnet34"), "timm/resnet34.tv_in1k"),
    "resnet50": Architecture(partial(ResNet, "resnet50"), "timm/resnet50.tv_in1k"),
    "resnet101": Architecture(partial(ResNet, "resnet101"), "timm/resnet101.tv_in1k"),
    "resnet152": Architecture(partial(ResNet, "resnet152"), "timm/resnet152.tv_in1k"),
    "resnet18-v1": Architecture(partial(ResNet, "resnet18", stride_first=True)),
    "resnet34-v1": Architecture(partial(ResNet, "resnet34", stride_first=True)),
    "resnet50-v1": Architecture(partial(ResNet, "resnet50", stride_first=True)),
    "resnet101-v1": Architecture(partial(ResNet, "resnet101", stride_first=True)),
    "resnet152-v1": Architecture(partial(ResNet, "resnet152", stride_first=True)),
    "efficientnet_lite2": Architecture(EfficientNetLite2, "timm/tf_efficientnet_lite2.in1k"),
}
"""Our own networks, by name."""


class Adapter(Protocol):
    """A module that builds the networks of another library."""

    def build(self, place: str, weights: str | None) -> Backbone: ...

    def rebuild(
        self, values: dict[str, Any], tensors: Mapping[str, Tensor] | None = None
    ) -> nn.Module: ...


ADAPTERS: dict[str, Adapter] = {"hf": hf, "timm": timm}
"""Other libraries, by the prefix of a name (`hf:DIRECTORY-OR-ID`, `timm:NAME`)."""


def list_backbones() -> list[str]:
    """List the names that `build_backbone` accepts; a prefix stands for all names after it."""
    return [*BACKBONES, *(f"{prefix}:…" for prefix in ADAPTERS)]


def build_backbone(name: str, weights: str | None) -> Backbone:
    """Build a backbone with its weights.

    Args:
        name: one of `list_backbones`.
        weights: a file, of weights or of a model stored by unida; `none` for random weights; None
            for the published ones.
    """
    if weights not in (None, FROM_SCRATCH) and (model := read_model(Path(weights))):
        return _from_model(name, weights, *model)
    prefix, _, place = name.partition(":")
    if prefix in ADAPTERS and place:
        return ADAPTERS[prefix].build(place, weights)
    require(name in BACKBONES, "backbone", name, ", ".join(list_backbones()))
    architecture = BACKBONES[name]
    net = architecture.build()
    if weights is None and architecture.weights == FROM_SCRATCH:
        weights = FROM_SCRATCH
    if weights != FROM_SCRATCH:
        path = Path(weights) if weights else download_weights(name, architecture.weights)
        tensors, metadata = read_weights(path)
        _check_stride(name, metadata, path)
        load_strictly(net, tensors, str(path))
    backbone = Backbone(net, json.dumps({"name": name}), weights != FROM_SCRATCH)
    if weights != FROM_SCRATCH:
        repository = None if weights else architecture.weights
        backbone.weights_source = WeightsSource(name, str(path), repository)
    return backbone


def rebuild_backbone(spec: str, tensors: Mapping[str, Tensor] | None = None) -> Backbone:
    """Build the network that a stored model was trained with, its weights still to be filled.

    Args:
        spec: of the backbone.
        tensors: of the model, which a network that is described by sizes must not exceed.
    """
    values = json.loads(spec)
    prefix, colon, _ = values["name"].partition(":")
    if values["name"] == PRECOMPUTED:
        return precomputed_features(values["out_features"])
    require_known(prefix, ADAPTERS if colon else BACKBONES, "backbone")
    net = ADAPTERS[prefix].rebuild(values, tensors) if colon else _unfilled(BACKBONES[prefix])
    return Backbone(net, spec)


def _unfilled(architecture: Architecture) -> nn.Module:
    """Build one of our own networks without drawing weights, which takes longer than loading."""
    with torch.device("meta"):
        net = architecture.build()
    net.to_empty(device=torch.get_default_device())
    for buffer in net.buffers():  # counters that a file may lack
        buffer.zero_()
    return net


def _from_model(
    name: str, where: str, tensors: dict[str, Any], description: dict[str, Any]
) -> Backbone:
    """Take the backbone of a stored model.

    One that was trained from scratch has learned from that run's few images only: it does not
    count as pretrained, so that the next run uses the larger learning rate again.
    """
    with refusing_damage(where):
        own_name = json.loads(description["backbone"])["name"]
    require(name == own_name, "backbone", name, f"{own_name}, that of {where}")
    start = "backbone."
    with refusing_damage(where):
        backbone = rebuild_backbone(description["backbone"], tensors)
    if reference := description.get("weights"):
        tensors = fill(tensors, find(reference, Path(where))[1], backbone)
    own = {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
    load_strictly(backbone, own, where)
    backbone.pretrained = description.get("pretrained", True)
    return backbone


def _check_stride(name: str, metadata: dict[str, str], path: Path) -> None:
    """Refuse a file whose metadata state the other stride layout: both share every key."""
    if "first 1x1" in metadata.get("stride", "") and not name.endswith("-v1"):
        raise UserError(f"{path} has its stride in the first 1×1 convolution: use {name}-v1.")
