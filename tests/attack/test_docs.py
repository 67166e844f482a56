"""Every test that docs/reliability.md names is there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"


def names_in(file: Path) -> set[str]:
    """`test` and `Class::test` of a file."""
    found = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            inner = (item.name for item in node.body if isinstance(item, ast.FunctionDef))
            found |= {f"{node.name}::{name}" for name in inner}
    return found


def test_every_promise_has_tests_that_exist() -> None:
    rows = re.findall(r"^\| (?!promise)(\S.*) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) > 20
    for promise, tests in rows:
        named = re.findall(r"`(tests/[^`:]+)::([^`]+)`", tests)
        assert named, promise
        for file, name in named:
            assert name in names_in(ROOT / file), f"{file}::{name}"


def test_links_lead_to_files() -> None:
    for page in (PAGE, ROOT / "SECURITY.md"):
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), target
