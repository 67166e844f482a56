"""Backbone F: images in [0, 1] → features y, by name."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from unida.errors import UserError, require
from unida.models.backbones.hf import HFBackbone, build_hf, load_hf
from unida.models.backbones.resnet import PLANS, ResNet
from unida.models.backbones.small_cnn import SmallCNN
from unida.models.backbones.timm import TimmBackbone
from unida.models.weights import load_strictly, read_weights
from unida.utils import distributed

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FROM_SCRATCH = "none"
PRECOMPUTED = "given"

NAMES = ("small_cnn", *PLANS, *(f"{name}-v1" for name in PLANS), "hf:…", "timm:…")


class Backbone(nn.Module):
    """A network with its input normalisation and arithmetic: (B, 3, H, W) in [0, 1] → (B, D).

    What is (B, D) already, the stored embeddings of a frozen backbone, it hands on.

    It computes in `dtype` where one is set and always answers in float32, so heads and losses
    need not know.

    Attributes:
        spec: what `rebuild` needs to make the same network again, as JSON text.
        out_features: D.
        pretrained: whether it started from weights learned elsewhere.
        dtype: what the network computes in; None is float32.
        gathers: whether what it is shown is one process's share of a batch.
        keeps_norms: whether batch norm uses its stored statistics in training too.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, net: nn.Module, spec: str, pretrained: bool = False) -> None:
        super().__init__()
        self.net, self.spec, self.pretrained = net, spec, pretrained
        self.out_features = int(cast(Any, net).out_features)
        mean, std = getattr(net, "image_statistics", (IMAGENET_MEAN, IMAGENET_STD))
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1))
        self.dtype: torch.dtype | None = None
        self.gather_features = False
        self.freeze_bn_stats = False
        self._compiled: Callable[[Tensor], Tensor] | None = None

    @property
    def is_precomputed(self) -> bool:
        """Whether embeddings stand in its place: there is no network to show an image to."""
        return isinstance(self.net, Embeddings)

    def forward(self, images: Tensor) -> Tensor:
        if images.ndim == 2:  # embedded already: the backbone is frozen
            return self.gathered(images)
        part = self._compiled if self._compiled and self.training else self.net
        return self.gathered(self._compute(part, self._normalised(images)))

    def each(self, batches: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Features of several batches. Batch norm sees one at a time, unless it looks at none."""
        if self.gather_features or not self.freeze_bn_stats:
            return tuple(self(batch) for batch in batches)
        return torch.split(self(torch.cat(tuple(batches))), [len(batch) for batch in batches])

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.freeze_bn_stats:
            for module in self.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self

    def compile_training(self) -> None:
        """From here on training runs on fused kernels; the first step takes a minute."""
        self._compiled = torch.compile(self.net.forward, dynamic=False)

    def gathered(self, rows: Tensor) -> Tensor:
        """While a team of processes trains: the rows of all of them."""
        return distributed.gather(rows) if self.gather_features else rows

    def forward_features(self, images: Tensor) -> Tensor:
        """A map of the network's middle, (B, C, h, w), for methods that look at parts of images."""
        if images.ndim == 2:
            raise UserError("This method looks into the backbone: leave --frozen out.")
        require(
            hasattr(self.net, "forward_features"),
            "backbone",
            type(self.net).__name__,
            "one of our own",
        )
        return self._compute(cast(Any, self.net).forward_features, self._normalised(images))

    def forward_head(self, middle: Tensor) -> Tensor:
        """From that map to the features: `top(middle(x))` equals `forward(x)`."""
        return self._compute(cast(Any, self.net).forward_head, middle)

    def _normalised(self, images: Tensor) -> Tensor:
        x = (images - self.mean) / self.std
        if images.device.type == "cuda" or not self.training:  # faster, on a CPU too
            x = x.contiguous(memory_format=torch.channels_last)
        return x

    def _compute(self, part: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        low = self.dtype or torch.float32
        with torch.autocast(x.device.type, low, enabled=self.dtype is not None):
            return part(x).float()


class Embeddings(nn.Module):
    """In the place of a network: it is never asked, what it would say is there already."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out_features = width


def build_backbone(name: str, weights: str | None) -> Backbone:
    """A backbone by name with its weights.

    Args:
        name: one of `NAMES`.
        weights: a file, of weights or a trained model of ours; `none` for random weights; None for
            the published ones from the hub.
    """
    if weights is not None and (trained := _trained_before(name, Path(weights))):
        return trained
    kind, _, place = name.partition(":")
    if kind == "hf" and place:
        if weights not in (None, FROM_SCRATCH):
            raise UserError("weights: an hf: backbone brings its own; leave the option out.")
        return _from_hf(place, scratch=weights == FROM_SCRATCH)
    if kind == "timm" and place:
        net: nn.Module = TimmBackbone(place, pretrained=weights is None)
        if weights not in (None, FROM_SCRATCH):
            tensors, _ = read_weights(Path(weights))
            load_strictly(cast(TimmBackbone, net).net, tensors, weights)
        return Backbone(net, json.dumps({"name": name}), weights != FROM_SCRATCH)
    require(name in NAMES, "backbone", name, ", ".join(NAMES))
    net = _own(name)
    if name == "small_cnn" and weights is None:
        weights = FROM_SCRATCH
    if weights != FROM_SCRATCH:
        path = Path(weights) if weights else _from_hub(name)
        tensors, remarks = read_weights(path)
        _refuse_other_layout(name, remarks, path)
        load_strictly(net, tensors, str(path))
    return Backbone(net, json.dumps({"name": name}), weights != FROM_SCRATCH)


def precomputed_features(width: int) -> Backbone:
    """What stands for a backbone where its features, `width` numbers an image, are handed over."""
    spec = json.dumps({"name": PRECOMPUTED, "out_features": width})
    return Backbone(Embeddings(width), spec, pretrained=True)


def rebuild_backbone(spec: str) -> Backbone:
    """The network a stored model was trained with, its weights still to be filled."""
    values = json.loads(spec)
    name, config = values["name"], values.get("config")
    if name == PRECOMPUTED:
        return precomputed_features(values["out_features"])
    if config is not None:
        return Backbone(build_hf(config, values.get("pooled", True)), spec)
    if name.startswith("timm:"):
        return Backbone(TimmBackbone(name.removeprefix("timm:"), pretrained=False), spec)
    return Backbone(_own(name), spec)


def _trained_before(name: str, path: Path) -> Backbone | None:
    """The backbone of a stored model; None if the file is none.

    One that was trained from scratch has seen that run's few images only: it stays one that is not
    pretrained, so that the next run is as free to change it.
    """
    if path.suffix != ".safetensors":
        return None
    tensors, remarks = read_weights(path)
    if "unida" not in remarks:
        return None
    values = json.loads(remarks["unida"])
    spec = values["backbone"]
    own_name = json.loads(spec)["name"]
    require(name == own_name, "backbone", name, f"{own_name}, that of {path}")
    backbone, start = rebuild_backbone(spec), "backbone."
    own = {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
    load_strictly(backbone, own, str(path))
    backbone.pretrained = values.get("pretrained", True)
    return backbone


def _own(name: str) -> nn.Module:
    if name == "small_cnn":
        return SmallCNN()
    return ResNet(name.removesuffix("-v1"), stride_first=name.endswith("-v1"))


def _from_hf(place: str, scratch: bool) -> Backbone:
    net: HFBackbone = load_hf(place)
    config: Any = net.net.config
    values = {"name": f"hf:{place}", "config": config.to_dict(), "pooled": net.pooled or scratch}
    spec = json.dumps(values, default=str)
    if scratch:
        net.net, net.pooled = build_hf(json.loads(spec)["config"]).net, True
    return Backbone(net, spec, pretrained=not scratch)


def _refuse_other_layout(name: str, remarks: dict[str, str], path: Path) -> None:
    """The two stride layouts share every key; a file that says which it is gets believed."""
    stride = remarks.get("stride", "")
    if "first 1x1" in stride and not name.endswith("-v1"):
        raise UserError(f"{path} has its stride in the first 1×1 convolution: use {name}-v1.")


def _from_hub(name: str) -> Path:
    """The published ImageNet weights, with torchvision's names, from the Hugging Face hub."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    if name.endswith("-v1"):
        raise UserError(f"weights: {name} has no published file on the hub; name one, or 'none'.")
    try:
        return Path(hf_hub_download(f"timm/{name}.tv_in1k", "model.safetensors"))
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise UserError(
            f"The ImageNet weights of {name} are not on this machine and the Hugging Face hub "
            f"cannot be reached ({type(error).__name__}): name a file with --weights, or "
            "--weights none to train from scratch."
        ) from None
