"""`timm:` backbones, against a stand-in with timm's interface."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from unida.errors import UserError
from unida.models.backbones import build_backbone, rebuild_backbone
from unida.models.backbones.base import IMAGENET_MEAN


class FakeNet(nn.Module):
    num_features = 6

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 1)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.conv(x)
        return features.mean((2, 3))


Calls = list[tuple[str, dict[str, Any]]]


def install(monkeypatch: pytest.MonkeyPatch, make: Callable[[], nn.Module] = FakeNet) -> Calls:
    calls: Calls = []

    def create_model(name: str, **options: Any) -> nn.Module:
        calls.append((name, options))
        return make()

    timm = ModuleType("timm")
    timm.create_model = create_model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", timm)
    return calls


@pytest.mark.parametrize(("weights", "pretrained"), [(None, True), ("none", False)])
def test_the_name_is_passed_on_and_the_classifier_left_out(
    monkeypatch: pytest.MonkeyPatch, weights: str | None, pretrained: bool
) -> None:
    calls = install(monkeypatch)
    backbone = build_backbone("timm:vit_tiny.augreg", weights)
    assert calls == [("vit_tiny.augreg", {"pretrained": pretrained, "num_classes": 0})]
    assert backbone.pretrained is pretrained


def test_features_are_the_nets_on_normalised_images(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    backbone = build_backbone("timm:x", None)
    x = torch.rand(2, 3, 8, 8)
    assert backbone.out_features == 6
    torch.testing.assert_close(backbone(x), backbone.net((x - backbone.mean) / backbone.std))
    torch.testing.assert_close(backbone.mean.flatten(), torch.tensor(IMAGENET_MEAN))


def test_a_hidden_layer_in_the_head_gives_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wide(FakeNet):
        num_features, head_hidden_size = 4, 6

    install(monkeypatch, Wide)
    backbone = build_backbone("timm:mobilenetv3", None)
    assert backbone.out_features == 6 == backbone(torch.rand(1, 3, 8, 8)).shape[1]


def test_the_published_image_statistics_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Published(FakeNet):
        pretrained_cfg = {"mean": (0.5, 0.4, 0.3), "std": (0.1, 0.2, 0.3)}  # noqa: RUF012

    install(monkeypatch, Published)
    backbone = build_backbone("timm:vit", None)
    torch.testing.assert_close(backbone.mean.flatten(), torch.tensor([0.5, 0.4, 0.3]))
    torch.testing.assert_close(backbone.std.flatten(), torch.tensor([0.1, 0.2, 0.3]))


def test_a_weights_file_fills_the_net(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls, other = install(monkeypatch), FakeNet()
    torch.save(other.state_dict(), tmp_path / "w.pt")
    backbone = build_backbone("timm:x", str(tmp_path / "w.pt"))
    assert calls == [("x", {"pretrained": False, "num_classes": 0})]
    assert torch.equal(backbone.state_dict()["net.net.conv.weight"], other.conv.weight)
    assert backbone.pretrained


def test_rebuilding_downloads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = install(monkeypatch)
    backbone = build_backbone("timm:x", None)
    again = rebuild_backbone(backbone.spec)
    again.load_state_dict(backbone.state_dict())
    x = torch.rand(2, 3, 8, 8)
    assert calls[1] == ("x", {"pretrained": False, "num_classes": 0})
    assert torch.equal(again(x), backbone(x))


def test_what_timm_refuses_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> nn.Module:
        raise RuntimeError("Unknown model (nonsense)")

    install(monkeypatch, fail)
    with pytest.raises(UserError, match=r"^timm:nonsense cannot be loaded: Unknown model"):
        build_backbone("timm:nonsense", None)


def test_without_the_extra_the_error_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UserError, match=r"need timm .extra 'timm'.: pip install timm"):
        build_backbone("timm:x", None)
