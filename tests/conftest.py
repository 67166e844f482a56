"""Fixtures that many tests share."""

import os
import signal
from pathlib import Path

import pytest
import torch

from tests.tasks import Task, write_task

# Two processes share the tests where they are run in parallel (make test).
torch.set_num_threads(1 if "PYTEST_XDIST_WORKER" in os.environ else 2)


# Started in the background by a shell, tests would hand on that Ctrl+C is not to be heard.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests, and what they start, leave nothing in the user's cache folder."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Task:
    """A small task of real handwritten digits: 0–3 known, of these 0–2 in the target, with 8 and 9.

    The target is drawn brighter, so that the domains differ.
    """
    root = tmp_path_factory.mktemp("digits")
    return write_task(root, (0, 1, 2, 3), (0, 1, 2, 8, 9), 16)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """GPU tests are skipped where there is none."""
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"
