"""SAN: the decision, the rows of its ablation, its settings."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.methods.toys import SIZES, build, noise, predicted_labels, train
from tests.tasks import Task, assert_alike
from unida.config import from_mapping
from unida.data.augmentations import WEAK_VIEW
from unida.errors import UserError
from unida.losses import all_in_one, info_nce, one_vs_all, open_entropy, soft_contrastive
from unida.methods.san import AUTO_FROM_SCRATCH, AUTO_PRETRAINED, SAN, SANConfig
from unida.model import load
from unida.models.backbones import build_backbone
from unida.models.heads import AllInOne, ClosedAndOpen
from unida.pipeline import run_adaptation
from unida.types import Sizes

RELEASED = {"contrast": "released", "third": "sigmoid", "head": "hashed"}
ABLATION: dict[str, dict[str, Any]] = {
    "the default": {},
    "without SCL": {"contrast": "none"},
    "CL for SCL": {"contrast": "info_nce"},
    "without AIO": {"classifier": "closed_and_open"},
    "without both": {"classifier": "closed_and_open", "contrast": "none"},
    "as released": RELEASED,
    "as printed": {"contrast": "paper", "third": "log", "head": "linear", "entropy": 0},
}
rows = pytest.mark.parametrize("settings", ABLATION.values(), ids=ABLATION)


# --- the decision


def images(n: int) -> torch.Tensor:
    return torch.rand(n, 3, 16, 16)


def labels_on(logits: torch.Tensor, **settings: Any) -> list[int | str]:
    method = build("san", Sizes(logits.shape[2], 40, 24, 6, 8), **settings)
    method.classifier.forward = lambda z: (logits[:, 1], logits)
    return predicted_labels(method.eval().predict(images(len(logits))))


def test_the_largest_of_all_outputs_decides() -> None:
    g = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(300, 2, 5, generator=g)
    largest = logits.flatten(1).softmax(1).argmax(1).tolist()  # "is not" first, then "is"
    expected = ["unknown" if i < 5 else i - 5 for i in largest]
    assert labels_on(logits) == expected
    assert {*expected} == {"unknown", 0, 1, 2, 3, 4}


def test_the_pair_of_the_most_likely_class_decides_where_asked() -> None:
    g = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(300, 2, 5, generator=g)
    best = logits[:, 1].argmax(1)
    rejects = logits[range(300), 0, best] >= logits[range(300), 1, best]
    expected = ["unknown" if r else int(k) for r, k in zip(rejects, best, strict=True)]
    assert labels_on(logits, score="pair") == expected != labels_on(logits)


def test_the_decisions_of_methods_13_5() -> None:
    check = [[[0.2, -0.3, 0.5], [1.0, 0.0, -0.5]], [[0.1, 0.4, -0.2], [0.3, -0.6, 0.8]]]
    ill_posed = [[2.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    assert labels_on(torch.tensor([*check, ill_posed])) == [0, 2, "unknown"]


@pytest.mark.parametrize("value", [0.0, -3.5, 1e30])
def test_ties_are_unknown(value: float) -> None:
    tie = torch.full((2, 2, 3), value)
    tie[1, :, 1] = value + abs(value) + 1  # "is 1" and "is not 1" lead together
    assert labels_on(tie) == ["unknown", "unknown"]


def test_all_outputs_compete_also_where_training_keeps_few() -> None:
    """The softmax of L_AIO is over `top_n` classes; the decision is not."""
    logits = torch.zeros(1, 2, 30)
    logits[0, 1, 0] = 1
    logits[0, 0, 29] = 2
    assert labels_on(logits) == ["unknown"]


def test_without_aio_the_closed_head_picks_and_its_pair_decides() -> None:
    method = build("san", Sizes(3, 40, 24, 6, 8), classifier="closed_and_open")
    closed = torch.tensor([[2.0, 0, 0], [0, 0.1, 0]])
    pairs = torch.tensor([[[0.2, -0.3, 0.5], [1, 0, -0.5]], [[0.1, 0.4, -0.2], [0.3, -0.6, 0.8]]])
    method.classifier.forward = lambda z: (closed, pairs)
    outputs = method.eval().predict(images(2))
    assert predicted_labels(outputs) == [0, "unknown"]
    expected = torch.tensor([0.310026, 0.731059])
    torch.testing.assert_close(outputs.unknown_score.sigmoid(), expected, atol=1e-6, rtol=0)


# --- the rows of the ablation


@rows
def test_losses_are_finite_and_every_parameter_learns(settings: dict[str, Any]) -> None:
    method = build("san", **settings)
    assert train(method) == {name for name, _ in method.named_parameters()}
    outputs = method.eval().predict(images(3))
    assert outputs.probs.shape == (3, 4)
    assert outputs.unknown_score.isfinite().all()
    assert outputs.features.shape == (3, 128)


@rows
def test_two_classes_and_a_batch_of_one_class(settings: dict[str, Any]) -> None:
    method = build("san", Sizes(2, 40, 24, 6, 8), **settings)
    train(method)
    batch = noise(method, 0)
    batch.source_labels.fill_(1)
    assert all(term.isfinite() for term in method.losses(batch).values())


@pytest.mark.parametrize(
    ("row", "names"),
    [
        ("the default", {"ce", "aio", "scl", "entropy"}),
        ("without SCL", {"ce", "aio", "entropy"}),
        ("CL for SCL", {"ce", "aio", "scl", "entropy"}),
        ("without AIO", {"ce", "open", "scl", "entropy"}),
        ("without both", {"ce", "open", "entropy"}),
        ("as released", {"ce", "aio", "scl", "entropy"}),
        ("as printed", {"ce", "aio", "scl"}),
    ],
)
def test_each_row_has_the_terms_it_names(row: str, names: set[str]) -> None:
    method = build("san", **ABLATION[row])
    assert method.losses(noise(method, 0)).keys() == names
    assert isinstance(method.classifier, ClosedAndOpen if "open" in names else AllInOne)


@pytest.mark.parametrize("settings", [RELEASED, ABLATION["CL for SCL"], {}], ids=str)
def test_the_losses_are_those_of_the_setting(settings: dict[str, Any]) -> None:
    weights = {"lam": 0.6, "beta": 0.7, "third_weight": 1.4, "entropy": 0.4}
    method = build("san", **weights, **settings)
    batch = noise(method, 0)
    with torch.no_grad():
        found = method.losses(batch)
        y = [method.backbone(v) for v in (*batch.source_views, *batch.target_views)]
        z = [method.projection(features) for features in y]
        (_, source), (_, target) = method.classifier(z[0]), method.classifier(z[1])
        contrast = method.config.contrast
        scl = (
            info_nce(torch.cat(z[1:]))
            if contrast == "info_nce"
            else soft_contrastive(torch.cat(y[1:]), torch.cat(z[1:]), contrast, bandwidth_z=0.3)
        )
    labels = batch.source_labels
    expected = {
        "ce": F.cross_entropy(source[:, 1], labels),
        "aio": 0.7 * all_in_one(source, labels, third="sigmoid", third_weight=1.4),
        "scl": 0.6 * scl,
        "entropy": 0.4 * open_entropy(target),
    }
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)


def test_without_aio_the_losses_are_ovanet_s_on_z() -> None:
    method = build("san", classifier="closed_and_open", entropy=0.4, beta=0.1)
    batch = noise(method, 0)
    with torch.no_grad():
        found = method.losses(batch)
        z = [
            method.projection(method.backbone(view))
            for view in (*batch.source_views, *batch.target_views)
        ]
        closed, pairs = method.classifier(z[0])
        _, target_pairs = method.classifier(z[1])
    labels = batch.source_labels
    torch.testing.assert_close(found["ce"], F.cross_entropy(closed, labels))
    torch.testing.assert_close(found["open"], one_vs_all(pairs, labels))  # β has no effect
    torch.testing.assert_close(found["entropy"], 0.4 * open_entropy(target_pairs))


def test_without_aio_rows_of_the_open_head_keep_unit_length() -> None:
    method = build("san", classifier="closed_and_open")
    train(method)
    lengths = method.classifier.open.weight.norm(dim=1)
    torch.testing.assert_close(lengths, torch.ones(8))


def test_the_released_losses_add_up_to_the_total_of_methods_13_5() -> None:
    """Weights of the Office line in the authors' README."""
    logits = torch.tensor(
        [[[0.2, -0.3, 0.5], [1.0, 0.0, -0.5]], [[0.1, 0.4, -0.2], [0.3, -0.6, 0.8]]],
        dtype=torch.float64,
    )
    labels = torch.tensor([0, 2])
    f0, f1 = [[0.0, 0], [1, 0], [0, 2]], [[0.1, 0], [1, 0.1], [0, 1.9]]
    z0 = [[0.0, 0, 1], [0.5, 0, 0], [0, 1, 0]]
    z1 = [[0.0, 0, 0.8], [0.5, 0.1, 0], [0.1, 1, 0]]
    y, z = (torch.tensor(v, dtype=torch.float64) for v in (f0 + f1, z0 + z1))
    c = from_mapping(
        SANConfig, {"lam": 0.6, "beta": 0.7, "third_weight": 1.4, "entropy": 0.4} | RELEASED, "san"
    )
    assert c.contrast == "released"
    ce = F.cross_entropy(logits[:, 1], labels)
    aio = all_in_one(logits, labels, 20, c.third, third_weight=c.third_weight)
    scl = soft_contrastive(y, z, c.contrast, c.alpha)
    entropy = open_entropy(logits)
    assert ce.item() == pytest.approx(0.540621802, abs=1e-9)
    assert scl.item() == pytest.approx(0.5583323779, abs=1e-9)
    total = ce + c.beta * aio + c.lam * scl + c.entropy * entropy
    assert total.item() == pytest.approx(2.100759145, abs=2e-9)


@rows
def test_a_stored_model_of_the_row_predicts_the_same(
    digits: Task, out: Path, settings: dict[str, Any]
) -> None:
    config = digits.config(out, steps=3, settings=settings)
    trained = run_adaptation(config)
    pictures = sorted(digits.target.rglob("*.png"))[::10]
    assert_alike(load(out, "cpu").predict(pictures), trained.predict(pictures))


# --- settings


def test_the_projection_learns_slower_and_every_parameter_is_in_one_group() -> None:
    for settings in ABLATION.values():
        method = build("san", projection_lr=0.03, **settings)
        groups = {group.name: group for group in method.head_groups()}
        assert groups["projection"].lr == 0.03
        assert groups["classifier"].lr == 1
        grouped = [id(p) for g in groups.values() for p in g.parameters]
        backbone = [id(p) for p in method.backbone.parameters()]
        assert sorted(grouped + backbone) == sorted(id(p) for p in method.parameters())


@pytest.mark.parametrize(
    ("settings", "shapes"),
    [
        ({}, [(256, 128), (128, 256)]),
        ({"hidden": 0.5}, [(64, 128), (128, 64)]),
        ({"width": 32}, [(64, 128), (32, 64)]),
        ({"width": 32, "hidden": 1.5}, [(48, 128), (32, 48)]),
        ({"width": 2, "hidden": 0.1}, [(1, 128), (2, 1)]),
    ],
)
@pytest.mark.parametrize("row", ["the default", "without AIO", "as printed"])
def test_z_and_the_hidden_layer_have_the_configured_width(
    row: str, settings: dict[str, Any], shapes: list[tuple[int, int]]
) -> None:
    method = build("san", **settings, **ABLATION[row])
    weights = [p for p in method.projection.parameters() if p.ndim == 2]
    assert [tuple(w.shape) for w in weights] == shapes
    assert train(method) == {name for name, _ in method.named_parameters()}
    assert method.eval().predict(images(3)).features.shape == (3, shapes[1][0])


def test_z_is_no_wider_than_512_by_default() -> None:
    wide = build_backbone("resnet50", "none")
    assert wide.out_features == 2048
    for given, width in (({}, 512), ({"width": 700}, 700), ({"width": 0}, 2048)):
        method = SAN(from_mapping(SANConfig, given, "san"), wide, SIZES)
        assert method.projection.out_features == width


@pytest.mark.parametrize("pretrained", [True, False])
def test_auto_settings_follow_from_the_weights(pretrained: bool) -> None:
    backbone = build_backbone("small_cnn", None)
    backbone.pretrained = pretrained
    usual = AUTO_PRETRAINED if pretrained else AUTO_FROM_SCRATCH
    for given in ({}, {"lam": 0.0, "projection_lr": 0.5}):
        method = SAN(from_mapping(SANConfig, given, "san"), backbone, SIZES)
        built = {name: getattr(method.config, name) for name in usual}
        assert built == usual | given
        assert method.head_groups()[0].lr == built["projection_lr"]


def test_few_features_that_mean_something_get_a_wide_projection() -> None:
    for pretrained, width in ((True, 512), (False, 128)):
        backbone = build_backbone("small_cnn", None)
        backbone.pretrained = pretrained
        method = SAN(SANConfig(), backbone, SIZES)
        assert method.projection.out_features == width


@pytest.mark.parametrize("rate", [1, 0.01])
def test_h_learns_at_its_own_rate(rate: float) -> None:
    groups = {group.name: group.lr for group in build("san", projection_lr=rate).head_groups()}
    assert groups == {"projection": rate, "classifier": 1}


def test_target_views_are_two_strong_ones() -> None:
    method = build("san", crop=0.55)
    assert method.source_views == (WEAK_VIEW,)
    assert [view.least_area for view in method.target_views] == [0.55, 0.55]


def test_on_a_frozen_backbone_views_are_weak() -> None:
    method = build("san", dataclasses.replace(SIZES, frozen=True))
    assert method.target_views == (WEAK_VIEW, WEAK_VIEW)


FORMS = "scaled, paper, released, info_nce, none"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"lam": -1}, "lam is -1.0; allowed: from 0 to 1000."),
        ({"beta": "nan"}, "beta is nan; allowed: from 0 to 1000."),
        ({"alpha": 1.5}, "alpha is 1.5; allowed: from 0 to 1."),
        ({"contrast": "soft"}, f"contrast is 'soft'; allowed: {FORMS}."),
        ({"classifier": "open"}, "classifier is 'open'; allowed: all_in_one, closed_and_open."),
        ({"third": "tanh"}, "third is 'tanh'; allowed: log, sigmoid."),
        ({"third_weight": -0.5}, "third_weight is -0.5; allowed: from 0 to 1000."),
        ({"top_n": 1}, "top_n is 1; allowed: from 2 to 16384."),
        ({"top_n": "many"}, "top_n is 'many'; allowed: a value of type int."),
        ({"entropy": -1}, "entropy is -1.0; allowed: from 0 to 1000."),
        ({"head": "deep"}, "head is 'deep'; allowed: linear, hashed."),
        ({"width": -1}, "width is -1; allowed: from 0 to 16384."),
        ({"hidden": 0}, "hidden is 0.0; allowed: from 0.1 to 10."),
        ({"projection_lr": -1}, "projection_lr is -1.0; allowed: from 0 to 100."),
        ({"bandwidth": 0}, "bandwidth is 0.0; allowed: from 0.01 to 100."),
        ({"crop": 0}, "crop is 0.0; allowed: from 0.01 to 1."),
        ({"crop": 1.1}, "crop is 1.1; allowed: from 0.01 to 1."),
    ],
)
def test_a_bad_setting_is_one_sentence(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError) as error:
        from_mapping(SANConfig, settings, "san")
    assert str(error.value) == sentence


def test_a_misspelt_setting_names_those_there_are() -> None:
    with pytest.raises(
        UserError, match="setting of san 'lamda' does not exist; did you mean 'lam'"
    ):
        from_mapping(SANConfig, {"lamda": 1}, "san")
