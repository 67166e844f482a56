"""The README and the committed tables are consistent with the results and the source tree."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
README = (ROOT / "README.md").read_text()


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "scripts"))
    return importlib.import_module("tables")


def test_committed_tables_match_the_results(tables: Any) -> None:
    folders = tables.folders()
    assert len(folders) > 15
    assert {folder.relative_to(RESULTS).parts[1] for folder in folders} <= {
        "frozen",
        "finetuned",
        "scratch",
    }
    for folder in folders:
        file, text = tables.table_file(folder)
        assert file.read_text() == text, file


def test_tables_of_the_pages_match_the_committed_ones(tables: Any) -> None:
    pages = list(tables.pages())
    assert ROOT / "README.md" in pages
    for page in pages:
        assert tables.fill(page.read_text()) == page.read_text(), page


def test_a_slot_is_filled_by_rows_rules_and_columns(tables: Any) -> None:
    file = "office-home/frozen/unda/tables.md"
    slot = f"<!-- table: {file}; rows: ovanet, dance; rules: own; columns: method, A2C, Avg -->"
    opening, head, _, *rows, end = tables.fill(f"{slot}\nout of date\n<!-- end -->").splitlines()
    assert (opening, end) == (slot, "<!-- end -->")
    assert head == "| method | A2C | Avg |"
    assert [row.split(" | ")[0] for row in rows] == ["| dance", "| ovanet"]
    assert all(" ± " in row and row.count(" ± ") == 1 for row in rows)  # of the average only
    empty = "<!-- table: nowhere/tables.md -->\n<!-- end -->"
    assert tables.fill(empty.replace("\n", "\ninvented\n")) == empty


def test_benchmarks_stay_small() -> None:
    files = [file for file in (ROOT / "benchmarks").rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 5e6
    assert [file for file in RESULTS.rglob("tables.*") if file.suffix != ".md"] == []


PAGES = sorted(
    page.relative_to(ROOT)
    for pattern in ("*.md", "docs/**/*.md", "benchmarks/**/*.md", "examples/*.md", ".github/*.md")
    for page in ROOT.glob(pattern)
)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    titles = (
        re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", t) for t in re.findall("^#+ (.+)$", text, re.M)
    )
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_leads_to_a_file_and_a_heading_on_github(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", (ROOT / page).read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" not in link:
            name, _, heading = link.partition("#")
            file = (ROOT / page).parent / name if name else ROOT / page
            assert file.exists(), link
            assert not heading or heading in anchors(file), link
