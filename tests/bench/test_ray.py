"""A bench on a Ray cluster: a worker is killed in the middle; nothing is lost or done twice."""

import json
import logging
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.benches import arguments, write_data
from tests.processes import wait_for
from unida.bench.results import read_results
from unida.cli.main import main

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Two workers on this machine."""
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=100 * 2**20,
    )
    yield
    ray.shutdown()


def holder_of_a_checkpointed_run(out: Path) -> int | None:
    """Process that works on a run which has a checkpoint already."""
    for state in out.glob("runs/*/state.pt"):
        lock = out / "locks" / state.parent.name
        holder = lock.read_text().split()
        if holder and not (state.parent / "result.jsonl").exists():
            return int(holder[1])
    return None


def kill(pid: int) -> bool:
    """False if it has just ended by itself."""
    assert pid != os.getpid()
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.usefixtures("cluster")
def test_a_killed_worker_costs_nothing(tmp_path: Path) -> None:
    protocol = write_data(tmp_path)
    out = tmp_path / "results"
    more = ("--methods", "san", "--seeds", "1", "--on", "ray")
    steps = 80
    status: list[int] = []
    bench = threading.Thread(
        target=lambda: status.append(main(arguments(protocol, out, *more, steps=steps))),
        daemon=True,  # a bench that hangs does not keep the tests from ending
    )
    bench.start()

    def killed_one() -> bool:
        assert bench.is_alive(), "the bench ended before a worker was killed"
        pid = holder_of_a_checkpointed_run(out)
        return pid is not None and kill(pid)

    wait_for(killed_one)
    bench.join(timeout=600)
    assert status == [0]
    results = [r for r in read_results(out) if r.refine == "none"]
    assert len(results) == len({(r.entry, r.source, r.seed) for r in results}) == 2
    for log in out.glob("runs/*/metrics.jsonl"):
        done = [json.loads(line)["step"] for line in log.read_text().splitlines()]
        assert done == list(range(2, steps + 1, 2))  # no step is lost or repeated


def test_without_a_cluster_there_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if ray.is_initialized():
        ray.shutdown()
    protocol = write_data(tmp_path, each=2)
    assert main(arguments(protocol, tmp_path / "results", "--on", "ray")) == 2
    assert "ray start --head" in capsys.readouterr().err
