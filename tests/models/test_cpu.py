"""Evaluation on a CPU: OpenVINO or PyTorch's fused kernels compute what the network computes."""

import copy
import logging
from typing import Any

import pytest
import torch
from torch import Tensor

from unida import load
from unida.errors import UserError
from unida.models.backbones import build_backbone, cpu
from unida.models.backbones.base import Backbone, evaluating
from unida.models.backbones.hf import rebuild

MANY = cpu.MIN_IMAGES
VIT = {
    "model_type": "vit",
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}


@pytest.fixture(autouse=True)
def _every_network_is_large_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "MIN_PARAMETERS", 0)


def network(name: str = "small_cnn") -> Backbone:
    torch.manual_seed(0)
    backbone = Backbone(rebuild({"config": VIT}), "{}") if name == "vit" else build_backbone(
        name, "none"
    )  # fmt: skip
    draws = torch.Generator().manual_seed(1)
    for key, buffer in backbone.net.named_buffers():
        if key.endswith("running_var"):
            buffer.uniform_(0.5, 1.5, generator=draws)
        if key.endswith("running_mean"):
            buffer.uniform_(-0.1, 0.1, generator=draws)
    return backbone.eval()


def images(n: int) -> Tensor:
    return torch.rand(n, 3, 32, 32, generator=torch.Generator().manual_seed(n))


@torch.inference_mode()
def evaluate(backbone: Backbone, given: Tensor, n: int = MANY) -> Tensor:
    with backbone.evaluating(n):
        return backbone(given)


def without_openvino(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "is_installed", lambda: False)


def difference(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("name", ["resnet50", "vit", "small_cnn"])
@pytest.mark.parametrize("installed", [True, False])
def test_features_are_those_of_the_network(
    name: str, installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if installed:
        pytest.importorskip("openvino")
    else:
        without_openvino(monkeypatch)
    backbone = network(name)
    for n in (3, 1, 20):
        given = images(n)
        with torch.no_grad():
            expected = backbone(given)
        found = evaluate(backbone, given)
        assert backbone._cpu.run is not None
        assert difference(found, expected) < 1e-4
        assert found.shape == expected.shape


def test_few_images_gradients_and_training_are_left_to_the_network() -> None:
    backbone, given = network(), images(4)
    evaluate(backbone, given, MANY - 1)
    with backbone.evaluating(MANY):
        assert backbone(given).requires_grad
        with torch.no_grad():
            backbone.train()(given)
    assert backbone._cpu.key is None


def test_a_small_network_is_not_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "MIN_PARAMETERS", 10**9)
    backbone, given = network(), images(4)
    found = evaluate(backbone, given)
    assert backbone._cpu.run is None
    with torch.inference_mode():
        assert torch.equal(found, backbone(given))


@pytest.mark.parametrize("change", ["train", "load", "dtype"])
def test_other_weights_are_converted_again(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_openvino(monkeypatch)
    backbone, given = network(), images(4)
    evaluate(backbone, given)
    other = {k: 2 * v if v.is_floating_point() else v for k, v in backbone.state_dict().items()}
    if change == "load":
        backbone.load_state_dict(other)
    else:
        if change == "train":
            backbone.train()
        backbone.net.load_state_dict({k[4:]: v for k, v in other.items() if k[:4] == "net."})
        if change == "dtype":
            backbone.double().float()
        backbone.eval()
    with torch.no_grad():
        expected = backbone(given)
    assert difference(evaluate(backbone, given), expected) < 1e-4


def test_a_conversion_serves_the_next_images_too(monkeypatch: pytest.MonkeyPatch) -> None:
    without_openvino(monkeypatch)
    backbone = network()
    evaluate(backbone, images(4))
    made = backbone._cpu.run
    backbone.to("cpu").eval()
    evaluate(backbone, images(20))
    assert made is backbone._cpu.run is not None


def test_a_copy_has_its_own_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    without_openvino(monkeypatch)
    backbone = network()
    evaluate(backbone, images(4))
    assert copy.deepcopy(backbone)._cpu.run is None


@pytest.mark.parametrize("fault", ["an error", "other features"])
def test_where_the_conversion_fails_one_warning_says_why(
    fault: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def convert(net: torch.nn.Module, key: Any) -> Any:
        if fault == "an error":
            raise RuntimeError("no operation\nroll")
        return lambda given: 2 * net(given)

    monkeypatch.setattr(cpu, "is_installed", lambda: True)
    monkeypatch.setattr(cpu, "_by_openvino", convert)
    backbone, given = network(), images(4)
    with torch.no_grad():
        expected = backbone(given)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert difference(evaluate(backbone, given), expected) < 1e-4
    (record,) = caplog.records
    reason = "no operation roll" if fault == "an error" else "features differ by 1 of"
    assert reason in record.getMessage()


@pytest.mark.parametrize("installed", [True, False])
def test_bf16_rounds_and_has_embeddings_of_its_own(
    installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if installed:
        pytest.importorskip("openvino")
    else:
        without_openvino(monkeypatch)
    backbone, given = network(), images(4)
    exact = evaluate(backbone, given)
    assert backbone.evaluation_precision == "fp32"
    backbone.cpu_precision = "bf16"
    assert backbone.evaluation_precision == "bf16"
    assert difference(evaluate(backbone, given), exact) < 0.03
    with torch.inference_mode():
        outside = backbone(given)  # such as an export
    assert difference(outside, exact) < 1e-4
    backbone.to("meta")
    assert backbone.evaluation_precision == "fp32"


def test_every_backbone_of_a_module_is_told() -> None:
    both = torch.nn.ModuleList([network(), network()])
    with evaluating(both, 7):
        assert [part._to_evaluate for part in both] == [7, 7]
    assert [part._to_evaluate for part in both] == [0, 0]


def test_a_wrong_precision_is_refused() -> None:
    with pytest.raises(UserError, match="cpu_precision is 'int8'; allowed: fp32, bf16"):
        load("nowhere", "cpu", "int8")  # type: ignore[arg-type]
