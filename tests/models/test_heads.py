"""Heads, and the backbone's promise of float32."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from unida.models.backbones import build_backbone
from unida.models.backbones.base import Backbone
from unida.models.backbones.small_cnn import SmallCNN
from unida.models.heads import AllInOne, Projection, UnitLinear


def test_all_in_one_outputs_is_not_then_is_for_every_class() -> None:
    head = AllInOne(2, 3)
    with torch.no_grad():
        head.linear.weight.copy_(torch.tensor([[1.0, 0], [2, 0], [3, 0], [0, 1], [0, 2], [0, 3]]))
        closed, logits = head(torch.tensor([[1.0, 10.0], [-1.0, 0.0]]))
    assert logits.shape == (2, 2, 3)
    assert logits[:, 0].tolist() == [[1, 2, 3], [-1, -2, -3]]
    assert logits[:, 1].tolist() == closed.tolist() == [[10, 20, 30], [0, 0, 0]]


def test_the_hashed_head_gives_the_numbers_of_methods_13_5() -> None:
    head = AllInOne(2, 2, hashed=True)
    first = head.get_submodule("hash.0")
    assert isinstance(first, UnitLinear)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[3.0, 4], [0, 2]]))
        head.linear.weight.copy_(torch.tensor([[1.0, -1], [0.5, 0.5], [-1, 2], [0, 1]]))
        z = torch.tensor([[0.05, 0.1]])
        hidden, (_, out) = head.hash(z), head(z)
    torch.testing.assert_close(hidden, torch.tensor([[0.9002, 0.8808]]), atol=5e-5, rtol=0)
    expected = torch.tensor([[[0.0195, 0.8905], [0.8613, 0.8808]]])
    torch.testing.assert_close(out, expected, atol=5e-5, rtol=0)


def test_unit_linear_ignores_the_length_of_its_rows() -> None:
    layer = UnitLinear(4, 3, temperature=0.5)
    x = torch.randn(5, 4)
    before = layer(x).detach()
    with torch.no_grad():
        layer.weight.mul_(torch.tensor([[2.0], [0.1], [30.0]]))
    torch.testing.assert_close(layer(x), before)
    rows = layer.weight / layer.weight.norm(dim=1, keepdim=True)
    torch.testing.assert_close(layer(x), x @ rows.T / 0.5)
    assert layer.bias is None


def test_unit_linear_pulls_its_rows_only_sideways() -> None:
    layer = UnitLinear(4, 3)
    layer(torch.randn(5, 4)).pow(2).sum().backward()
    assert layer.weight.grad is not None
    along = (layer.weight.grad * layer.weight).sum(1)
    torch.testing.assert_close(along, torch.zeros(3), atol=1e-5, rtol=0)
    assert layer.weight.grad.abs().max() > 1e-3


def test_unit_linear_has_the_gradient_of_scaled_weights() -> None:
    torch.manual_seed(0)
    layer, x = UnitLinear(4, 3, 0.5).double(), torch.randn(5, 4).double()
    pull = torch.randn(5, 3).double()
    layer(x).backward(pull)
    rows = layer.weight.detach().clone().requires_grad_()
    F.linear(x, F.normalize(rows) / 0.5).backward(pull)
    torch.testing.assert_close(layer.weight.grad, rows.grad)


def test_a_row_of_zeros_gives_zero_and_a_finite_gradient() -> None:
    layer = UnitLinear(4, 3)
    with torch.no_grad():
        layer.weight[1] = 0
    out = layer(torch.randn(5, 4))
    out.sum().backward()
    assert out[:, 1].eq(0).all()
    assert layer.weight.grad is not None
    assert layer.weight.grad.isfinite().all()


def test_projection_of_several_batches_is_that_of_one_after_the_other() -> None:
    """Outputs, gradients, and what batch norm remembers."""
    torch.manual_seed(0)
    together = Projection(6, 12, 5).double()
    apart = copy.deepcopy(together)
    batches = [(n + 1) * torch.randn(4 + n, 6).double() + n for n in range(3)]
    pulls = [torch.randn(len(batch), 5).double() for batch in batches]
    z = together(*batches)
    each = [apart(batch) for batch in batches]
    torch.testing.assert_close(z, torch.cat(each))
    z.backward(torch.cat(pulls))
    torch.autograd.backward(each, pulls)
    for one, other in zip(together.parameters(), apart.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    for one, other in zip(together.buffers(), apart.buffers(), strict=True):
        torch.testing.assert_close(one, other)


def test_projection_is_two_layers_with_batch_norm_between() -> None:
    head = Projection(6, 12, 5)
    assert head(torch.randn(4, 6)).shape == (4, 5)
    assert head.out_features == 5
    shapes = {k: tuple(v.shape) for k, v in head.named_parameters()}
    assert shapes == {
        "0.weight": (12, 6), "0.bias": (12,), "1.weight": (12,), "1.bias": (12,),
        "3.weight": (5, 12), "3.bias": (5,),
    }  # fmt: skip


class Probe(nn.Module):
    """Passes its input on and remembers the type of a product with it."""

    out_features = 3

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.output_dtype: torch.dtype | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.linear(x.mean((2, 3)))
        self.output_dtype = out.dtype
        return out


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_a_backbone_computes_in_its_dtype_and_outputs_float32(
    dtype: torch.dtype | None,
) -> None:
    net = Probe()
    backbone = Backbone(net, "{}")
    with backbone.precision(dtype):
        features = backbone(torch.rand(2, 3, 4, 4))
    assert backbone.dtype is None
    assert net.output_dtype == (dtype or torch.float32)
    assert features.dtype == torch.float32
    features.sum().backward()
    assert net.linear.weight.grad is not None
    assert net.linear.weight.grad.dtype == torch.float32


def test_bf16_changes_the_features_a_little_only() -> None:
    torch.manual_seed(0)
    backbone = build_backbone("small_cnn", None).eval()
    x = torch.rand(2, 3, 16, 16)
    with torch.no_grad():
        exact = backbone(x)
        with backbone.precision(torch.bfloat16):
            rough = backbone(x)
    assert 0 < (exact - rough).abs().max() < 0.05 * exact.abs().max()


def test_a_backbone_normalises_its_input() -> None:
    net = Probe()
    backbone = Backbone(net, "{}")
    x = torch.rand(2, 3, 4, 4)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    torch.testing.assert_close(backbone(x), net.linear((x.mean((2, 3)) - mean) / std))


@pytest.mark.parametrize("size", [(8, 8), (16, 16), (17, 30)])
def test_small_cnn_takes_any_size(size: tuple[int, int]) -> None:
    net = SmallCNN()
    assert net(torch.rand(2, 3, *size)).shape == (2, net.out_features)
