"""`timm:NAME`: any image model of `timm` as a backbone (extra `timm`)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from unida.errors import UserError
from unida.models.backbones.base import Backbone
from unida.models.weights import FROM_SCRATCH, load_strictly, read_weights


class TimmBackbone(nn.Module):
    """A `timm` model without its classifier → one vector an image."""

    def __init__(self, name: str, pretrained: bool) -> None:
        super().__init__()
        try:
            import timm
        except ImportError:
            raise UserError("timm: backbones need timm (extra 'timm'): pip install timm.") from None
        try:
            self.net: nn.Module = timm.create_model(name, pretrained=pretrained, num_classes=0)
        except (RuntimeError, OSError, ValueError) as error:
            raise UserError(f"timm:{name} cannot be loaded: {error}") from None
        # With a hidden layer in the head (MobileNet-V3, VGG), the output has that layer's width.
        self.out_features = int(getattr(self.net, "head_hidden_size", self.net.num_features))
        published = getattr(self.net, "pretrained_cfg", {})
        if "mean" in published:
            self.image_statistics = (published["mean"], published["std"])

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.net(x)
        return features


def build(place: str, weights: str | None) -> Backbone:
    """Build `timm:place` with its published weights, those of a file, or random ones."""
    net = TimmBackbone(place, pretrained=weights is None)
    if weights is not None and weights != FROM_SCRATCH:
        load_strictly(net.net, read_weights(Path(weights))[0], weights)
    return Backbone(net, json.dumps({"name": f"timm:{place}"}), weights != FROM_SCRATCH)


def rebuild(values: dict[str, Any], tensors: Mapping[str, Tensor] | None = None) -> TimmBackbone:
    """Build the network of a stored spec; nothing is downloaded."""
    return TimmBackbone(values["name"].removeprefix("timm:"), pretrained=False)
