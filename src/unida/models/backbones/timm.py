"""`timm:<name>`: any image model of `timm` as a backbone (extra `timm`)."""

from torch import Tensor, nn

from unida.errors import UserError


class TimmBackbone(nn.Module):
    """A `timm` model without its classifier → one vector an image."""

    def __init__(self, name: str, pretrained: bool) -> None:
        super().__init__()
        try:
            import timm
        except ImportError:
            raise UserError("timm: backbones need timm: pip install 'unida[timm]'.") from None
        try:
            self.net: nn.Module = timm.create_model(name, pretrained=pretrained, num_classes=0)
        except (RuntimeError, OSError, ValueError) as error:
            raise UserError(f"timm:{name} cannot be loaded: {error}") from None
        # Where the head has a hidden layer (MobileNet-V3, VGG), its width is what comes out.
        self.out_features = int(getattr(self.net, "head_hidden_size", self.net.num_features))
        published = getattr(self.net, "pretrained_cfg", {})
        if "mean" in published:
            self.image_statistics = (published["mean"], published["std"])

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.net(x)
        return features
