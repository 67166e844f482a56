"""Presets are what they say, and what authors ran on a data set is used for it."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.methods.toys import SIZES, build, noise
from unida.bench.jobs import Job
from unida.config import RunConfig
from unida.errors import UserError
from unida.losses import all_in_one
from unida.methods.presets import PRESETS, configure, find_preset, preset_on
from unida.methods.san import SAN
from unida.models.backbones import build_backbone
from unida.protocols.sets import set_names
from unida.protocols.tasks import load_protocol
from unida.training.loop import resolve_auto
from unida.training.optimizer import build_optimizer, set_lr

OFFICE_HOME = {
    "lam": 0.6, "beta": 0.5, "third_weight": 1.2, "entropy": 0.1, "crop": 0.7, "sigma_y": 50.0,
    "near_rate": 1e4, "projection_lr": 0.01, "projection_momentum": False,
    "projection_decay": 5e-4, "contrast": "released", "third": "sigmoid", "head": "hashed",
}  # fmt: skip
"""The authors' line for Office-Home."""


def test_the_printed_san_has_the_printed_losses_and_layers() -> None:
    config = configure("san-paper")
    c = config.settings
    logits = torch.tensor(
        [[[0.2, -0.3, 0.5], [1.0, 0.0, -0.5]], [[0.1, 0.4, -0.2], [0.3, -0.6, 0.8]]],
        dtype=torch.float64,
    )
    loss = all_in_one(logits, torch.tensor([0, 2]), 20, c.third, third_weight=c.third_weight)
    assert loss.item() == pytest.approx(5.458581115, abs=1e-9)
    assert (c.contrast, c.head, c.entropy) == ("paper", "linear", 0)
    method = SAN(c, build_backbone("resnet50", "none"), SIZES)
    shapes = [tuple(p.shape) for p in method.projection.parameters() if p.ndim == 2]
    assert shapes == [(2048, 2048), (2048, 2048)]
    assert {group.lr for group in method.head_groups()} == {1}
    assert (config.model.batch_norm, config.optim.backbone_lr) == ("batch", 0.1)
    assert (config.decision.refine, config.decision.reject) == ("none", "own")
    assert config.data.holdout == 0


def test_the_released_san_on_a_data_set_is_the_authors_line() -> None:
    config = configure("san-released@office-home")
    settings = config.flat()["settings"]
    assert {name: settings[name] for name in OFFICE_HOME} == OFFICE_HOME
    assert (config.optim.batch, config.optim.steps, config.optim.lr) == (50, 10_000, 0.01)
    assert configure("san-released@visda", steps=7).optim.steps == 7
    assert configure("san-released@visda").settings.near_rate == 100


def test_the_settings_of_a_method_hold_for_its_presets_too() -> None:
    for name in ("uniot", "uniot-released"):
        c = configure(f"{name}@office-home").settings
        assert (c.K, c.mu, c.queue) == (150, 1.0, 4000)
    assert configure("uniot-released@office-home").settings.normalise_twice
    assert configure("glc@office-home").settings.lambda_psd == 1.5
    assert configure("glc@office-31").settings.lambda_psd == 0.3
    assert configure("glc@office-home", {"lambda_psd": 2}).settings.lambda_psd == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("san-released@office-hume", "office-home"),
        ("san-released@digits", "digits"),
        ("san-realesed@office-home", "did you mean 'san-released'"),
    ],
)
def test_a_preset_without_a_line_for_the_set_is_one_sentence(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        find_preset(name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("data", set_names())
def test_every_line_of_a_protocol_makes_a_run(data: str) -> None:
    protocol = load_protocol(data)
    for name in protocol.methods:
        preset = preset_on(name, protocol)
        config = configure(preset)
        settings, options = config.flat()["settings"], config.flat()
        assert {key: settings[key] for key in preset.settings} == dict(preset.settings)
        assert {key: options[key] for key in preset.options} == dict(preset.options)


def test_a_row_of_the_ablation_has_no_weight_that_was_chosen_for_what_it_lacks() -> None:
    backbone = build_backbone("small_cnn", None)
    backbone.pretrained = True
    usual = SAN(configure("san").settings, backbone, SIZES).config
    for name in ("san-no-aio", "san-info-nce"):
        method = SAN(configure(name).settings, backbone, SIZES)
        assert method.config.lam == 1 != usual.lam
    assert SAN(configure("san-no-scl").settings, backbone, SIZES).config.lam == usual.lam
    losses = {}
    for name in ("san-no-aio", "san-no-aio-no-scl"):
        method = build("san", **find_preset(name).settings)
        losses[name] = method.losses(noise(method, 0))
    assert losses["san-no-aio"].keys() - losses["san-no-aio-no-scl"].keys() == {"scl"}
    assert {"open", "entropy"} <= losses["san-no-aio-no-scl"].keys()


# --- in a bench


def of_job(**changes: Any) -> RunConfig:
    values = {"data": "office-home", "setting": "unda", "source": "Art", "target": "Clipart"}
    job = Job(**(values | {"entry": "glc", "seed": 0} | changes))
    return job.config(Path(), Path(), Path())


def test_a_bench_runs_what_the_authors_ran_unless_told_otherwise() -> None:
    assert of_job().settings.lambda_psd == 1.5
    assert of_job().optim.batch == 36, "the table's"
    assert of_job(entry="glc-released").optim.batch == 64
    assert of_job(entry="glc:lambda_psd=0.3").settings.lambda_psd == 0.3
    assert of_job(entry="glc-released", options={"batch": "12"}).optim.batch == 12
    assert (
        of_job(data="office-caltech10", source="amazon", target="dslr").settings.lambda_psd == 0.3
    )


def test_a_protocol_of_ones_own_may_have_settings(tmp_path: Path) -> None:
    text = 'domains = ["a", "b"]\nshared = ["x", "y"]\ntarget_private = ["z"]\n'
    (tmp_path / "own.toml").write_text(text + "[methods.glc.settings]\nrho = 0.5\n")
    own = {"data": str(tmp_path / "own.toml"), "setting": "oda", "source": "a", "target": "b"}
    assert of_job(**own).settings.rho == 0.5
    for bad, message in (
        ("[methods.glc.settings]\nroh = 0.5\n", "did you mean 'rho'"),
        ("[methods.glk.settings]\nrho = 0.5\n", "did you mean 'glc'"),
        ("[methods.glc]\nrho = 0.5\n", "settings, options"),
        ("[methods.glc.options]\nstepz = 5\n", "steps"),
        ("[methods.glc.settings]\nrho = [1]\n", "a number"),
    ):
        (tmp_path / "own.toml").write_text(text + bad)
        with pytest.raises(UserError, match=message):
            of_job(**own)


# --- the optimiser of the released code


def test_h_has_no_momentum_and_its_own_weight_decay_as_released() -> None:
    settings = {"projection_lr": 0.5, "projection_momentum": False, "projection_decay": 0.2}
    method = build("san", **settings)
    config = resolve_auto(configure(lr=0.1, schedule="constant"), method.backbone)
    optimizer = build_optimizer(method, config)
    (weight, *_) = method.projection.parameters()
    expected = weight.detach().clone()
    for step in range(3):
        for parameter in method.parameters():
            parameter.grad = torch.ones_like(parameter)
        set_lr(optimizer, config, step)
        optimizer.step()
        expected -= 0.05 * (1 + 0.2 * expected)
    torch.testing.assert_close(weight.detach(), expected)
    (linear, *_) = method.classifier.parameters()
    assert "momentum_buffer" in optimizer.state[linear]


def test_a_released_preset_keeps_the_methods_own_rule_and_refines_nothing() -> None:
    for name, preset in PRESETS.items():
        if name.endswith("-released"):
            config = configure(name)
            assert (config.decision.refine, config.decision.reject) == ("none", "own")
            assert config.method == preset.method == name.removesuffix("-released")
