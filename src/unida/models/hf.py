"""`hf:<directory or id>`: any image model of `transformers` as a backbone (extra `hf`)."""

from typing import Any

from torch import Tensor, nn

from unida.errors import UserError


class HFBackbone(nn.Module):
    """A `transformers` vision model → one vector an image.

    The vector is the model's pooled output where it has one, else its first token, or the mean
    over positions of a convolutional map.
    """

    image_statistics: tuple[list[float], list[float]]  # mean and std, where the model states them

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = getattr(net, "vision_model", net)  # the image half of a text-image model
        config: Any = self.net.config
        self.out_features = int(getattr(config, "hidden_size", 0) or config.hidden_sizes[-1])

    def forward(self, x: Tensor) -> Tensor:
        out = self.net(pixel_values=x)
        pooled: Tensor | None = getattr(out, "pooler_output", None)
        if pooled is not None:
            return pooled.flatten(1)
        hidden: Tensor = out.last_hidden_state
        return hidden.mean((2, 3)) if hidden.ndim == 4 else hidden[:, 0]


def load_hf(place: str) -> HFBackbone:
    """From a local directory or, with a network, a hub id."""
    transformers = _transformers()
    try:
        backbone = HFBackbone(transformers.AutoModel.from_pretrained(place))
        processor, _ = transformers.ImageProcessingMixin.get_image_processor_dict(place)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"hf:{place} cannot be loaded: {reason}") from None
    if "image_mean" in processor:
        backbone.image_statistics = (processor["image_mean"], processor["image_std"])
    return backbone


def build_hf(config: dict[str, Any]) -> HFBackbone:
    """The same network without weights, from the config a run has stored."""
    transformers = _transformers()
    model_type = config.pop("model_type")
    return HFBackbone(
        transformers.AutoModel.from_config(transformers.AutoConfig.for_model(model_type, **config))
    )


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise UserError("hf: backbones need transformers: pip install 'unida[hf]'.") from None
    return transformers
