"""The one exception a user is meant to read."""

import difflib
from collections.abc import Collection


class UserError(ValueError):
    """An error the user can correct: one sentence that names the thing and what to do."""


def require(ok: bool, field: str, value: object, allowed: str) -> None:
    """Raise a `UserError` that names the field, its value and what is allowed."""
    if not ok:
        raise UserError(f"{field} is {value!r}; allowed: {allowed}.")


def require_known(name: str, names: Collection[str], what: str) -> None:
    """Raise a `UserError` that names the nearest right name and all others."""
    if name in names:
        return
    near = difflib.get_close_matches(name, names, n=1)
    advice = f"did you mean {near[0]!r}? Allowed" if near else "allowed"
    raise UserError(f"{what} {name!r} does not exist; {advice}: {', '.join(names) or 'none'}.")


def shorten(names: list[str], most: int = 8) -> str:
    """Join the first few names, and count the rest."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
