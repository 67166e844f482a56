"""What tests start is shown where they fail, and does not outlive them."""

import signal
import sys
from pathlib import Path

import pytest

from tests.processes import Child, started, wait_for

PRINTS = "import subprocess, sys; print('help', flush=True); "
STAYS = "subprocess.run([sys.executable, '-c', 'import time; time.sleep(999)'])"


def fail_beside(children: list[Child]) -> None:
    with started([sys.executable, "-c", PRINTS + STAYS]) as child:
        children.append(child)
        wait_for(lambda: "help" in child.output(), child)
        raise KeyError


def test_a_failing_block_shows_the_output_and_ends_the_process() -> None:
    children: list[Child] = []
    with pytest.raises(KeyError) as error:
        fail_beside(children)
    assert "said:\nhelp" in error.value.__notes__[0]
    assert children[0].status() == -signal.SIGKILL


def test_waiting_ends_with_the_process_or_the_time() -> None:
    with started([sys.executable, "-c", "raise SystemExit(3)"]) as child:
        with pytest.raises(AssertionError, match="ended with 3"):
            wait_for(lambda: False, child)
        assert child.ended() == 3
    with pytest.raises(AssertionError, match="in vain"):
        wait_for(lambda: False, seconds=0.05)


def test_what_a_process_did_last_counts(tmp_path: Path) -> None:
    with started([sys.executable, "-c", "open('made', 'w')"], tmp_path) as child:
        wait_for((tmp_path / "made").exists, child)
