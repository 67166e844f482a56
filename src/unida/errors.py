"""The one exception a user is meant to read."""


class UserError(ValueError):
    """Something the user can mend: one sentence that names the thing and what to do."""


def require(ok: bool, field: str, value: object, allowed: str) -> None:
    """Raises a `UserError` that names the field, its value and what is allowed."""
    if not ok:
        raise UserError(f"{field} is {value!r}; allowed: {allowed}.")


def shorten(names: list[str], most: int = 8) -> str:
    """A list for a sentence: the first few names, then how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
