"""The parts of docs/methods that follow from the code: the list of methods, and their settings.

    python benchmarks/scripts/method_pages.py

writes them between the marks in the pages. A test compares them with what is committed.
"""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unida.methods import METHODS
from unida.methods.presets import PRESETS
from unida.protocols.sets import set_names
from unida.protocols.tasks import load_protocol

PAGES = Path(__file__).parents[2] / "docs" / "methods"
MARK = "<!-- {}: made by benchmarks/scripts/method_pages.py -->\n"
END = "<!-- end -->\n"


def pages() -> dict[Path, str]:
    """Return every page as it should be."""
    made = {PAGES / "index.md": _between(PAGES / "index.md", "methods", _list())}
    for name in METHODS:
        page = PAGES / f"{name}.md"
        made[page] = _between(page, "settings", _settings(name))
    return made


def _between(page: Path, what: str, lines: list[str]) -> str:
    """Return a page with these lines between its marks."""
    mark = MARK.format(what)
    before, _, rest = page.read_text().partition(mark)
    _, _, after = rest.partition(END)
    return before + mark + "".join(f"{line}\n" for line in lines) + END + after


def _list() -> list[str]:
    rows = ["", "| method | paper | unknown if | follows |", "|---|---|---|---|"]
    for name, method in METHODS.items():
        about = method.about
        rule = about.rule + (" (transductive)" if about.transductive else "")
        rows.append(
            f"| [{name}]({name}.md) | {about.paper} ({about.venue}) | {rule} | {about.spec} |"
        )
    return [*rows, ""]


def _settings(method: str) -> list[str]:
    """Return a table: settings and options down; default and presets, then data sets, across."""
    usual = dataclasses.asdict(METHODS[method].Config())
    presets = {n: p for n, p in PRESETS.items() if p.method == method}
    columns: dict[str, dict[str, Any]] = {"default": usual}
    columns |= {f"`{name}`": {**p.settings, **p.options} for name, p in presets.items()}
    for data in set_names():
        protocol = load_protocol(data)
        found: dict[str, Any] = {}
        for name in (method, *presets):
            if recipe := protocol.methods.get(name):
                found |= recipe.settings | recipe.options
        if found:
            columns[data] = found
    rows = list(dict.fromkeys(key for values in columns.values() for key in values))
    if not rows:
        return ["", "It has no settings.", ""]
    table = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for key in rows:
        cells = (_cell(values, key) for values in columns.values())
        table.append(f"| `{key}` | " + " | ".join(cells) + " |")
    return ["", *table, ""]


def _cell(values: dict[str, Any], key: str) -> str:
    if key not in values:
        return ""
    value = values[key]
    return "auto" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def main(argv: Sequence[str] | None = None) -> None:
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args(argv)
    for page, text in pages().items():
        page.write_text(text)


if __name__ == "__main__":
    main()
