"""What a backbone does with several batches."""

import pytest
import torch

from unida.models.backbones import build_backbone
from unida.models.backbones.base import Backbone


def backbone(keeps: bool) -> Backbone:
    torch.manual_seed(0)
    net = build_backbone("small_cnn", None)
    for name, buffer in net.net.named_buffers():
        if name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
        if name.endswith("running_mean"):
            buffer.uniform_(-0.1, 0.1)
    if keeps:
        net.freeze_bn_stats()
    return net.train()


@pytest.mark.parametrize("keeps", [True, False])
def test_several_batches_at_once_are_the_batches_one_by_one(keeps: bool) -> None:
    batches = [torch.rand(n, 3, 16, 16) for n in (4, 6, 4)]
    together = backbone(keeps).each(batches)
    one = backbone(keeps)
    for found, batch in zip(together, batches, strict=True):
        torch.testing.assert_close(found, one(batch), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("keeps", "forwards"), [(True, 1), (False, 3)])
def test_they_share_a_forward_only_where_batch_norm_looks_at_none(
    keeps: bool, forwards: int
) -> None:
    net, shown = backbone(keeps), []
    net.net.register_forward_hook(lambda _, images, __: shown.append(len(images[0])))
    net.each([torch.rand(4, 3, 16, 16)] * 3)
    assert len(shown) == forwards
    assert sum(shown) == 12


def test_stored_embeddings_pass_through() -> None:
    rows = [torch.rand(4, 128), torch.rand(4, 128)]
    for keeps in (True, False):
        for found, given in zip(backbone(keeps).each(rows), rows, strict=True):
            assert torch.equal(found, given)


def test_kept_statistics_leave_scale_and_shift_to_learn() -> None:
    net = backbone(keeps=True)
    before = {name: value.clone() for name, value in net.net.named_buffers()}
    net(torch.rand(8, 3, 16, 16)).sum().backward()
    for name, value in net.net.named_buffers():
        assert torch.equal(value, before[name]), name
    grads = [p.grad for p in net.net.parameters()]
    assert all(grad is not None and grad.abs().sum() > 0 for grad in grads)
