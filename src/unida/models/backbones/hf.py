"""`hf:DIRECTORY-OR-ID`: any image model of `transformers` as a backbone (extra `hf`)."""

import inspect
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from unida.errors import UserError, require, shorten
from unida.models.backbones.base import Backbone
from unida.models.description import check_network
from unida.models.weights import FROM_SCRATCH


class HFBackbone(nn.Module):
    """A `transformers` vision model → one vector an image, in float32 whatever it was stored in.

    The vector is the model's pooled output where it has one, else its first token, or the mean
    over positions of a convolutional map.

    Args:
        net: the model; of a text-image model the image half is used.
        pooled: whether the model's pooling layer has been trained.
    """

    image_statistics: tuple[list[float], list[float]]  # mean and std, where the model states them

    def __init__(self, net: nn.Module, pooled: bool = True) -> None:
        super().__init__()
        self.net: nn.Module = getattr(net, "vision_model", net).float()
        self.pooled = pooled
        config: Any = self.net.config
        width = getattr(config, "hidden_size", 0) or getattr(config, "hidden_sizes", [0])[-1]
        if getattr(self.net, "main_input_name", "") != "pixel_values" or not width:
            raise UserError(f"hf: {config.model_type} is not an image model with a hidden_size.")
        self.out_features = int(width)
        # A transformer made for another image size can interpolate its position codes.
        stretches = "interpolate_pos_encoding" in inspect.signature(self.net.forward).parameters
        self.options = {"interpolate_pos_encoding": True} if stretches else {}

    def forward(self, x: Tensor) -> Tensor:
        out = self.net(pixel_values=x, **self.options)
        pooled: Tensor | None = getattr(out, "pooler_output", None)
        if pooled is not None and self.pooled:
            return pooled.flatten(1)
        hidden: Tensor = out.last_hidden_state
        return hidden.mean((2, 3)) if hidden.ndim == 4 else hidden[:, 0]


def build(place: str, weights: str | None) -> Backbone:
    """Build `hf:place` with the weights it comes with, or with random ones."""
    if weights not in (None, FROM_SCRATCH):
        raise UserError("weights: an hf: backbone brings its own; leave the option out.")
    scratch = weights == FROM_SCRATCH
    net = _load(place)
    config: Any = net.net.config
    values = {"name": f"hf:{place}", "config": config.to_dict(), "pooled": net.pooled or scratch}
    spec = json.dumps(values, default=str)
    if scratch:
        net.net, net.pooled = rebuild(json.loads(spec)).net, True
    return Backbone(net, spec, pretrained=not scratch)


def rebuild(values: dict[str, Any], tensors: Mapping[str, Tensor] | None = None) -> HFBackbone:
    """Build the network of a stored spec, without weights, from the config in it.

    Args:
        values: the spec.
        tensors: of the stored model; a network with more numbers than these is refused.
    """
    transformers = _transformers()
    config = dict(values["config"])
    if tensors is not None:
        check_network(config, tensors)
    made = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
    if tensors is not None:
        n, most = _count(made), sum(tensor.numel() for tensor in tensors.values())
        require(n <= most, "size of the backbone", n, f"up to the {most} stored numbers")
    return HFBackbone(transformers.AutoModel.from_config(made), values.get("pooled", True))


def _count(config: Any) -> int:
    """Count the numbers of a network without making them; 0 if it cannot be made so."""
    try:
        with torch.device("meta"):
            net = _transformers().AutoModel.from_config(config)
    except (NotImplementedError, RuntimeError):
        return 0
    return sum(parameter.numel() for parameter in net.parameters())


def _load(place: str) -> HFBackbone:
    """Load a model from a local directory or, with a network, a hub id."""
    transformers = _transformers()
    try:
        net, info = transformers.AutoModel.from_pretrained(place, output_loading_info=True)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"hf:{place} is no model in a folder or on the hub: {reason}") from None
    # A checkpoint of a classifier has no pooler; transformers would fill in a random one.
    missing = [key for key in info["missing_keys"] if "pooler." not in key]
    if missing:
        raise UserError(f"hf:{place} is not a whole model; missing: {shorten(missing)}.")
    backbone = HFBackbone(net, pooled=len(missing) == len(info["missing_keys"]))
    try:
        processor, _ = transformers.ImageProcessingMixin.get_image_processor_dict(place)
    except OSError:  # the model states nothing, so ImageNet's statistics are taken
        processor = {}
    if "image_mean" in processor:
        backbone.image_statistics = (processor["image_mean"], processor["image_std"])
    return backbone


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise UserError(
            "hf: backbones need transformers (extra 'hf'): pip install transformers."
        ) from None
    return transformers
