"""ResNet-18 to -152 (He et al., 2015), torchvision's parameter names, no classifier."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ResNetSpec(NamedTuple):
    """Blocks of each stage, and whether they are bottlenecks."""

    blocks: tuple[int, int, int, int]
    bottleneck: bool


PLANS = {
    "resnet18": ResNetSpec((2, 2, 2, 2), False),
    "resnet34": ResNetSpec((3, 4, 6, 3), False),
    "resnet50": ResNetSpec((3, 4, 6, 3), True),
    "resnet101": ResNetSpec((3, 4, 23, 3), True),
    "resnet152": ResNetSpec((3, 8, 36, 3), True),
}


class BasicBlock(nn.Module):
    """Two 3×3 convolutions."""

    expansion = 1

    def __init__(self, inside: int, width: int, stride: int, stride_first: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inside, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out)) + self.downsample(x)
        return F.relu(out, inplace=True)


class Bottleneck(nn.Module):
    """1×1, 3×3, 1×1; the stride sits in the 3×3, or with `stride_first` in the first 1×1."""

    expansion = 4

    def __init__(self, inside: int, width: int, stride: int, stride_first: bool) -> None:
        super().__init__()
        outside = width * self.expansion
        first, middle = (stride, 1) if stride_first else (1, stride)
        self.conv1 = nn.Conv2d(inside, width, 1, first, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, middle, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outside, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inside, outside, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out)) + self.downsample(x)
        return F.relu(out, inplace=True)


def _shortcut(inside: int, outside: int, stride: int) -> nn.Sequential:
    """Build the shortcut of a block; empty, and so the identity, where the shapes agree."""
    if stride == 1 and inside == outside:
        return nn.Sequential()
    conv = nn.Conv2d(inside, outside, 1, stride, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outside))


class ResNet(nn.Module):
    """Images (B, 3, H, W) → pooled features (B, out_features).

    Args:
        name: a key of `PLANS`.
        stride_first: the 2015 layout, the stride in the first 1×1 of a stage (Caffe, Keras);
            torchvision has it in the 3×3. The keys are the same, the function is not.
    """

    def __init__(self, name: str, stride_first: bool = False) -> None:
        super().__init__()
        plan = PLANS[name]
        block = Bottleneck if plan.bottleneck else BasicBlock
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        inside = 64
        for stage, count in enumerate(plan.blocks, 1):
            width, blocks = 32 * 2**stage, []
            for i in range(count):
                stride = 2 if stage > 1 and i == 0 else 1
                blocks.append(block(inside, width, stride, stride_first))
                inside = width * block.expansion
            self.add_module(f"layer{stage}", nn.Sequential(*blocks))
        self.out_features, self.map_channels = inside, inside // 2
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward_features(self, x: Tensor) -> Tensor:
        """Compute the map after stage 3, (B, map_channels, H/16, W/16)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in range(1, 4):
            x = self.get_submodule(f"layer{stage}")(x)
        return x

    def forward_head(self, feature_map: Tensor) -> Tensor:
        """Compute pooled features of the map after stage 3."""
        return torch.flatten(self.get_submodule("layer4")(feature_map).mean((2, 3)), 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))
