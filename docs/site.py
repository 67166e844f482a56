"""What mkdocs.yml needs beyond mkdocs.

* Files of the repository that a page links to, such as the tables below benchmarks/, become part of
  the site, and links to them are changed to where they are in it.
* Diagrams are the pictures that docs/diagrams.py made: the site loads nothing from a network.
* The page of the command line is made from the parser.
* The navigation lists the universal tables and whatever is in docs/methods and docs/analyses.
"""

import contextlib
import io
import os
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
import diagrams  # noqa: E402, of this folder

OUTSIDE = "repository"
"""Folder of the site for files outside docs/."""
LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")
CODE = re.compile(r"```.*?```", re.DOTALL)


def on_config(config: Any) -> None:
    """Complete the navigation."""
    nav = {title: value for entry in config.nav for title, value in entry.items()}
    docs = Path(config.docs_dir)
    nav["Methods"] = _listed(docs, "methods")
    nav["Results"][:0] = [{_title(path): f"{OUTSIDE}/{path}"} for path in _universal()]
    nav["Results"].append({"Analyses": _listed(docs, "analyses")})
    config.nav = [{title: value} for title, value in nav.items()]


def on_files(files: Files, config: Any) -> Files:
    """Add the page of the command line and the linked files of the repository."""
    files.append(File.generated(config, "cli.md", content=command_line()))
    waiting = {"CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md", "SECURITY.md"}
    waiting |= set(_universal())
    for page in files.documentation_pages():
        waiting |= _links("docs/" + page.src_uri, page.content_string)
    added: set[str] = set()
    while waiting:
        path = waiting.pop()
        place = ROOT / path
        if path in added or path.startswith("docs/") or not place.is_file():
            continue
        added.add(path)
        name = f"{OUTSIDE}/{path}"
        files.append(File.generated(config, name, abs_src_path=str(place)))
        if path.endswith(".md"):
            waiting |= _links(path, place.read_text())
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Change links into the repository to where its files are in the site, and draw diagrams."""
    here = page.file.src_uri
    if here == "cli.md":
        return markdown
    in_repository = _in_repository(here)

    def changed(match: re.Match[str]) -> str:
        target = _resolve(in_repository, match[2])
        name = target[5:] if target.startswith("docs/") else f"{OUTSIDE}/{target}"
        if files.get_file_from_path(name) is None:
            return match[0]
        return match[1] + posixpath.relpath(name, posixpath.dirname(here)) + match[3]

    def drawn(match: re.Match[str]) -> str:
        names = {
            theme: f"pictures/{diagrams.picture(match[1], theme)}" for theme in diagrams.THEMES
        }
        if any(files.get_file_from_path(name) is None for name in names.values()):
            raise PluginError(f"{here}: a diagram is not drawn; docs/diagrams.py does it.")
        place = posixpath.dirname(here)
        return "\n".join(
            f"![Diagram]({posixpath.relpath(name, place)}#only-{theme})"
            for theme, name in names.items()
        )

    markdown = diagrams.BLOCK.sub(drawn, markdown)
    parts = re.split(f"({CODE.pattern})", markdown, flags=re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(changed, part) for part in parts)


def command_line() -> str:
    """Return the page of the command line, from the parser."""
    from unida.cli.main import COMMANDS, main

    os.environ |= {"COLUMNS": "80", "NO_COLOR": "1"}
    lines = ["# Command line", "", "Made from the parser: what `unida COMMAND --help` prints."]
    for name in ("", *COMMANDS):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert main([*name.split(), "--help"]) == 0
        title = f"unida {name}".strip()
        lines += ["", f"## {title}", "", "```text", out.getvalue().strip(), "```"]
    return "\n".join(lines) + "\n"


def _listed(docs: Path, folder: str) -> list[str]:
    """Return the pages of a folder, its own page first."""
    pages = sorted((docs / folder).glob("*.md"), key=lambda p: (p.stem != "index", p.name))
    return [page.relative_to(docs).as_posix() for page in pages]


def _universal() -> list[str]:
    """Return the tables over every category shift."""
    tables = (ROOT / "benchmarks" / "results").glob("*/*/universal*/tables.md")
    return sorted(path.relative_to(ROOT).as_posix() for path in tables)


def _title(path: str) -> str:
    data, kind, name = Path(path).parts[2:5]
    return f"{data}, {kind}: {name}"


def _in_repository(uri: str) -> str:
    """Return the path in the repository of a page of the site."""
    inside = uri.removeprefix(f"{OUTSIDE}/")
    return inside if inside != uri else f"docs/{uri}"


def _resolve(page: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def _links(page: str, text: str) -> set[str]:
    return {_resolve(page, match[2]) for match in LINK.finditer(CODE.sub("", text))}
