"""A small convolutional network for small images, trained from scratch in seconds on a CPU."""

from torch import Tensor, nn


class SmallCNN(nn.Module):
    """Two 3×3 convolutions and a linear layer, batch norm after each: (B, 3, H, W) → (B, 128).

    Features are pooled to a 4×4 map whatever the size of the image, not to one vector: for a digit
    the position of a stroke matters.
    """

    out_features, map_channels = 128, 64

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.Sequential(*_stage(3, 32), *_stage(32, 64), nn.AdaptiveAvgPool2d(4))
        self.features = nn.Sequential(
            nn.Flatten(),
            nn.Linear(self.map_channels * 4 * 4, self.out_features, bias=False),
            nn.BatchNorm1d(self.out_features),
            nn.ReLU(inplace=True),
        )

    def forward_features(self, x: Tensor) -> Tensor:
        """Compute the map before the linear layer, (B, map_channels, 4, 4)."""
        out: Tensor = self.maps(x)
        return out

    def forward_head(self, feature_map: Tensor) -> Tensor:
        """Compute features of the map."""
        out: Tensor = self.features(feature_map)
        return out

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


def _stage(inside: int, outside: int) -> tuple[nn.Module, ...]:
    conv = nn.Conv2d(inside, outside, 3, padding=1, bias=False)
    return conv, nn.BatchNorm2d(outside), nn.ReLU(inplace=True), nn.MaxPool2d(2)
