"""`hf:` backbones, on tiny models made here and stored in a folder."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import torch

from unida.errors import UserError
from unida.models.backbones import build_backbone, rebuild_backbone
from unida.models.backbones.base import IMAGENET_MEAN, IMAGENET_STD

transformers: Any = pytest.importorskip("transformers")

MEAN, STD = [0.5, 0.4, 0.3], [0.2, 0.3, 0.1]
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    torch.manual_seed(0)


def tiny_dino() -> Any:
    config = transformers.Dinov2Config(image_size=28, patch_size=14, mlp_ratio=2, **SMALL)
    model = transformers.Dinov2Model(config).eval()
    for parameter in model.parameters():  # class token and scales start equal for every image
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def tiny_clip() -> Any:
    vision = {"image_size": 28, "patch_size": 14, "intermediate_size": 16, **SMALL}
    text = {"vocab_size": 9, "max_position_embeddings": 8, "intermediate_size": 8, **SMALL}
    tokens = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    config = transformers.CLIPConfig(text_config=text | tokens, vision_config=vision)
    return transformers.CLIPModel(config).eval()


def tiny_vit() -> Any:
    config = transformers.ViTConfig(image_size=28, patch_size=14, intermediate_size=16, **SMALL)
    return transformers.ViTModel(config).eval()


def store(model: Any, folder: Path, statistics: bool = True) -> str:
    model.save_pretrained(folder)
    if statistics:
        content = json.dumps({"image_mean": MEAN, "image_std": STD})
        (folder / "preprocessor_config.json").write_text(content)
    return f"hf:{folder}"


def normalised(x: torch.Tensor) -> torch.Tensor:
    return (x - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)


@torch.no_grad()
def test_features_are_the_pooled_output_on_normalised_images(tmp_path: Path) -> None:
    model, x = tiny_dino(), torch.rand(3, 3, 28, 28)
    backbone = build_backbone(store(model, tmp_path / "dino"), None).eval()
    features = backbone(x)
    torch.testing.assert_close(features, model(pixel_values=normalised(x)).pooler_output)
    assert features.shape == (3, backbone.out_features) == (3, 16)
    assert features.std(0).max() > 0.01  # the features differ by image
    assert backbone.pretrained


@torch.no_grad()
def test_the_models_own_image_statistics_are_used(tmp_path: Path) -> None:
    backbone = build_backbone(store(tiny_dino(), tmp_path / "dino"), None)
    torch.testing.assert_close(backbone.mean.flatten(), torch.tensor(MEAN))
    torch.testing.assert_close(backbone.std.flatten(), torch.tensor(STD))


def test_without_a_preprocessor_file_imagenets_statistics_are_used(tmp_path: Path) -> None:
    backbone = build_backbone(store(tiny_dino(), tmp_path / "dino", statistics=False), None)
    torch.testing.assert_close(backbone.mean.flatten(), torch.tensor(IMAGENET_MEAN))
    torch.testing.assert_close(backbone.std.flatten(), torch.tensor(IMAGENET_STD))


@torch.no_grad()
@pytest.mark.parametrize("make", [tiny_dino, tiny_clip, tiny_vit])
def test_rebuilding_needs_the_spec_and_the_state_but_not_the_folder(
    tmp_path: Path, make: Any
) -> None:
    backbone = build_backbone(store(make(), tmp_path / "model"), None).eval()
    shutil.rmtree(tmp_path / "model")
    again = rebuild_backbone(backbone.spec, backbone.state_dict()).eval()
    again.load_state_dict(backbone.state_dict())
    x = torch.rand(2, 3, 28, 28)
    assert torch.equal(again(x), backbone(x))
    assert again.out_features == backbone.out_features
    assert again.spec == backbone.spec


@torch.no_grad()
def test_of_a_text_image_model_the_image_half_is_used(tmp_path: Path) -> None:
    model, x = tiny_clip(), torch.rand(2, 3, 28, 28)
    backbone = build_backbone(store(model, tmp_path / "clip"), None).eval()
    assert torch.equal(backbone(x), model.vision_model(pixel_values=normalised(x)).pooler_output)
    assert not any("text" in name for name in backbone.state_dict())


@torch.no_grad()
def test_a_model_stored_in_half_precision_computes_in_float32(tmp_path: Path) -> None:
    model = tiny_dino().half()
    backbone = build_backbone(store(model, tmp_path / "dino"), None).eval()
    again = rebuild_backbone(backbone.spec)
    x = torch.rand(2, 3, 28, 28)
    assert {p.dtype for b in (backbone, again) for p in b.parameters()} == {torch.float32}
    right = model.float()(pixel_values=normalised(x)).pooler_output
    torch.testing.assert_close(backbone(x), right)


@torch.no_grad()
def test_a_pooler_the_file_lacks_is_passed_by(tmp_path: Path) -> None:
    """A ViT classifier has none; transformers fills in random weights, which are of no use."""
    vit = tiny_vit()
    classifier = transformers.ViTForImageClassification(vit.config).eval()
    classifier.vit.load_state_dict(vit.state_dict(), strict=False)
    backbone = build_backbone(store(classifier, tmp_path / "vit"), None).eval()
    x = torch.rand(2, 3, 28, 28)
    assert torch.equal(backbone(x), vit(pixel_values=normalised(x)).last_hidden_state[:, 0])
    again = rebuild_backbone(backbone.spec).eval()
    again.load_state_dict(backbone.state_dict())
    assert torch.equal(again(x), backbone(x))


@torch.no_grad()
def test_a_convolutional_model_is_pooled_over_positions(tmp_path: Path) -> None:
    config = transformers.ResNetConfig(
        embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], layer_type="basic"
    )
    model = transformers.ResNetModel(config).eval()
    backbone = build_backbone(store(model, tmp_path / "resnet"), None).eval()
    x = torch.rand(2, 3, 32, 32)
    expected = model(pixel_values=normalised(x)).last_hidden_state.mean((2, 3))
    torch.testing.assert_close(backbone(x), expected)
    assert backbone.out_features == 8


@torch.no_grad()
def test_from_scratch_keeps_the_architecture_and_statistics_only(tmp_path: Path) -> None:
    place = store(tiny_dino(), tmp_path / "dino")
    trained, scratch = build_backbone(place, None).eval(), build_backbone(place, "none").eval()
    assert not scratch.pretrained
    torch.testing.assert_close(scratch.mean, trained.mean)
    x = torch.rand(2, 3, 28, 28)
    assert scratch(x).shape == trained(x).shape
    assert not torch.allclose(scratch(x), trained(x))


def test_a_folder_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(
        UserError, match=r"^hf:/no/such/folder is no model in a folder or on the hub"
    ) as caught:
        build_backbone("hf:/no/such/folder", None)
    assert "\n" not in str(caught.value)


def test_a_hub_id_without_a_network_is_one_sentence() -> None:
    with pytest.raises(
        UserError, match=r"^hf:facebook/dinov2-small is no model in a folder or on the hub"
    ) as caught:
        build_backbone("hf:facebook/dinov2-small", None)
    assert "\n" not in str(caught.value)


def test_a_model_of_text_is_refused(tmp_path: Path) -> None:
    config = transformers.BertConfig(vocab_size=9, intermediate_size=8, **SMALL)
    place = store(transformers.BertModel(config), tmp_path / "bert")
    with pytest.raises(UserError, match="hf: bert is not an image model"):
        build_backbone(place, None)


def test_a_weights_file_beside_an_hf_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="an hf: backbone brings its own"):
        build_backbone(f"hf:{tmp_path}", "some.pt")


def test_without_the_extra_the_error_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    spec = json.dumps({"name": "hf:x", "config": {"model_type": "dinov2"}})
    with pytest.raises(UserError, match=r"extra 'hf'.: pip install transformers"):
        build_backbone(f"hf:{tmp_path}", None)
    with pytest.raises(UserError, match=r"extra 'hf'.: pip install transformers"):
        rebuild_backbone(spec)


@pytest.mark.parametrize("make", [tiny_dino, tiny_clip, tiny_vit])
def test_a_network_larger_than_its_stored_tensors_is_refused_at_once(
    tmp_path: Path, make: Any
) -> None:
    backbone = build_backbone(store(make(), tmp_path / "model"), None)
    tensors = backbone.state_dict()
    for name, value in (
        ("num_hidden_layers", 10**9),
        ("hidden_size", 2**40),
        ("hidden_size", 2**19),
        ("num_hidden_layers", len(tensors) - 1),
    ):
        spec = json.loads(backbone.spec)
        spec["config"][name] = value
        with pytest.raises(UserError, match=rf"{name} of the backbone|size of the backbone"):
            rebuild_backbone(json.dumps(spec), tensors)
