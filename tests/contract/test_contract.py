"""What every method owes the loop, on real digits.

Each case is trained once, and all tests of it share that run; one more run, killed and resumed,
shows that a seed decides everything. `pytest -m gpu tests/contract` checks the methods on a CUDA
device, where there is one.
"""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tests.contract.runs import CASES, Trained, log_lines, make_config, run_killed, train
from tests.tasks import Task, assert_alike
from unida.bench.entries import BenchEntry
from unida.errors import UserError
from unida.methods import METHODS
from unida.model import load
from unida.pipeline import run_adaptation

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session", params=CASES, ids=lambda case: case.name)
def trained(
    request: pytest.FixtureRequest, digits: Task, tmp_path_factory: pytest.TempPathFactory
) -> Trained:
    """The run of a case; tests do not write to it."""
    return train(digits, tmp_path_factory.mktemp("contract") / "run", request.param)


def test_losses_stay_finite_and_a_run_is_complete(trained: Trained) -> None:
    logged = log_lines(trained.out)
    assert [line["step"] for line in logged] == [5, 10, 15, 20]
    assert all(np.isfinite(value) for line in logged for value in line.values())
    assert {path.name for path in trained.out.iterdir()} == {
        "config.json",
        "metrics.jsonl",
        "model.safetensors",
        "predictions.csv",
        "features.npz",
        "probabilities.npz",
        "diagnostics.json",
        "skipped.csv",
        "done",
    }


def test_every_parameter_gets_a_gradient(trained: Trained) -> None:
    assert trained.learnable
    assert trained.reached == trained.learnable


def test_killed_and_resumed_equals_uninterrupted(
    trained: Trained, digits: Task, tmp_path: Path
) -> None:
    """Two runs of one seed are therefore identical as well."""
    whole, broken = trained.out, tmp_path / "broken"
    config = make_config(digits, broken, trained.case)
    run_killed(config, 13)
    run_adaptation(config, resume=True)
    for name in ("model.safetensors", "predictions.csv"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes()
    ours, theirs = ([(x["step"], x["loss"]) for x in log_lines(out)] for out in (broken, whole))
    assert ours == theirs


def test_one_image_is_predicted_as_among_others_or_refused(trained: Trained, digits: Task) -> None:
    model = load(trained.out, "cpu")
    images = sorted(digits.target.rglob("*.png"))
    among = model.predict(images)
    assert {p.label for p in among} <= {*model.classes, "unknown"}
    if METHODS[trained.case.method].about.transductive:
        with pytest.raises(UserError, match="transductive"):
            model.predict(images[0])
        return
    alone = model.predict(images[0])[0]
    assert alone.label == among[0].label
    assert alone.unknown_score == pytest.approx(among[0].unknown_score, abs=1e-4)


def test_a_stored_model_predicts_the_same_and_is_stored_again(
    trained: Trained, digits: Task, tmp_path: Path
) -> None:
    loaded = load(trained.out, "cpu")
    assert_alike(loaded.predict(digits.target), trained.model.predict(digits.target))
    assert not any(t.is_meta for t in loaded.method.state_dict().values())
    loaded.save(tmp_path / "again.safetensors")
    stored = (trained.out / "model.safetensors").read_bytes()
    assert (tmp_path / "again.safetensors").read_bytes() == stored


def test_loading_allocates_nothing_for_the_images_of_the_training(
    trained: Trained, digits: Task, tmp_path: Path
) -> None:
    """With memories for so many images no machine would load it."""
    model = load(trained.out, "cpu")
    model.method.sizes = dataclasses.replace(model.method.sizes, n_source=10**12, n_target=10**12)
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors", "cpu")
    assert_alike(again.predict(digits.target), model.predict(digits.target))


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_on_a_gpu_a_run_is_finite_resumed_and_agrees_with_the_cpu(
    digits: Task, out: Path, case: BenchEntry
) -> None:
    """In the precision a GPU has by default; refreshes included."""
    config = make_config(digits, out, case, device="cuda", precision="auto")
    run_killed(config, 13)
    run_adaptation(config, resume=True)
    logged = log_lines(out)
    assert [line["step"] for line in logged] == [5, 10, 15, 20]
    assert all(np.isfinite(value) for line in logged for value in line.values())
    gpu, cpu = (load(out, device).score(digits.target)[1] for device in ("cuda", "cpu"))
    np.testing.assert_allclose(gpu.probs, cpu.probs, atol=0.02)
