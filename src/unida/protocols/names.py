"""Spellings of names: `Real World`, `Real_World` and `realworld` are one name."""

import unicodedata
from collections.abc import Iterable, Mapping


def key_of(name: str) -> str:
    """Remove case, spaces and punctuation from a name; one of punctuation alone stays as it is."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return "".join(c for c in folded if c.isalnum()) or folded


class Spellings:
    """Lookup of a name by any spelling of it, or of its other names.

    An exact spelling wins; a loose one counts where it can mean one name only, so `C` and `C++`
    stay two classes.

    Args:
        names: every name with its other names.
    """

    def __init__(self, names: Mapping[str, Iterable[str]]) -> None:
        pairs = [(spelling, name) for name, more in names.items() for spelling in (name, *more)]
        self._exact = dict(pairs) | {name: name for name in names}
        self._loose: dict[str, set[str]] = {}
        for spelling, name in pairs:
            self._loose.setdefault(key_of(spelling), set()).add(name)

    def find(self, text: str) -> str | None:
        """Return the name that `text` spells, or None."""
        return self._exact.get(text) or _only(self._loose.get(key_of(text), set()))

    def complete(self, text: str) -> str | None:
        """Find a name; where there is none, the only one that begins so, as `A` for `Art`."""
        start = key_of(text)
        candidates = [
            names for spelling, names in self._loose.items() if start and spelling.startswith(start)
        ]
        return self.find(text) or _only(set().union(*candidates))


def _only(names: set[str]) -> str | None:
    return next(iter(names)) if len(names) == 1 else None
