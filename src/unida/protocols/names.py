"""Names as people write them: `Real World`, `Real_World` and `realworld` are one name."""

import unicodedata
from collections.abc import Iterable, Mapping


def key_of(name: str) -> str:
    """What is left of a name without case, spaces and signs; a name of signs alone stays."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return "".join(c for c in folded if c.isalnum()) or folded


class Spellings:
    """Finds a name by any spelling of it, or of its other names.

    An exact spelling wins; a loose one counts where it can mean one name only, so `C` and `C++`
    stay two classes.
    """

    def __init__(self, names: Mapping[str, Iterable[str]]) -> None:
        """Takes every name with its other names."""
        pairs = [(spelt, name) for name, more in names.items() for spelt in (name, *more)]
        self._exact = dict(pairs) | {name: name for name in names}
        self._loose: dict[str, set[str]] = {}
        for spelt, name in pairs:
            self._loose.setdefault(key_of(spelt), set()).add(name)

    def find(self, text: str) -> str | None:
        """The name that `text` spells, or None."""
        return self._exact.get(text) or _only(self._loose.get(key_of(text), set()))

    def complete(self, text: str) -> str | None:
        """As `find`; else the one name that begins so, as `A` for `Art`."""
        start = key_of(text)
        begun = [names for spelt, names in self._loose.items() if start and spelt.startswith(start)]
        return self.find(text) or _only(set().union(*begun))


def _only(names: set[str]) -> str | None:
    return next(iter(names)) if len(names) == 1 else None
