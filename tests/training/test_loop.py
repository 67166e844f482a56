"""The loop's own promises: schedule, groups, divergence, precision, views of a batch."""

import logging
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import unida
from tests.tasks import QUICK, Task
from unida.config import OptimConfig
from unida.errors import UserError
from unida.methods import METHODS
from unida.methods.base import FeatureExtractor, Method
from unida.methods.san import SAN
from unida.methods.source_only import SourceOnly
from unida.models.backbones.small_cnn import SmallCNN
from unida.pipeline import check_config, run_adaptation
from unida.training.optimizer import learning_rate
from unida.training.run_folder import RunFolder
from unida.types import Batch


def test_the_learning_rate_follows_the_schedule_named_in_the_config() -> None:
    halfway = {"inverse_decay": 0.0026084743, "cosine": 0.005, "constant": 0.01}
    for schedule, lr in halfway.items():
        config = OptimConfig(lr=0.01, steps=100, schedule=schedule)
        assert learning_rate(config, 0) == 0.01
        assert learning_rate(config, 50) == pytest.approx(lr, abs=1e-11)


def watch(monkeypatch: pytest.MonkeyPatch, recorded: list[Any]) -> None:
    """Records the optimiser groups of the next run."""
    original = torch.optim.SGD

    class Noted(original):  # type: ignore[misc, valid-type]
        def __init__(self, groups: list[dict[str, Any]], **options: Any) -> None:
            recorded.extend({g["name"]: g["factor"] for g in groups}.items())
            super().__init__(groups, **options)

    monkeypatch.setattr(torch.optim, "SGD", Noted)


@pytest.mark.parametrize(("given", "factor"), [({}, 1.0), ({"backbone_lr": 0.3}, 0.3)])
def test_parts_have_their_own_learning_rates(
    digits: Task,
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, float],
    factor: float,
) -> None:
    recorded: list[Any] = []
    watch(monkeypatch, recorded)
    run_adaptation(digits.config(out, steps=1, settings=("projection_lr=0.2",), **given))
    assert dict(recorded) == {"backbone": factor, "projection": 0.2, "classifier": 1.0}


def test_a_pretrained_backbone_learns_slowly(
    digits: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save(SmallCNN().state_dict(), tmp_path / "w.pt")
    recorded: list[Any] = []
    watch(monkeypatch, recorded)
    run_adaptation(digits.config(tmp_path / "run", steps=1, weights=str(tmp_path / "w.pt")))
    assert dict(recorded)["backbone"] == 0.03


@pytest.mark.parametrize(
    ("weights", "batch_norm", "kept"),
    [
        (True, "auto", True),
        (True, "batch", False),
        (True, "stored", True),
        (False, "auto", False),
        (False, "stored", True),
    ],
)
def test_statistics_of_batch_norm_follow_the_option(
    digits: Task, tmp_path: Path, weights: bool, batch_norm: Any, kept: bool
) -> None:
    torch.manual_seed(0)
    before = SmallCNN().state_dict()
    torch.save(before, tmp_path / "w.pt")
    given = {"weights": str(tmp_path / "w.pt")} if weights else {}
    model = run_adaptation(digits.config(tmp_path / "run", steps=2, batch_norm=batch_norm, **given))
    after = model.method.backbone.net.state_dict()
    means = [name for name in after if name.endswith("running_mean")]
    assert means
    for name in means:
        start = before[name] if weights else torch.zeros_like(after[name])
        assert torch.equal(after[name], start) == kept, name
    assert not torch.equal(after["features.1.weight"], before["features.1.weight"])


def test_what_a_method_set_to_rest_rests(digits: Task, tmp_path: Path) -> None:
    before = SmallCNN().state_dict()
    torch.save(before, tmp_path / "w.pt")
    config = digits.config(tmp_path / "run", steps=2, weights=str(tmp_path / "w.pt"), method="dcc")
    after = run_adaptation(config).method.backbone.net.state_dict()
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert "maps.0.weight" in changed
    assert not {f"maps.1.{name}" for name in ("weight", "bias", "running_mean")} & changed


class Exploding(SAN):
    """Gives a loss that is no number from step 12 on."""

    def losses(self, batch: Batch) -> dict[str, torch.Tensor]:
        terms = super().losses(batch)
        return terms | {"ce": terms["ce"] * (math.nan if batch.step >= 12 else 1)}


def test_a_diverged_run_stops_by_name_and_keeps_its_last_good_checkpoint(
    digits: Task, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "san", Exploding)
    with pytest.raises(UserError, match="diverged at step 12: loss, ce, "):
        run_adaptation(digits.config(out))
    state, _ = RunFolder(out).load_state()
    assert state is not None
    assert state["step"] == 10
    assert all(torch.isfinite(value).all() for value in state["model"].values())


def test_a_run_is_not_resumed_on_other_images(
    digits: Task, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(digits.target, tmp_path / "target")
    config = digits.config(out, target=str(tmp_path / "target"))
    with monkeypatch.context() as patch:
        patch.setitem(METHODS, "san", Exploding)
        with pytest.raises(UserError, match="diverged"):
            run_adaptation(config)
    next((tmp_path / "target").rglob("*.png")).unlink()
    with pytest.raises(
        UserError, match=r"not those of the checkpoint \(n_target was \d+, is \d+\)"
    ):
        run_adaptation(config, resume=True)


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        ("source/0", "source/1", "(other contents of the source)"),
        ("source/3", "source/4", "(other classes of the source, other paths of the source)"),
        ("target/0/5.png", "target/9/5.png", "(other contents of the target)"),
    ],
)
def test_a_run_is_not_resumed_on_as_many_other_images(
    digits: Task,
    out: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: str,
    second: str,
    named: str,
) -> None:
    for role, place in (("source", digits.source), ("target", digits.target)):
        for folder in place.iterdir():
            (tmp_path / role / folder.name).mkdir(parents=True)
            for number, path in enumerate(sorted(folder.iterdir())):
                shutil.copy(path, tmp_path / role / folder.name / f"{number}.png")
    places = {role: str(tmp_path / role) for role in ("source", "target")}
    config = digits.config(out, **places)
    with monkeypatch.context() as patch:
        patch.setitem(METHODS, "san", Exploding)
        with pytest.raises(UserError, match="diverged"):
            run_adaptation(config)
    kept = (out / "state.pt").read_bytes()
    (tmp_path / first).rename(tmp_path / "between")
    if (tmp_path / second).exists():
        (tmp_path / second).rename(tmp_path / first)
    (tmp_path / "between").rename(tmp_path / second)
    with pytest.raises(UserError, match=re.escape(f"not those of the checkpoint {named}: bring")):
        run_adaptation(config, resume=True)
    assert (out / "state.pt").read_bytes() == kept


def test_a_checkpoint_without_a_fingerprint_is_resumed_with_a_notice(
    digits: Task, out: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config, run = digits.config(out), RunFolder(out)
    with monkeypatch.context() as patch:
        patch.setitem(METHODS, "san", Exploding)
        with pytest.raises(UserError, match="diverged"):
            run_adaptation(config)
    state, _ = run.load_state()
    assert state is not None
    del state["images"]
    run.save_state(state)
    caplog.set_level(logging.INFO, "unida")
    run_adaptation(config, resume=True)
    assert caplog.text.count("of an earlier version: its images are not compared") == 1


class RecordsBatches(SAN):
    """Keeps the batches of a run."""

    recorded: list[Batch] = []  # noqa: RUF012

    def losses(self, batch: Batch) -> dict[str, torch.Tensor]:
        self.recorded.append(batch)
        return super().losses(batch)


def test_a_batch_has_the_views_the_method_requires(
    digits: Task, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "san", RecordsBatches)
    RecordsBatches.recorded.clear()
    run_adaptation(digits.config(out, steps=2))
    first, second = RecordsBatches.recorded
    assert first.source_views[0].shape == (8, 3, 16, 16)
    assert len(first.target_views) == 2
    assert not torch.equal(first.target_views[0], first.target_views[1])
    assert not torch.equal(first.target_index, second.target_index)
    for view in (*first.source_views, *first.target_views):
        assert 0 <= view.min() <= view.max() <= 1


def test_domains_go_through_batch_norm_apart(digits: Task, out: Path) -> None:
    """FINDINGS §4: one forward a domain and view, so three updates of the running averages."""
    model = unida.adapt(digits.source, digits.target, out, **(QUICK | {"steps": 4}))
    counts = {
        int(value)
        for name, value in model.method.state_dict().items()
        if name.startswith("backbone") and name.endswith("num_batches_tracked")
    }
    assert counts == {3 * 4}


def test_bf16_trains_and_the_model_predicts_in_float32(digits: Task, out: Path) -> None:
    model = unida.adapt(
        digits.source, digits.target, out, **(QUICK | {"precision": "bf16", "steps": 3})
    )
    assert model.method.backbone.dtype is None
    scores = model.score(digits.target)[1]
    again = unida.load(out, "cpu").score(digits.target)[1]
    # The last bits hang on where in memory the weights lie; bf16 would differ by 1e-3 and more.
    assert scores.unknown_score == pytest.approx(again.unknown_score, rel=1e-4, abs=1e-5)


class RecordsFeatures(SourceOnly):
    """Keeps the target's features, and the arithmetic of its steps."""

    refresh_every = 2
    recorded: list[torch.Tensor] = []  # noqa: RUF012
    dtypes: set[torch.dtype | None] = set()  # noqa: RUF012

    def refresh(self, extract: FeatureExtractor, step: int) -> None:
        self.recorded.append(extract("target"))

    def losses(self, batch: Batch) -> dict[str, torch.Tensor]:
        self.dtypes.add(self.backbone.dtype)
        return super().losses(batch)


def test_a_refresh_gets_features_in_full_precision(
    digits: Task, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "source_only", RecordsFeatures)
    RecordsFeatures.recorded.clear()
    options = QUICK | {"method": "source_only", "precision": "bf16", "steps": 3}
    model = unida.adapt(digits.source, digits.target, out, **options)
    assert RecordsFeatures.dtypes == {torch.bfloat16}
    assert len(RecordsFeatures.recorded) == 3
    features = torch.from_numpy(model.score(digits.target)[1].features)
    torch.testing.assert_close(RecordsFeatures.recorded[-1], features, rtol=1e-5, atol=1e-6)
    with model.method.backbone.precision(torch.bfloat16):
        low = torch.from_numpy(model.score(digits.target)[1].features)
    assert (low - features).abs().max() > 1e-3  # so the test detects it


@pytest.mark.gpu
def test_cpu_and_gpu_agree_on_the_first_steps(digits: Task, tmp_path: Path) -> None:
    losses = []
    for device in ("cpu", "cuda"):
        out = tmp_path / device
        run_adaptation(digits.config(out, device=device, precision="fp32", steps=5))
        losses.append(RunFolder(out).metrics.read_text().split('"loss": ')[1].split(",")[0])
    assert float(losses[0]) == pytest.approx(float(losses[1]), rel=1e-3)


def test_the_contract_has_no_abstract_surprise() -> None:
    assert Method.__abstractmethods__ == {"losses", "predict"}


def test_paths_of_a_run_are_absolute(digits: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(digits.source)
    config = check_config(digits.config(Path("run"), weights="w.pt", cache_dir="kept"))
    here = {digits.source / name for name in ("run", "w.pt", "kept")}
    assert {
        Path(p or "") for p in (config.output.out, config.model.weights, config.data.cache_dir)
    } == here
    assert check_config(digits.config(Path("run"), weights="none")).model.weights == "none"


@pytest.mark.parametrize("frozen", [True, False])
def test_a_whole_network_on_a_cpu_is_warned_of(
    digits: Task, out: Path, caplog: pytest.LogCaptureFixture, frozen: bool
) -> None:
    caplog.set_level("INFO", logger="unida")
    network = {"backbone": "resnet18", "weights": "none", "cache_dir": str(out.parent / "cache")}
    run_adaptation(digits.config(out, steps=1, frozen=frozen, **network))
    assert ("--frozen is faster" in caplog.text) != frozen
    assert ("Embedding 144 images" in caplog.text) == frozen
