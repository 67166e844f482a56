"""A small convolutional network for small images, trained from scratch in seconds on a CPU."""

from torch import Tensor, nn


class SmallCNN(nn.Module):
    """Four 3×3 convolutions with batch norm, mean pooling: (B, 3, H, W) → (B, 128)."""

    out_features = 128

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inside, outside, stride in ((3, 32, 1), (32, 64, 2), (64, 128, 2), (128, 128, 1)):
            conv = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
            layers += [conv, nn.BatchNorm2d(outside), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.layers(x)
        return features.mean((2, 3))
