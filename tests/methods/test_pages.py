"""Pages of methods: a page each, settings as in code and protocols, check cases that are tested."""

import importlib
import re
from pathlib import Path

import pytest

from unida.methods import METHODS

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "methods"


def test_lists_and_settings_are_what_the_script_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "scripts"))
    made = importlib.import_module("method_pages").pages()
    assert {page.stem for page in made} == {page.stem for page in PAGES.glob("*.md")}
    for page, text in made.items():
        assert page.read_text() == text, "run python benchmarks/scripts/method_pages.py"


@pytest.mark.parametrize("method", METHODS)
def test_a_page_has_every_part_and_its_numbers_are_tested(method: str) -> None:
    text = (PAGES / f"{method}.md").read_text()
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings[-3:] in (
        ["Settings", "Check cases", "Results"],
        ["Check cases", "Slips in the paper", "Results"],
    )
    cases = text[text.index("## Check cases") :]
    files = [ROOT / name for name in re.findall(r"`(tests/[\w/]+\.py)`", cases)]
    assert files
    tested = "".join(re.sub(r"(?<=\d)_(?=\d)", "", file.read_text()) for file in files)
    numbers = re.findall(r"\.(\d{6,})", cases)
    assert numbers
    missing = [n for n in numbers if n.rstrip("0") not in tested]
    assert not missing
