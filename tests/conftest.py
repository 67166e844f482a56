"""Fixtures that many tests share."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

# Threads wait for each other by spinning, which costs much where other programs have the cores
# (docs/speed.md). It is read when torch is loaded, so it is set before.
os.environ.setdefault("GOMP_SPINCOUNT", "3000")

import pytest
import torch
from hypothesis import settings

from tests.tasks import Task, write_task
from unida.pipeline import run_adaptation

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# A busy machine is no failure, and every run of the tests is the same.
settings.register_profile("unida", deadline=None, derandomize=True)
settings.load_profile("unida")

# Two processes share the tests where they are run in parallel (make test).
torch.set_num_threads(1 if "PYTEST_XDIST_WORKER" in os.environ else 2)

# Started in the background by a shell, tests would pass on that Ctrl+C is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of tests/attack; pytest reads them from this file alone."""
    group = parser.getgroup("attack")
    group.addoption("--attack-cases", type=int, default=1000, help="cases of the fuzzer")
    group.addoption("--attack-seed", type=int, default=0, help="of the cases and of the kills")


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


@pytest.fixture(scope="session")
def finished_run(digits: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with its report, to read from; a test that changes it takes a copy."""
    out = tmp_path_factory.mktemp("finished") / "run"
    run_adaptation(digits.config(out, method="source_only", steps=10, report=True))
    return out


SLOW_FILES = {
    "test_bench.py", "test_ray.py", "test_tune.py", "test_benchmarks.py", "test_distributed.py",
    "test_figures.py", "test_predictor.py", "test_estimator.py", "test_earlier_formats.py",
    "test_messages.py", "test_bad_input.py", "test_fuzz.py", "test_kills.py", "test_two_hands.py",
}  # fmt: skip
"""Their tests start processes, train many runs or draw; left out by make test-fast."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip GPU tests where there is none; mark slow files and browser tests."""
    for item in items:
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
        uses_browser = "browser" in getattr(item, "fixturenames", ())
        if uses_browser or item.path.name in SLOW_FILES:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"


CHROMIUM_FLAGS = ["--no-sandbox", "--headless=new", "--disable-gpu", "--disable-dev-shm-usage"]


@pytest.fixture(scope="module")  # playwright runs once at a time: other tests have their own
def browser() -> "Iterator[Browser]":
    """Debian's Chromium, driven by playwright; no browser is downloaded."""
    chromium = shutil.which("chromium")
    # CI installs one, so there it must not be missing unnoticed (.ci/run).
    if "UNIDA_NEEDS_BROWSER" not in os.environ:
        pytest.importorskip("playwright", reason="playwright is not installed")
        if chromium is None:
            pytest.skip("no chromium on this machine: apt-get install chromium")
    assert chromium is not None, "UNIDA_NEEDS_BROWSER is set, but there is no chromium"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=CHROMIUM_FLAGS, timeout=120_000
        )
        yield browser
        browser.close()
