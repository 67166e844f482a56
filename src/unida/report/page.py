"""One HTML file from plain values; it loads nothing and runs only its own script.

Everything that comes from a run (names of files, classes, categories, settings) is in one block
of JSON, which the script shows as text. The page's policy names script and styles by their
digests, so that markup in a name would not run even if it got into the page.
"""

import base64
import hashlib
import json
from importlib import resources
from typing import Any

from unida.utils.json_text import finite

_SCRIPTS = ("tools", "corrections", "pictures", "map", "gallery", "groups", "sections")
"""Parts of the script, page.NAME.js; page.js comes last and starts it."""
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def render(content: dict[str, Any]) -> str:
    """Return the page of what `collect` returned."""
    style, script = _part("page.css"), _script()
    return _fill(
        _part("page.html"),
        {
            "policy": policy(),
            "style": style,
            "script": script,
            "data": to_block(content),
        },
    )


def policy() -> str:
    """Allow the page's script, styles and images, and requests to `unida review`."""
    style, script = _digest(_part("page.css")), _digest(_script())
    return (
        f"default-src 'none'; script-src {script}; style-src {style}; "
        "img-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'"
    )


def to_block(content: object) -> str:
    """Return JSON for a script element, with every character escaped that HTML interprets."""
    text = json.dumps(finite(content), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return text


def _fill(template: str, parts: dict[str, str]) -> str:
    """Replace `{{name}}` by its part; a part is not searched for further names."""
    pieces = template.split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        filled += [parts[name], rest]
    return "".join(filled)


def _script() -> str:
    """Return all parts in one function, so that they share their names with nobody else."""
    parts = [*(_part(f"page.{name}.js") for name in _SCRIPTS), _part("page.js")]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _part(name: str) -> str:
    return resources.files("unida.report").joinpath(name).read_text("utf-8")
