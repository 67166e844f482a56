"""Weight files: read safely, and never half a model."""

import os
import pickle
import socket
from pathlib import Path
from typing import Any

import huggingface_hub
import huggingface_hub.constants
import huggingface_hub.errors
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from unida.errors import UserError
from unida.models.backbones import build_backbone
from unida.models.weights import load_strictly, read_weights


def small_net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Linear(4, 2))


def copy_of(net: nn.Module) -> dict[str, Tensor]:
    return {k: v.clone() for k, v in net.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def write(path: Path, tensors: dict[str, Tensor]) -> Path:
    if path.suffix == ".safetensors":
        save_file(tensors, path)
    else:
        torch.save(tensors, path)
    return path


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth", "w.bin"])
def test_a_file_fills_a_network(tmp_path: Path, name: str) -> None:
    net, other = small_net(), small_net()
    tensors, remarks = read_weights(write(tmp_path / name, copy_of(other)))
    load_strictly(net, tensors, name)
    assert remarks == {}
    assert same(copy_of(net), copy_of(other))


def test_remarks_of_a_safetensors_file_come_along(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(1)}, tmp_path / "w.safetensors", {"stride": "first 1x1 conv"})
    assert read_weights(tmp_path / "w.safetensors")[1] == {"stride": "first 1x1 conv"}


@pytest.mark.parametrize("key", ["state_dict", "model"])
def test_a_nested_state_dict_is_found(tmp_path: Path, key: str) -> None:
    tensors = copy_of(small_net())
    torch.save({key: tensors, "epoch": 3}, tmp_path / "w.pt")
    assert same(read_weights(tmp_path / "w.pt")[0], tensors)


def test_all_faults_are_in_one_error_and_the_network_is_untouched() -> None:
    net = small_net()
    before, tensors = copy_of(net), copy_of(small_net())
    del tensors["2.bias"]
    tensors["3.extra"] = torch.zeros(1)
    tensors["0.weight"] = torch.zeros(5, 3, 1, 1)
    with pytest.raises(UserError) as caught:
        load_strictly(net, tensors, "some.pt")
    assert str(caught.value) == (
        "some.pt does not fit this network; missing: 2.bias; unexpected: 3.extra; "
        "wrong shape: 0.weight (5, 3, 1, 1) for (4, 3, 1, 1)."
    )
    assert same(copy_of(net), before)


def test_many_faults_are_counted_not_listed() -> None:
    net = nn.Sequential(*(nn.Linear(1, 1) for _ in range(10)))
    with pytest.raises(UserError, match=r"missing: 0\.weight, 0\.bias, .* and 12 more"):
        load_strictly(net, {}, "empty.pt")


@pytest.mark.parametrize("prefix", ["fc.", "classifier.", "head."])
def test_the_classifier_of_a_published_file_is_ignored(prefix: str) -> None:
    net, other = small_net(), small_net()
    surplus = {f"{prefix}weight": torch.zeros(7, 4), f"{prefix}bias": torch.zeros(7)}
    load_strictly(net, copy_of(other) | surplus, "w")
    assert same(copy_of(net), copy_of(other))


def test_a_classifier_that_the_network_has_is_not_ignored() -> None:
    net = nn.Sequential()
    net.fc = nn.Linear(4, 2)
    with pytest.raises(UserError, match=r"wrong shape: fc.weight \(7, 4\) for \(2, 4\)"):
        load_strictly(net, {"fc.weight": torch.zeros(7, 4), "fc.bias": torch.zeros(2)}, "w")


def test_a_file_may_leave_out_the_batch_counters() -> None:
    net, tensors = small_net(), copy_of(small_net())
    del tensors["1.num_batches_tracked"]
    load_strictly(net, tensors, "w")
    assert torch.equal(net.state_dict()["0.weight"], tensors["0.weight"])
    assert net.state_dict()["1.num_batches_tracked"] == 0


def test_half_precision_is_cast(tmp_path: Path) -> None:
    net, other = small_net(), small_net().half()
    load_strictly(net, read_weights(write(tmp_path / "w.safetensors", copy_of(other)))[0], "w")
    assert net.state_dict()["0.weight"].dtype == torch.float32
    assert torch.equal(net.state_dict()["0.weight"], other.state_dict()["0.weight"].float())


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = str(place)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.place,)


def test_a_file_with_code_in_it_is_refused_and_not_run(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    torch.save({"0.weight": torch.zeros(1), "x": Evil(trace)}, tmp_path / "w.pt")
    with pytest.raises(UserError, match=r"w\.pt holds more than plain tensors") as caught:
        read_weights(tmp_path / "w.pt")
    assert not trace.exists()
    assert "weights_only" not in str(caught.value)  # torch's own message explains how to run it


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_bare_pickle_with_code_in_it_is_refused_and_not_run(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    (tmp_path / "w.pkl").write_bytes(pickle.dumps(Evil(trace)))
    with pytest.raises(UserError, match="holds more than plain tensors"):
        read_weights(tmp_path / "w.pkl")
    assert not trace.exists()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_a_truncated_torch_file_is_one_sentence(tmp_path: Path, share: float) -> None:
    path = write(tmp_path / "w.pt", {"a": torch.zeros(1000)})
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(UserError, match=r"w\.pt is not a whole torch file \(\w+\)\.$"):
        read_weights(path)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_a_truncated_safetensors_file_is_one_sentence(tmp_path: Path, share: float) -> None:
    path = write(tmp_path / "w.safetensors", {"a": torch.zeros(1000)})
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(UserError, match=r"w\.safetensors is not a whole safetensors file"):
        read_weights(path)


@pytest.mark.parametrize("content", [[1, 2], {"epoch": 3}, {1: torch.zeros(1)}, torch.zeros(2)])
def test_a_torch_file_without_named_tensors_is_one_sentence(
    tmp_path: Path, content: object
) -> None:
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(UserError, match="holds no dictionary of tensors"):
        read_weights(tmp_path / "w.pt")


def test_what_is_not_a_file_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere.pt"):
        with pytest.raises(UserError, match="is not a file"):
            read_weights(path)


def test_a_backbone_takes_a_file_with_torchvisions_names(tmp_path: Path) -> None:
    other = build_backbone("resnet18", "none")
    fc = {"fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}
    path = write(tmp_path / "w.safetensors", copy_of(other.net) | fc)
    backbone = build_backbone("resnet18", str(path))
    assert backbone.pretrained
    assert same(copy_of(backbone.net), copy_of(other.net))


def test_a_file_of_another_network_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "w.safetensors", copy_of(build_backbone("small_cnn", "none").net))
    with pytest.raises(UserError, match=r"does not fit this network; missing: conv1\.weight"):
        build_backbone("resnet18", str(path))


@pytest.fixture
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No hub, and nothing of it on this machine; the library has read its environment already."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.mark.usefixtures("_offline")
def test_published_weights_that_cannot_be_had_are_one_sentence() -> None:
    with pytest.raises(UserError) as caught:
        build_backbone("resnet18", None)
    assert str(caught.value) == (
        "The ImageNet weights of resnet18 are not on this machine and the Hugging Face hub cannot "
        "be reached (OfflineModeIsEnabled): name a file with --weights, or --weights none to "
        "train from scratch."
    )


def test_a_hub_out_of_reach_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.socket() as nobody:  # bound, but nobody listens
        nobody.bind(("127.0.0.1", 0))
        place = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", place)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr("unida.models.weights.getproxies", dict)
        asked: list[dict[str, Any]] = []

        def download(*_: str, **options: Any) -> str:
            asked.append(options)
            raise huggingface_hub.errors.LocalEntryNotFoundError("not on this machine")

        monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
        with pytest.raises(UserError, match=r"cannot be reached \(ConnectionRefusedError\)"):
            build_backbone("resnet18", None)
    assert asked == [{"local_files_only": True}]  # the library, which tries again and again


def test_the_2015_layout_has_no_published_weights() -> None:
    with pytest.raises(UserError, match="resnet50-v1 has no published file on the hub"):
        build_backbone("resnet50-v1", None)


@pytest.mark.usefixtures("_offline")
def test_none_starts_from_scratch_and_needs_no_hub() -> None:
    torch.manual_seed(0)
    first, second = (build_backbone("resnet18", "none") for _ in range(2))
    assert not first.pretrained
    assert not same(copy_of(first.net), copy_of(second.net))


@pytest.mark.usefixtures("_offline")
def test_small_cnn_starts_from_scratch_unasked() -> None:
    assert not build_backbone("small_cnn", None).pretrained


def test_an_unknown_backbone_is_named_with_what_is_allowed() -> None:
    for name in ("resnet51", "hf:", "timm:", "resnet50-v2"):
        with pytest.raises(UserError, match=f"backbone is '{name}'; allowed: small_cnn, resnet18"):
            build_backbone(name, "none")
