"""A made-up run, its page, and a real browser to open it."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.report.made_up import make_run
from unida.report.command import write_report
from unida.runs import RunFolder

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ARGUMENTS = ["--no-sandbox", "--headless=new", "--disable-gpu", "--disable-dev-shm-usage"]


@pytest.fixture(scope="session")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A finished run with everything a report can show."""
    return make_run(tmp_path_factory.mktemp("made-up"))


@pytest.fixture(scope="session")
def report(made_up: RunFolder) -> Path:
    return write_report(made_up)


@pytest.fixture(scope="module")  # playwright runs once at a time: other tests have their own
def browser() -> "Iterator[Browser]":
    """Debian's Chromium, driven by playwright; no browser is downloaded."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield browser
        browser.close()
