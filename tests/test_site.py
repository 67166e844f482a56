"""The site builds without a warning, its links lead somewhere, and it needs no network."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from unida.cli.main import COMMANDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

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


def test_a_page_loads_nothing_from_a_network(site: Path, browser: "Browser") -> None:
    page = browser.new_page()
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(request.url))
    for html in sorted(site.rglob("*.html")):
        page.goto(html.as_uri())
    page.close()
    assert len(asked) > 50
    assert {url for url in asked if not url.startswith(("file:", "data:", "blob:"))} == set()


def test_nothing_on_a_page_is_of_another_host(site: Path) -> None:
    """What a browser would load later, such as a script that waits for a click, counts too."""
    tags = r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc=\"(?:https?:)?//[^\"]*"
    links = r"<link\b(?![^>]*rel=\"canonical\")[^>]*\bhref=\"(?:https?:)?//[^\"]*"
    styles = r"(?:url\(|@import )[\"']?(?:https?:)?//[^)\"';]*"
    found = {
        (file.relative_to(site).as_posix(), match)
        for file in site.rglob("*")
        if file.suffix in (".html", ".css", ".svg")
        for match in re.findall(f"{tags}|{links}|{styles}", file.read_text())
    }
    assert found == set()


def test_every_diagram_is_drawn_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    diagrams = importlib.import_module("diagrams")
    texts = diagrams.diagrams()
    assert texts
    needed = {diagrams.picture(text, theme) for text in texts for theme in diagrams.THEMES}
    assert {file.name for file in (ROOT / "docs" / "pictures").glob("diagram-*")} == needed
