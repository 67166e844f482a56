"""EfficientNet-Lite2 (Tan and Le, 2019), parameter names of timm's `tf_efficientnet_lite2`.

EfficientNet as Google changed it for small devices: no squeeze-and-excitation, ReLU6, a stem that
is not scaled. The classifier is left out. Padding, input normalisation and the constants of batch
norm are those of the TensorFlow training; timm's `efficientnet_lite…` without `tf_` has the same
names and computes something else. The network was trained on images of 260 pixels.
"""

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn


class Stage(NamedTuple):
    """A row of the architecture; the stride is that of its first block."""

    blocks: int
    kernel: int
    stride: int
    width: int


STEM, EXPANSION, FEATURES = 32, 6, 1280
STAGES = (
    Stage(1, 3, 1, 16),
    Stage(3, 3, 2, 24),
    Stage(3, 5, 2, 48),
    Stage(4, 3, 2, 88),
    Stage(4, 5, 1, 120),
    Stage(5, 5, 2, 208),
    Stage(1, 3, 1, 352),
)
"""Lite0 with 1.1 times the width and 1.2 times the depth."""

MAP_STAGES = 5
"""Stages before the last stride, whose map `forward_features` returns."""


class SameConv2d(nn.Conv2d):
    """Convolution with stride and TensorFlow's 'same' padding.

    The map has ⌈size / stride⌉ positions. Where the padding is odd, which depends on the size, the
    extra row and column are at the bottom and on the right.
    """

    def forward(self, x: Tensor) -> Tensor:
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        down, across = (kernel - 1 - (size - 1) % stride for size in x.shape[-2:])
        sides = (across // 2, across - across // 2, down // 2, down - down // 2)
        return super().forward(F.pad(x, sides))


class DepthwiseSeparable(nn.Module):
    """The first block: depthwise and 1×1, no shortcut."""

    def __init__(self, inside: int, outside: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv_dw = _conv(inside, inside, kernel, stride, groups=inside)
        self.bn1 = _norm(inside)
        self.conv_pw = _conv(inside, outside)
        self.bn2 = _norm(outside)
        self.act = nn.ReLU6(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.bn2(self.conv_pw(self.act(self.bn1(self.conv_dw(x)))))
        return out


class InvertedResidual(nn.Module):
    """1×1 to six times the width, depthwise, 1×1 back; a shortcut where the shapes agree."""

    def __init__(self, inside: int, outside: int, kernel: int, stride: int) -> None:
        super().__init__()
        width = EXPANSION * inside
        self.conv_pw = _conv(inside, width)
        self.bn1 = _norm(width)
        self.conv_dw = _conv(width, width, kernel, stride, groups=width)
        self.bn2 = _norm(width)
        self.conv_pwl = _conv(width, outside)
        self.bn3 = _norm(outside)
        self.act = nn.ReLU6(inplace=True)
        self.has_shortcut = stride == 1 and inside == outside

    def forward(self, x: Tensor) -> Tensor:
        wide = self.act(self.bn1(self.conv_pw(x)))
        wide = self.act(self.bn2(self.conv_dw(wide)))
        out: Tensor = self.bn3(self.conv_pwl(wide))
        return out + x if self.has_shortcut else out


def _conv(
    inside: int, outside: int, kernel: int = 1, stride: int = 1, groups: int = 1
) -> nn.Conv2d:
    """Build a convolution with 'same' padding, which is symmetric where the stride is 1."""
    if stride > 1:
        return SameConv2d(inside, outside, kernel, stride, groups=groups, bias=False)
    return nn.Conv2d(inside, outside, kernel, padding=kernel // 2, groups=groups, bias=False)


def _norm(width: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(width, eps=1e-3, momentum=0.01)


class EfficientNetLite2(nn.Module):
    """Images (B, 3, H, W) → pooled features (B, 1280)."""

    image_statistics = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    out_features, map_channels = FEATURES, STAGES[MAP_STAGES - 1].width

    def __init__(self) -> None:
        super().__init__()
        self.conv_stem = _conv(3, STEM, 3, 2)
        self.bn1 = _norm(STEM)
        stages, inside = [], STEM
        for number, (blocks, kernel, stride, width) in enumerate(STAGES):
            block = InvertedResidual if number else DepthwiseSeparable
            first = block(inside, width, kernel, stride)
            rest = (block(width, width, kernel, 1) for _ in range(blocks - 1))
            stages.append(nn.Sequential(first, *rest))
            inside = width
        self.blocks = nn.Sequential(*stages)
        self.conv_head = _conv(inside, FEATURES)
        self.bn2 = _norm(FEATURES)
        self.act = nn.ReLU6(inplace=True)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):  # He et al., 2015, with the fan-out of a group
                fan_out = module.weight[:, 0].numel() / module.groups
                nn.init.normal_(module.weight, std=(2 / fan_out) ** 0.5)

    def forward_features(self, x: Tensor) -> Tensor:
        """Compute the map before the last stride, (B, map_channels, H/16, W/16)."""
        x = self.act(self.bn1(self.conv_stem(x)))
        for number in range(MAP_STAGES):
            x = self.blocks[number](x)
        return x

    def forward_head(self, feature_map: Tensor) -> Tensor:
        """Compute pooled features of that map."""
        x = feature_map
        for number in range(MAP_STAGES, len(STAGES)):
            x = self.blocks[number](x)
        features: Tensor = self.act(self.bn2(self.conv_head(x))).mean((2, 3))
        return features

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))
