"""Texts of anyone as names of files and folders: on any system, inside of the folder meant."""

import os
import re
import unicodedata
from collections.abc import Iterable

from unida.utils.lookalikes import look_of

MAX_BYTES = 100
"""Of a name in UTF-8; file systems allow 255."""
_NOT_ALLOWED = re.compile(r'[/\\:*?"<>|]')
_NOT_VISIBLE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_RESERVED = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])", re.IGNORECASE)
"""Devices of Windows, whatever extension follows."""


def safe_name(text: str) -> str:
    """Return a text as the name of one file or folder; the same text gives the same name.

    Separators, characters that Windows refuses, and invisible ones become `_`. No name is empty,
    hidden, `..`, a device of Windows, longer than `MAX_BYTES`, or ends in a dot or a space.

    >>> safe_name("../cat/dog"), safe_name("NUL.txt"), safe_name("zebra")
    ('_._cat_dog', '_NUL.txt', 'zebra')
    """
    name = _NOT_ALLOWED.sub("_", unicodedata.normalize("NFC", text))
    name = "".join("_" if unicodedata.category(c) in _NOT_VISIBLE else c for c in name)
    if name.startswith((".", " ", "-", "~")):  # hidden, or an option of a command
        name = "_" + name[1:]
    if _RESERVED.fullmatch(name.split(".")[0].strip()):
        name = "_" + name
    stem, extension = os.path.splitext(name)
    if len(extension.encode()) > MAX_BYTES // 4:
        stem, extension = name, ""
    stem = stem.encode()[: MAX_BYTES - len(extension.encode())].decode(errors="ignore")
    return re.sub(r"[. ]$", "_", stem + extension) or "_"


class NameTable:
    """Names of one folder: different texts get names that differ in more than their case.

    >>> names = NameTable()
    >>> names.add("a/b"), names.add("A:b"), names.add("a_b")
    ('a_b', 'A_b-2', 'a_b-3')
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {look_of(name) for name in taken}
        self._next: dict[str, int] = {}

    def add(self, text: str) -> str:
        """Return a new name for a text; a number goes before the extension."""
        name = safe_name(text)
        look = look_of(name)
        if look in self._taken:
            stem, extension = os.path.splitext(name)
            number = self._next.get(look, 2)
            while look_of(name := f"{stem}-{number}{extension}") in self._taken:
                number += 1
            self._next[look] = number + 1
        self._taken.add(look_of(name))
        return name
