"""What the README says is so."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_tables_are_those_of_the_results() -> None:
    place = ROOT / "benchmarks" / "readme.py"
    spec = importlib.util.spec_from_file_location("readme", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.render(README) == README


def test_every_file_it_links_to_is_there() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert "CONTRIBUTING.md" in links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_tree_names_what_is_there() -> None:
    tree = README.split("src/unida/\n")[1].split("tests/")[0]
    named = re.findall(r"^  (\S+\.py|\S+/)", tree, flags=re.MULTILINE)
    assert len(named) > 12
    assert [name for name in named if not (ROOT / "src" / "unida" / name).exists()] == []
