"""A run killed at any moment goes on as if nothing had happened."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.tasks import Task


def start(arguments: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "unida", "adapt", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)


def test_killed_and_resumed_ends_bit_identical(digits: Task, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    length = {"steps": 150, "checkpoint_every": 15}
    assert start(digits.arguments(whole, **length)).wait() == 0

    process = start(digits.arguments(broken, **length))
    deadline = time.monotonic() + 400
    while not (broken / "state.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert (broken / "state.pt").exists()
    assert not (broken / "done").exists()

    assert start(["--out", str(broken), "--resume"]).wait() == 0
    for name in ("model.safetensors", "predictions.csv", "done"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes()
