"""Two processes with half a batch each do what one does with the whole."""

import csv
import json
import shutil
import socket
import sys
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.processes import Child, started, wait_for
from tests.tasks import Task
from tests.utils.distributed_worker import STEPS
from unida.methods import METHODS
from unida.utils import distributed

ROOT = Path(__file__).parents[2]
# SPA's mosaics are made within a process's share, so its numbers are others.
EXACT = [name for name in METHODS if name != "spa"] + ["san+frozen"]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def member(
    root: Path, out: Path, methods: list[str], **launcher: str
) -> AbstractContextManager[Child]:
    command = [
        sys.executable,
        "-m",
        "tests.utils.distributed_worker",
        str(root),
        str(out),
        *methods,
    ]
    return started(command, ROOT, **launcher)


def run_team(root: Path, out: Path, methods: list[str]) -> None:
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    common["ACCELERATE_USE_CPU"] = "true"
    with ExitStack() as stack:
        ranks = [
            stack.enter_context(member(root, out, methods, RANK=r, LOCAL_RANK=r, **common))
            for r in ("0", "1")
        ]

        def over() -> bool:
            """All have ended, or one with an error: the others would wait for it for long."""
            states = [rank.status() for rank in ranks]
            return None not in states or any(states)

        wait_for(over, seconds=600)
        assert [rank.status() for rank in ranks] == [0, 0]


@pytest.fixture(scope="module")
def both(digits: Task, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Runs of all methods by one process, and by a team of two."""
    root = tmp_path_factory.mktemp("team")
    for role, place in (("source", digits.source), ("target", digits.target)):
        shutil.copytree(place, root / role)
    (root / "bad.png").write_bytes(b"no image")
    one, two = root / "one", root / "two"
    with member(root, one, EXACT) as single:
        assert single.ended(600) == 0
    run_team(root, two, EXACT)
    return one, two


def log(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", EXACT)
def test_losses_and_gradients_are_those_of_one_process(both: tuple[Path, Path], name: str) -> None:
    one, two = (log(folder / name) for folder in both)
    assert [line["step"] for line in two] == list(range(1, STEPS + 1))  # only the first one writes
    for a, b in zip(one, two, strict=True):
        assert a.keys() == b.keys()
        for key in a.keys() - {"steps_per_second"}:
            # Where a ReLU or a maximum is all but undecided, rounding turns the gradient: weights
            # moved by 1e-7 change its norm by 1 % within these steps, also in one process.
            rel = 2e-2 if key == "grad_norm" and a["step"] > 1 else 2e-3
            assert b[key] == pytest.approx(a[key], rel=rel, abs=2e-4), (a["step"], key)


@pytest.mark.parametrize("name", EXACT)
def test_the_trained_models_are_alike(both: tuple[Path, Path], name: str) -> None:
    one, two = (load_file(folder / name / "model.safetensors") for folder in both)
    assert one.keys() == two.keys()
    for key, tensor in one.items():
        # What is remembered of images has come through the whole network.
        atol = 2e-2 if key.startswith("neighbours.") else 2e-3
        torch.testing.assert_close(two[key], tensor, rtol=1e-2, atol=atol, msg=key)


@pytest.mark.parametrize("name", EXACT)
def test_every_target_image_is_labelled_once_and_in_order(
    both: tuple[Path, Path], name: str
) -> None:
    rows = []
    for folder in both:
        with (folder / name / "predictions.csv").open(newline="") as file:
            rows.append(list(csv.DictReader(file)))
    assert [row["path"] for row in rows[0]] == [row["path"] for row in rows[1]]
    assert len({row["path"] for row in rows[1]}) == len(rows[1]) == 80


def test_prediction_by_a_team_has_every_image_once_and_in_order(both: tuple[Path, Path]) -> None:
    one, two = ((folder / "labels.csv").read_text().splitlines() for folder in both)
    assert [line.split(",")[0] for line in two] == [line.split(",")[0] for line in one]
    assert len(two) == 81
    assert [(folder / "skipped.txt").read_text() for folder in both][1].endswith("bad.png")


def test_a_launcher_starts_it(digits: Task, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "accelerate.commands.launch", "--cpu"]
    command += ["--num_processes", "2", "--main_process_port", str(free_port()), "-m", "unida"]
    options = {"steps": 3, "log_every": 1, "cache_dir": tmp_path / "cache"}
    command += ["adapt", *digits.arguments(out, **options)]
    with started(command) as launcher:
        assert launcher.ended() == 0
        assert launcher.said().count("target images,") == 1  # one process speaks
    assert len(log(out)) == 3
    assert (out / "done").exists()


def test_a_team_of_one_does_nothing() -> None:
    rows = torch.arange(6.0).view(3, 2).requires_grad_()
    assert distributed.gather(rows) is rows
    assert distributed.all_reduce_sum(rows) is rows
    assert distributed.gather_objects([1, 2]) == [1, 2]
    assert distributed.is_main_process()
    assert np.arange(7)[distributed.shard(7)].tolist() == list(range(7))


def test_shares_are_disjoint_and_cover_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    for n, size in ((7, 3), (36, 8), (5, 5), (80, 2)):
        monkeypatch.setattr(distributed, "world_size", lambda size=size: size)
        parts = []
        for rank in range(size):
            monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
            parts.append(list(range(n))[distributed.shard(n)])
        assert [i for part in parts for i in part] == list(range(n))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
