"""Class names that a person cannot tell apart."""

import unicodedata
from collections import Counter
from collections.abc import Iterable

from unida.errors import shorten

_HANGUL_FILLERS = "\u115f\u1160\u3164\uffa0"
_INVISIBLE = frozenset("\u034f\u180b\u180c\u180d\u180f" + _HANGUL_FILLERS)


def look_of(name: str) -> str:
    """Return what a name looks like: without case, invisible characters and the kind of spaces.

    A letter with an accent is the same as one character or as two.
    """
    visible = "".join(c for c in name if not _is_invisible(c))
    folded = unicodedata.normalize("NFC", visible).casefold()
    return " ".join(unicodedata.normalize("NFC", folded).split())


def describe_clash(names: Iterable[str]) -> str:
    """Return which names look alike and how, for an error; empty where none do."""
    names = list(names)
    counts = Counter(map(look_of, names))
    clash = [name for name in names if counts[look_of(name)] > 1]
    if not clash:
        return ""
    if len({name.casefold() for name in clash}) == len({look_of(name) for name in clash}):
        return f"differ only in case ({shorten(clash)})"
    return f"look alike ({shorten([ascii(name) for name in clash])})"


def _is_invisible(character: str) -> bool:
    """Whether it is of no width: a format character or a variation selector."""
    return (
        unicodedata.category(character) == "Cf"
        or character in _INVISIBLE
        or "\ufe00" <= character <= "\ufe0f"
        or "\U000e0100" <= character <= "\U000e01ef"
    )
