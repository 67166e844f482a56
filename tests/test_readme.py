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
    spoilt = README.replace("| san | own |", "| san | own | 99.9 |")
    assert spoilt != README
    assert module.render(spoilt) == README


def test_every_file_it_links_to_is_there() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert "CONTRIBUTING.md" in links
    assert [link for link in links if not (ROOT / link).exists()] == []


TREE = README.split("src/unida/\n")[1].split("tests/")[0]
SRC = ROOT / "src" / "unida"


def test_the_tree_names_what_is_there() -> None:
    named = re.findall(r"^  (\S+\.py|\S+/)", TREE, flags=re.MULTILINE)
    assert len(named) > 12
    assert [name for name in named if not (SRC / name).exists()] == []


def test_what_is_there_is_named_in_the_tree() -> None:
    rooms = [path for path in SRC.iterdir() if not path.name.startswith("__")]
    names = [path.name for path in rooms if path.suffix == ".py"]
    names += [f"{path.name}/" for path in rooms if path.is_dir()]
    named = re.findall(r"\w+\.py|\w+/", TREE)
    assert sorted(set(names) - set(named)) == []
