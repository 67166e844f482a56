"""ResNet against torchvision's published names, shapes and counts, and a slow copy of a block."""

import functools
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors import safe_open

from unida.errors import UserError
from unida.models.backbones import build_backbone
from unida.models.backbones.resnet import PLANS, Bottleneck, ResNet

Array = npt.NDArray[np.float64]

WEIGHTS = Path(__file__).parents[3] / "shared" / "weights" / "resnet50-imagenet-v1.safetensors"
needs_weights = pytest.mark.skipif(not WEIGHTS.exists(), reason=f"{WEIGHTS} is not here")

# Parameters without the classifier: torchvision's published counts less 1000·D + 1000 of fc.
COUNTS = {
    "resnet18": 11_689_512 - 513_000,
    "resnet34": 21_797_672 - 513_000,
    "resnet50": 25_557_032 - 2_049_000,
    "resnet101": 44_549_160 - 2_049_000,
    "resnet152": 60_192_808 - 2_049_000,
}


@functools.cache
def skeleton(name: str) -> ResNet:
    """The network without memory for its weights."""
    with torch.device("meta"):
        return ResNet(name)


def norm(prefix: str, width: int) -> dict[str, tuple[int, ...]]:
    vectors = ("weight", "bias", "running_mean", "running_var")
    return {f"{prefix}.{v}": (width,) for v in vectors} | {f"{prefix}.num_batches_tracked": ()}


def torchvision_shapes(
    blocks: tuple[int, ...], kernels: tuple[int, ...], grow: int
) -> dict[str, tuple[int, ...]]:
    """Names and shapes of torchvision's state_dict, less fc."""
    shapes: dict[str, tuple[int, ...]] = {"conv1.weight": (64, 3, 7, 7), **norm("bn1", 64)}
    inside = 64
    for stage, count in enumerate(blocks, 1):
        width = (64, 128, 256, 512)[stage - 1]
        for i in range(count):
            block, last = f"layer{stage}.{i}", width * grow
            channels = inside
            for k, kernel in enumerate(kernels, 1):
                out = last if k == len(kernels) else width
                shapes[f"{block}.conv{k}.weight"] = (out, channels, kernel, kernel)
                shapes |= norm(f"{block}.bn{k}", out)
                channels = out
            if i == 0 and (stage > 1 or inside != last):
                shapes[f"{block}.downsample.0.weight"] = (last, inside, 1, 1)
                shapes |= norm(f"{block}.downsample.1", last)
            inside = last
    return shapes


@pytest.mark.parametrize(
    ("name", "blocks", "kernels", "grow", "tensors"),
    [
        ("resnet18", (2, 2, 2, 2), (3, 3), 1, 120),
        ("resnet34", (3, 4, 6, 3), (3, 3), 1, 216),
        ("resnet50", (3, 4, 6, 3), (1, 3, 1), 4, 318),
    ],
)
def test_names_and_shapes_are_torchvisions(
    name: str, blocks: tuple[int, ...], kernels: tuple[int, ...], grow: int, tensors: int
) -> None:
    shapes = {k: tuple(v.shape) for k, v in skeleton(name).state_dict().items()}
    assert shapes == torchvision_shapes(blocks, kernels, grow)
    assert len(shapes) == tensors


@pytest.mark.parametrize("name", PLANS)
def test_parameter_counts_are_torchvisions(name: str) -> None:
    assert sum(p.numel() for p in skeleton(name).parameters()) == COUNTS[name]


@pytest.mark.parametrize(("name", "width"), [("resnet18", 512), ("resnet50", 2048)])
def test_out_features_is_the_width_of_what_comes_out(name: str, width: int) -> None:
    net = skeleton(name)
    assert net(torch.empty(2, 3, 33, 40, device="meta")).shape == (2, width)
    assert net.out_features == width


def test_the_stride_layouts_share_keys_and_shapes_but_not_the_function() -> None:
    late, early = ResNet("resnet50").eval(), ResNet("resnet50", stride_first=True).eval()
    early.load_state_dict(late.state_dict())
    x = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        a, b = late(x), early(x)
    assert a.shape == b.shape
    assert (a - b).abs().max() > 0.05 * a.abs().max()


def test_the_layouts_are_one_where_blocks_have_no_first_1x1() -> None:
    plain, v1 = ResNet("resnet18").eval(), ResNet("resnet18", stride_first=True).eval()
    v1.load_state_dict(plain.state_dict())
    x = torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(plain(x), v1(x))


def slow_conv(x: Array, weight: Array, stride: int) -> Array:
    """Convolution with the padding that keeps the size, one output position at a time."""
    size = weight.shape[2]
    pad = size // 2
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    height, width = -(-x.shape[2] // stride), -(-x.shape[3] // stride)
    out = np.zeros((len(x), len(weight), height, width))
    for i in range(height):
        for j in range(width):
            top, left = i * stride, j * stride
            patch = padded[:, :, top : top + size, left : left + size]
            out[:, :, i, j] = np.tensordot(patch, weight, axes=((1, 2, 3), (1, 2, 3)))
    return out


def slow_bottleneck(x: Array, state: dict[str, Array], strides: tuple[int, int, int]) -> Array:
    def normed(values: Array, prefix: str) -> Array:
        weight, bias, mean, var = (
            state[f"{prefix}.{part}"][:, None, None]
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        return (values - mean) / np.sqrt(var + 1e-5) * weight + bias

    out = x
    for k, stride in enumerate(strides, 1):
        out = normed(slow_conv(out, state[f"conv{k}.weight"], stride), f"bn{k}")
        if k < 3:
            out = np.maximum(out, 0)
    around = slow_conv(x, state["downsample.0.weight"], max(strides))
    return np.maximum(out + normed(around, "downsample.1"), 0)


@pytest.mark.parametrize(("stride_first", "strides"), [(False, (1, 2, 1)), (True, (2, 1, 1))])
def test_a_bottleneck_equals_its_slow_copy(
    stride_first: bool, strides: tuple[int, int, int]
) -> None:
    torch.manual_seed(0)
    block = Bottleneck(6, 3, 2, stride_first).double().eval()
    for name, buffer in block.named_buffers():
        if not name.endswith("tracked"):
            buffer.copy_(torch.rand_like(buffer) + 0.5)
    for name, parameter in block.named_parameters():
        if "bn" in name or "downsample.1" in name:
            torch.nn.init.normal_(parameter)
    x = torch.randn(2, 6, 5, 6, dtype=torch.float64)
    expected = slow_bottleneck(
        x.numpy(), {k: v.numpy() for k, v in block.state_dict().items()}, strides
    )
    with torch.no_grad():
        np.testing.assert_allclose(block(x).numpy(), expected, atol=1e-12)


@needs_weights
def test_the_2015_weights_fill_resnet50_v1_completely() -> None:
    backbone = build_backbone("resnet50-v1", str(WEIGHTS))
    assert backbone.pretrained
    state = backbone.net.state_dict()
    with safe_open(WEIGHTS, "pt") as file:
        assert set(file.keys()) == {k for k in state if not k.endswith("num_batches_tracked")}
        for name in ("conv1.weight", "layer4.2.bn3.running_var"):
            assert torch.equal(state[name], file.get_tensor(name).float())
    assert all(v.dtype == torch.float32 for v in state.values() if v.is_floating_point())


@needs_weights
def test_the_2015_weights_are_refused_by_the_other_layout() -> None:
    with pytest.raises(UserError, match="stride in the first 1×1 convolution: use resnet50-v1"):
        build_backbone("resnet50", str(WEIGHTS))
