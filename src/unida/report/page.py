"""Plain values → one HTML file that loads nothing and runs nothing but its own script.

Everything that comes from a run (names of files, classes, categories, settings) is in one block
of JSON, which the script reads and shows as text. The page's policy names script and styles by
their digests, so that whatever slipped through would still not run.
"""

import base64
import hashlib
import json
import math
from importlib import resources
from typing import Any

_HARMLESS = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def render(content: dict[str, Any]) -> str:
    """The page of what `collect` found."""
    style, script = _part("page.css"), _part("page.js")
    return _filled(
        _part("page.html"),
        {
            "policy": _policy(style, script),
            "style": style,
            "script": script,
            "data": to_block(content),
        },
    )


def to_block(content: object) -> str:
    """JSON that may stand inside a script element: no sign in it means anything to HTML."""
    text = json.dumps(_finite(content), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for sign, escape in _HARMLESS.items():
        text = text.replace(sign, escape)
    return text


def _finite(value: Any) -> Any:
    """The same with null for numbers that JSON has no word for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def _filled(template: str, parts: dict[str, str]) -> str:
    """Puts parts into their places; what is in a part is never taken for a place."""
    pieces = template.split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        filled += [parts[name], rest]
    return "".join(filled)


def _policy(style: str, script: str) -> str:
    """Own script, own styles, pictures from the page itself, and `unida review` to save to."""
    return (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; "
        "img-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _part(name: str) -> str:
    return resources.files("unida.report").joinpath(name).read_text("utf-8")
