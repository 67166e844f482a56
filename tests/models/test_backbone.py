"""The registry of backbones, precision, and several batches at once."""

from contextlib import suppress

import pytest
import torch

from unida.models.backbones import BACKBONES, build_backbone, list_backbones, rebuild_backbone
from unida.models.backbones.base import Backbone


def test_every_listed_backbone_is_built_and_rebuilt() -> None:
    assert list_backbones() == [*BACKBONES, "hf:…", "timm:…"]
    with torch.device("meta"):
        for name in BACKBONES:
            backbone = build_backbone(name, "none")
            again = rebuild_backbone(backbone.spec)
            assert backbone.net(torch.rand(2, 3, 32, 32)).shape == (2, backbone.out_features)
            assert again.state_dict().keys() == backbone.state_dict().keys()
            assert again.spec == backbone.spec


def test_precision_is_restored_even_after_an_error() -> None:
    net = small_cnn(frozen=False)
    with net.precision(torch.bfloat16):
        with suppress(KeyError), net.precision(None):
            assert net.dtype is None
            raise KeyError
        assert net.dtype is torch.bfloat16
    assert net.dtype is None


def small_cnn(frozen: bool) -> Backbone:
    torch.manual_seed(0)
    net = build_backbone("small_cnn", None)
    for name, buffer in net.net.named_buffers():
        if name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
        if name.endswith("running_mean"):
            buffer.uniform_(-0.1, 0.1)
    if frozen:
        net.freeze_bn_stats()
    return net.train()


@pytest.mark.parametrize("frozen", [True, False])
def test_features_of_several_batches_equal_those_of_each(frozen: bool) -> None:
    batches = [torch.rand(n, 3, 16, 16) for n in (4, 6, 4)]
    features = small_cnn(frozen).each(batches)
    one = small_cnn(frozen)
    for found, batch in zip(features, batches, strict=True):
        torch.testing.assert_close(found, one(batch), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("frozen", "forwards"), [(True, 1), (False, 3)])
def test_batches_share_a_forward_only_with_frozen_batch_norm(frozen: bool, forwards: int) -> None:
    net, sizes = small_cnn(frozen), []
    net.net.register_forward_hook(lambda _, images, __: sizes.append(len(images[0])))
    net.each([torch.rand(4, 3, 16, 16)] * 3)
    assert len(sizes) == forwards
    assert sum(sizes) == 12


def test_stored_embeddings_pass_through() -> None:
    rows = [torch.rand(4, 128), torch.rand(4, 128)]
    for frozen in (True, False):
        for found, given in zip(small_cnn(frozen).each(rows), rows, strict=True):
            assert torch.equal(found, given)


def test_frozen_statistics_leave_scale_and_shift_trainable() -> None:
    net = small_cnn(frozen=True)
    before = {name: value.clone() for name, value in net.net.named_buffers()}
    net(torch.rand(8, 3, 16, 16)).sum().backward()
    for name, value in net.net.named_buffers():
        assert torch.equal(value, before[name]), name
    grads = [p.grad for p in net.net.parameters()]
    assert all(grad is not None and grad.abs().sum() > 0 for grad in grads)
