"""EfficientNet-Lite2: timm's names and shapes, TensorFlow's padding, a slow copy of a block."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor

from unida.errors import UserError
from unida.models.backbones import build_backbone
from unida.models.backbones.efficientnet_lite import (
    EfficientNetLite2,
    InvertedResidual,
    SameConv2d,
)
from unida.models.weights import load_strictly

WEIGHTS = (
    Path(__file__).parents[3] / "shared" / "weights" / "efficientnet-lite2-imagenet.safetensors"
)
needs_weights = pytest.mark.skipif(not WEIGHTS.exists(), reason=f"{WEIGHTS} is not here")

# Input, output, kernel of the first block of each stage, and its number of blocks.
ROWS = [
    (32, 16, 3, 1),
    (16, 24, 3, 3),
    (24, 48, 5, 3),
    (48, 88, 3, 4),
    (88, 120, 5, 4),
    (120, 208, 5, 5),
    (208, 352, 3, 1),
]


def norm(prefix: str, width: int) -> dict[str, tuple[int, ...]]:
    vectors = ("weight", "bias", "running_mean", "running_var")
    return {f"{prefix}.{v}": (width,) for v in vectors}


def timm_shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of timm's `tf_efficientnet_lite2`, less the classifier and counters."""
    shapes = {"conv_stem.weight": (32, 3, 3, 3), **norm("bn1", 32)}
    for stage, (first, outside, kernel, blocks) in enumerate(ROWS):
        for i in range(blocks):
            block, inside = f"blocks.{stage}.{i}", outside if i else first
            if stage == 0:
                shapes[f"{block}.conv_dw.weight"] = (inside, 1, kernel, kernel)
                shapes[f"{block}.conv_pw.weight"] = (outside, inside, 1, 1)
                shapes |= norm(f"{block}.bn1", inside) | norm(f"{block}.bn2", outside)
                continue
            wide = 6 * inside
            shapes[f"{block}.conv_pw.weight"] = (wide, inside, 1, 1)
            shapes[f"{block}.conv_dw.weight"] = (wide, 1, kernel, kernel)
            shapes[f"{block}.conv_pwl.weight"] = (outside, wide, 1, 1)
            shapes |= norm(f"{block}.bn1", wide) | norm(f"{block}.bn2", wide)
            shapes |= norm(f"{block}.bn3", outside)
    return shapes | {"conv_head.weight": (1280, 352, 1, 1), **norm("bn2", 1280)}


def network() -> EfficientNetLite2:
    torch.manual_seed(0)
    return EfficientNetLite2()


def test_names_and_shapes_are_timms() -> None:
    net = network()
    shapes = {k: tuple(v.shape) for k, v in net.state_dict().items() if "num_batches" not in k}
    assert shapes == timm_shapes()
    # timm's published count, 6,092,072, less 1000·1280 + 1000 of the classifier.
    assert sum(p.numel() for p in net.parameters()) == 6_092_072 - 1_281_000


def test_a_state_of_timm_is_loaded_without_its_classifier() -> None:
    state = {k: torch.rand(shape, dtype=torch.float16) for k, shape in timm_shapes().items()}
    net = network()
    classifier = {"classifier.weight": torch.rand(1000, 1280), "classifier.bias": torch.rand(1000)}
    load_strictly(net, state | classifier, "timm")
    assert all(torch.equal(net.state_dict()[k], v.float()) for k, v in state.items())
    del state["blocks.3.1.conv_dw.weight"]
    with pytest.raises(UserError, match=r"missing: blocks\.3\.1\.conv_dw\.weight"):
        load_strictly(net, state, "timm")


def test_features_are_the_head_of_the_feature_map() -> None:
    net, x = network().eval(), torch.rand(2, 3, 65, 48)
    with torch.no_grad():
        feature_map = net.forward_features(x)
        assert feature_map.shape == (2, net.map_channels, 5, 3)
        assert net(x).shape == (2, net.out_features)
        assert torch.equal(net.forward_head(feature_map), net(x))


def padded_conv(x: Tensor, weight: Tensor, stride: int, groups: int) -> Tensor:
    """TensorFlow's 'same' convolution by its definition, one output position at a time."""
    kernel, sides, counts = weight.shape[-1], [], []
    for size in x.shape[-2:]:
        counts.append(-(-size // stride))
        total = max((counts[-1] - 1) * stride + kernel - size, 0)
        sides.append((total // 2, total - total // 2))
    padded = F.pad(x, (*sides[1], *sides[0]))
    out = x.new_empty(len(x), len(weight), *counts)
    for i in range(counts[0]):
        for j in range(counts[1]):
            top, left = i * stride, j * stride
            patch = padded[:, :, top : top + kernel, left : left + kernel]
            out[:, :, i, j] = F.conv2d(patch, weight, groups=groups)[:, :, 0, 0]
    return out


@pytest.mark.parametrize("size", [(8, 8), (9, 9), (7, 10), (1, 2)])
@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_padding_is_tensorflows(size: tuple[int, int], kernel: int, stride: int) -> None:
    torch.manual_seed(0)
    conv = SameConv2d(4, 4, kernel, stride, groups=2, bias=False).double()
    x = torch.randn(2, 4, *size, dtype=torch.float64)
    with torch.no_grad():
        expected = padded_conv(x, conv.weight, stride, 2)
        torch.testing.assert_close(conv(x), expected)


@pytest.mark.parametrize(("outside", "stride"), [(4, 1), (6, 1), (4, 2)])
def test_a_block_equals_its_slow_copy(outside: int, stride: int) -> None:
    torch.manual_seed(0)
    block = InvertedResidual(4, outside, 5, stride).double().eval()
    for name, value in block.state_dict().items():
        if "bn" in name and value.is_floating_point():
            value.uniform_(0.5, 1.5)
    state = block.state_dict()

    def normed(values: Tensor, prefix: str) -> Tensor:
        weight, bias, mean, var = (
            state[f"{prefix}.{part}"][:, None, None]
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        out: Tensor = (values - mean) / (var + 1e-3).sqrt() * weight + bias
        return out

    x = 4 * torch.randn(2, 4, 6, 7, dtype=torch.float64)
    out = normed(padded_conv(x, state["conv_pw.weight"], 1, 1), "bn1").clamp(0, 6)
    assert (out == 6).any()
    out = normed(padded_conv(out, state["conv_dw.weight"], stride, 24), "bn2").clamp(0, 6)
    out = normed(padded_conv(out, state["conv_pwl.weight"], 1, 1), "bn3")
    if stride == 1 and outside == 4:
        out = out + x
    with torch.no_grad():
        torch.testing.assert_close(block(x), out)


def test_evaluation_is_deterministic_and_by_image() -> None:
    net, x = network().eval(), torch.rand(3, 3, 64, 64)
    with torch.no_grad():
        features = net(x)
        assert torch.equal(net(x), features)
        torch.testing.assert_close(net(x[:1]), features[:1], rtol=1e-4, atol=1e-5)


def test_the_gradient_reaches_every_parameter() -> None:
    net = network().train()
    net(torch.rand(4, 3, 64, 64)).square().sum().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_the_wrapper_normalises_as_tensorflow_did_and_keeps_stored_statistics() -> None:
    backbone = build_backbone("efficientnet_lite2", "none")
    assert not backbone.pretrained
    assert torch.all(backbone.mean == 0.5)
    assert torch.all(backbone.std == 0.5)
    backbone.freeze_bn_stats()
    backbone.train()
    before = {k: v.clone() for k, v in backbone.named_buffers()}
    with backbone.gather_features():
        assert backbone(torch.rand(2, 3, 32, 32)).shape == (2, 1280)
    assert all(torch.equal(v, before[k]) for k, v in backbone.named_buffers())


@needs_weights
def test_the_shared_weights_fill_the_network_completely() -> None:
    backbone = build_backbone("efficientnet_lite2", str(WEIGHTS))
    assert backbone.pretrained
    state = backbone.net.state_dict()
    with safe_open(WEIGHTS, "pt") as file:
        names = set(file.keys())
        assert names == {k for k in state if not k.endswith("num_batches_tracked")}
        assert all(torch.equal(state[k], file.get_tensor(k).float()) for k in names)
    with torch.no_grad():
        features = backbone.eval()(torch.rand(1, 3, 64, 64))
    assert features.min() >= 0
    assert features.max() <= 6
    assert features.std() > 0.05
