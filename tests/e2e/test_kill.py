"""A run killed at any moment goes on as if nothing had happened."""

from pathlib import Path

from tests.processes import UNIDA, started, wait_for
from tests.tasks import Task


def adapt(arguments: list[str]) -> None:
    with started([*UNIDA, "adapt", *arguments]) as run:
        assert run.ended() == 0


def test_killed_and_resumed_ends_bit_identical(digits: Task, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    length = {"steps": 150, "checkpoint_every": 15}
    adapt(digits.arguments(whole, **length))

    with started([*UNIDA, "adapt", *digits.arguments(broken, **length)]) as run:
        wait_for((broken / "state.pt").exists, run)
        run.kill()
    assert not (broken / "done").exists()

    adapt(["--out", str(broken), "--resume"])
    for name in ("model.safetensors", "predictions.csv", "done"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes()
