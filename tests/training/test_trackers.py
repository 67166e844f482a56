"""Experiment trackers get every step once, the final estimates and the report."""

import json
import os
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker

from tests.tasks import Task
from unida.config import RunConfig, to_arguments
from unida.errors import UserError
from unida.estimator import UniversalAdapter
from unida.pipeline import run, run_adaptation
from unida.training.run_folder import RunFolder
from unida.training.trackers import final_values


class Recorder(GeneralTracker):  # type: ignore[misc]
    """A tracker that keeps what it gets in a class variable, as a server would."""

    name = "recorder"
    requires_logging_directory = True
    logged: ClassVar[list[tuple[int, dict[str, float]]]] = []
    options: ClassVar[list[dict[str, Any]]] = []
    files: ClassVar[list[str]] = []
    finished: ClassVar[int] = 0
    broken_from: ClassVar[float] = float("inf")
    killed_at: ClassVar[int | None] = None

    def __init__(self, project: str, folder: Path) -> None:
        super().__init__()
        assert project == "unida"
        self.folder = folder

    @property
    def tracker(self) -> "Recorder":
        return self

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        type(self).options.append(values)

    def log(self, values: dict[str, float], step: int | None = None, **kwargs: Any) -> None:
        assert step is not None
        if step >= self.broken_from:
            raise ConnectionError("the server is gone")
        type(self).logged.append((step, values))
        if step == self.killed_at:
            raise KeyboardInterrupt

    def log_artifact(self, path: str) -> None:
        type(self).files.append(path)

    def finish(self) -> None:
        type(self).finished += 1

    @classmethod
    def steps(cls, group: str = "train") -> list[int]:
        return [step for step, values in cls.logged if f"{group}/loss" in values]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> type[Recorder]:
    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "recorder", Recorder)
    for name, empty in (("logged", []), ("options", []), ("files", []), ("finished", 0)):
        monkeypatch.setattr(Recorder, name, empty)
    return Recorder


@pytest.fixture
def config(digits: Task, out: Path) -> RunConfig:
    return digits.config(out, method="source_only", tracker="recorder")


class StopError(Exception):
    pass


def stop_at(step: int) -> Any:
    def on_checkpoint(done: int, method: Any) -> None:
        if done == step:
            raise StopError

    return on_checkpoint


def test_a_tracker_gets_losses_estimates_and_the_report(
    recorder: type[Recorder], config: RunConfig
) -> None:
    run_adaptation(config.replace(report=True))
    folder = RunFolder(config.output.out)
    lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    assert recorder.logged[:-1] == [
        (line.pop("step"), {f"train/{k}": v for k, v in line.items()}) for line in lines
    ]
    assert {"train/loss", "train/lr", "train/steps_per_second"} <= set(recorder.logged[0][1])
    step, final = recorder.logged[-1]
    assert step == 20
    expected = json.loads(folder.diagnostics.read_text())["estimates"]
    assert final["final/unknown"] == expected["unknown"]
    assert 0 < final["final/confidence"] <= 1
    assert recorder.files == [str(folder.report)]
    assert recorder.finished == 1
    (options,) = recorder.options
    assert (options["method"], options["steps"]) == ("source_only", 20)
    assert str(folder.path.parent) not in str(options)  # paths are nobody's business


def test_the_share_of_unknown_images_comes_with_its_interval(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    rule = {"name": "share", "threshold": 0.5, "share": 0.4, "interval": [0.2, 0.5]}
    text = json.dumps({"rules": {"share": rule}})
    save_file({"x": np.zeros(1)}, tmp_path / "model.safetensors", metadata={"unida": text})
    assert final_values(RunFolder(tmp_path)) == {
        "unknown_share": 0.4,
        "unknown_share_low": 0.2,
        "unknown_share_high": 0.5,
    }


def test_a_resumed_run_logs_no_step_twice(
    recorder: type[Recorder], config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on from step 10, after step 15 was logged."""
    whole = config.replace(checkpoint_every=10, log_every=5)
    monkeypatch.setattr(recorder, "killed_at", 15)
    with pytest.raises(KeyboardInterrupt):
        run_adaptation(whole)
    assert recorder.steps() == [5, 10, 15]
    monkeypatch.setattr(recorder, "killed_at", None)
    run_adaptation(whole, resume=True)
    assert recorder.steps() == [5, 10, 15, 20]
    assert len(recorder.options) == 1
    assert recorder.finished == 2
    run_adaptation(whole, resume=True)  # finished already
    assert recorder.finished == 2
    assert len([values for _, values in recorder.logged if "final/unknown" in values]) == 1


def test_a_tracker_that_comes_later_gets_what_was_before(
    recorder: type[Recorder], config: RunConfig
) -> None:
    plain = config.replace(tracker=())
    with pytest.raises(StopError):
        run(plain, on_checkpoint=stop_at(20))
    assert recorder.logged == []
    run_adaptation(config, resume=True)
    assert recorder.steps() == [5, 10, 15, 20]


def test_a_finished_run_can_be_given_to_a_tracker(
    recorder: type[Recorder], config: RunConfig
) -> None:
    run_adaptation(config.replace(tracker=()))
    run_adaptation(config, resume=True)
    assert recorder.steps() == [5, 10, 15, 20]
    assert "final/unknown" in recorder.logged[-1][1]


def test_members_of_an_ensemble_follow_each_other(
    recorder: type[Recorder], config: RunConfig
) -> None:
    run_adaptation(config.replace(ensemble=2, frozen=True, steps=10))
    assert recorder.steps() == [5, 10]
    assert recorder.steps("member-1") == [15, 20]
    assert recorder.logged[-1][0] == 20


def test_a_tracker_that_fails_does_not_end_the_run(
    recorder: type[Recorder],
    config: RunConfig,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(recorder, "broken_from", 15)
    run_adaptation(config)
    assert recorder.steps() == [5, 10]
    assert RunFolder(config.output.out).done.exists()
    warnings = [r.message for r in caplog.records if "recorder" in r.message]
    assert len([text for text in warnings if "the server is gone" in text]) == 1


def test_one_that_does_not_start_is_one_sentence(
    recorder: type[Recorder], config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: Recorder) -> None:
        raise OSError("no space")

    monkeypatch.setattr(recorder, "start", start)
    with pytest.raises(UserError, match=r"tracker 'recorder' cannot be started \(OSError: no sp"):
        run_adaptation(config)


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_missing_package_is_one_sentence_before_images_are_read(
    name: str, tmp_path: Path, digits: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of that name, which wandb makes, is no package."""
    (tmp_path / name).mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(
        "unida.data.in_memory.read_source", lambda place: pytest.fail("images read")
    )
    with pytest.raises(UserError, match=rf"pip install 'unida\[{name}\]'"):
        run_adaptation(digits.config(tmp_path / "run", tracker=name))
    assert not (tmp_path / "run").exists()


def test_a_tracker_that_does_not_exist_is_named(digits: Task, out: Path) -> None:
    with pytest.raises(UserError, match=r"tracker 'tensorbord'.*'tensorboard'"):
        run_adaptation(digits.config(out, tracker=("tensorbord",)))


def test_an_adapter_without_a_folder_refuses_a_tracker() -> None:
    adapter = UniversalAdapter(steps=1, options={"tracker": "tensorboard"})
    pytest.importorskip("tensorboard")
    with pytest.raises(UserError, match="out="):
        adapter.fit(np.eye(4, dtype=np.float32), [0, 0, 1, 1])


def test_several_are_arguments_of_one_option() -> None:
    config = RunConfig.from_flat(tracker=["wandb", "mlflow"])
    assert to_arguments(config) == ["--tracker", "wandb", "mlflow"]


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home folder and working folder, in which a tracker must leave nothing."""
    home = tmp_path / "home"
    home.mkdir()
    for variable in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(variable, raising=False)
    for variable in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    yield home
    assert [str(p) for p in home.rglob("*") if p.is_file() and "unida" not in p.parts] == []
    assert not {"WANDB_DATA_DIR", "WANDB_CACHE_DIR", "MLFLOW_TRACKING_URI"} & set(os.environ)


def stopped_and_resumed(config: RunConfig) -> RunFolder:
    config = config.replace(report=True)
    with pytest.raises(StopError):
        run(config, on_checkpoint=stop_at(20))
    run(config, resume=True)
    return RunFolder(config.output.out)


def losses(run: RunFolder) -> dict[int, float]:
    lines = map(json.loads, run.metrics.read_text().splitlines())
    return {line["step"]: line["loss"] for line in lines}


def test_tensorboard_reads_every_step_once(config: RunConfig, at_home: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = stopped_and_resumed(config.replace(tracker=("tensorboard",)))
    read = EventAccumulator(str(folder.tracker / "tensorboard"))
    read.Reload()
    events = read.Scalars("train/loss")
    assert {e.step: pytest.approx(e.value) for e in events} == losses(folder)
    assert len(events) == 4
    assert [e.step for e in read.Scalars("final/unknown")] == [20]


@pytest.mark.slow
def test_mlflow_continues_its_run(config: RunConfig, at_home: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    folder = stopped_and_resumed(config.replace(tracker=("mlflow",)))
    place = folder.tracker / "mlflow" / "mlflow.db"
    client = mlflow.tracking.MlflowClient(f"sqlite:///{place}")
    (experiment,) = client.search_experiments(filter_string="name = 'unida'")
    (found,) = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(found.info.run_id, "train/loss")
    assert {m.step: pytest.approx(m.value) for m in history} == losses(folder)
    assert len(history) == 4
    assert found.data.params["method"] == "source_only"
    assert "final/confidence" in found.data.metrics
    assert [file.path for file in client.list_artifacts(found.info.run_id)] == ["report.html"]


@pytest.mark.slow
def test_wandb_is_offline_unless_told_otherwise(
    config: RunConfig, at_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setattr(urllib.request, "urlopen", lambda *a, **k: pytest.fail("network"))
    folder = stopped_and_resumed(config.replace(tracker=("wandb",)))
    parts = sorted((folder.tracker / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(parts) == 2
    assert len({part.name for part in parts}) == 1  # one run of wandb
    content = b"".join(part.read_bytes() for part in parts)
    assert content.count(b"final/unknown") >= 1
    staged = [path for path in folder.tracker.rglob("*") if path.is_file()]
    assert folder.report.read_bytes() in [path.read_bytes() for path in staged]


@pytest.mark.slow
def test_wandb_online_without_a_key_is_one_sentence(
    config: RunConfig, at_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "online")
    with pytest.raises(UserError, match="wandb login"):
        run_adaptation(config.replace(tracker=("wandb",)))
