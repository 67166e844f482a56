"""The README is consistent with the results and the source tree."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_tables_match_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "scripts"))
    tables = importlib.import_module("tables")
    for place in ("digits", "office_home/frozen_peers", "office_home/unda_stored"):
        for file, text in tables.tables(ROOT / "benchmarks" / place):
            assert file.read_text() == text, file
    assert tables.readme(README) == README
    spoilt = README.replace("| ovanet | own |", "| ovanet | own | 99.9 |")
    assert spoilt != README
    assert tables.readme(spoilt) == README


def test_every_linked_file_exists() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert "CONTRIBUTING.md" in links
    assert [link for link in links if not (ROOT / link).exists()] == []


TREE = README.split("src/unida/\n")[1].split("tests/")[0]
SRC = ROOT / "src" / "unida"


def test_the_tree_names_existing_modules() -> None:
    named = re.findall(r"^  (\S+\.py|\S+/)", TREE, flags=re.MULTILINE)
    assert len(named) > 12
    assert [name for name in named if not (SRC / name).exists()] == []


def test_every_package_is_named_in_the_tree() -> None:
    packages = {f"{path.parent.name}/" for path in SRC.glob("*/__init__.py")}
    assert sorted(packages - set(re.findall(r"\w+/", TREE))) == []
