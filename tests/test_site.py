"""The site builds without a warning, and every link in it leads somewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from unida.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def test_every_link_leads_to_a_file(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    assert len(pages) > 30
    broken = set()
    for page in pages:
        for link in re.findall(r'(?:href|src)="([^"#?]+)', page.read_text()):
            outside = "://" in link or link.startswith(("data:", "mailto:"))
            if not outside and not (page.parent / link).exists():
                broken.add((page.relative_to(site).as_posix(), link))
    assert broken == set()


def test_the_reference_has_every_command_and_the_public_names(site: Path) -> None:
    commands = (site / "cli.html").read_text()
    assert [name for name in COMMANDS if f"usage: unida {name}" not in commands] == []
    python = (site / "api.html").read_text()
    names = (
        "pipeline.adapt",
        "model.load",
        "embedding.embed",
        "model.Model.predict",
        "estimator.UniversalAdapter.fit",
    )
    assert [name for name in names if f'id="unida.{name}"' not in python] == []
