"""A made-up run and its page."""

from pathlib import Path

import pytest

from tests.report.made_up import make_run
from unida.report.build import write_report
from unida.training.run_folder import RunFolder


@pytest.fixture(scope="session")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A finished run with everything a report can show."""
    return make_run(tmp_path_factory.mktemp("made-up"))


@pytest.fixture(scope="session")
def report(made_up: RunFolder) -> Path:
    return write_report(made_up)
