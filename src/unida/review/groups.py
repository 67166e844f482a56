"""Edited groups: what merging, splitting, moving and discarding make of the found categories.

`merges` says what a group has become part of, `moves` which group an image is in; `0` is no group.
An image is in the group it was moved to, else in its category; then merges are followed. Groups
have the number of a category, or that number and a suffix (`3.01`, a part of category 3), or
`new.` and a suffix.
"""

import re
from collections.abc import Iterable, Mapping

from unida.discovery.categories import LabelledImage
from unida.errors import UserError

NO_GROUP = "0"
"""The group of an image that is in none, and what a discarded group has become part of."""
NEW = "new"
SUFFIX = re.compile(r"[0-9a-z]{1,20}")
MOVED = 1.0
"""Confidence of an image that a person has put into a group."""


def final_group(group: str, merges: Mapping[str, str]) -> str:
    """Return what a group has become part of in the end; itself where it was not merged."""
    for _ in range(len(merges) + 1):
        if group not in merges:
            return group
        group = merges[group]
    raise UserError(f"The group {group!r} is merged into itself.")


def check_groups(names: Iterable[str], merges: Mapping[str, str]) -> str | None:
    """Return why edits contradict each other, or None: merges in a circle, a name of no group."""
    try:
        for group in merges:
            final_group(group, merges)
    except UserError as error:
        return str(error)
    for group in sorted(set(names) & merges.keys()):
        return f"The group {group!r} has a name but is part of another or discarded."
    return None


def is_group(group: str, categories: frozenset[str]) -> bool:
    """Return whether a group may exist: a category, a part of one, or a new one."""
    base, dot, suffix = group.partition(".")
    if not dot:
        return base in categories
    return (base in categories or base == NEW) and bool(SUFFIX.fullmatch(suffix))


def edited_groups(
    categorized: Iterable[LabelledImage], merges: Mapping[str, str], moves: Mapping[str, str]
) -> tuple[LabelledImage, ...]:
    """Return the images of all groups, after the edits.

    An image keeps its confidence where it stays in its category or a part of it; elsewhere a person
    has put it there, which is sure.
    """
    found, rest = [], dict(moves)
    for image in categorized:
        group, confidence = rest.pop(image.path, image.label), image.confidence
        if group.partition(".")[0] != image.label:
            confidence = MOVED
        found.append(LabelledImage(image.path, final_group(group, merges), confidence))
    others = (LabelledImage(p, final_group(g, merges), MOVED) for p, g in rest.items())
    return tuple(image for image in (*found, *others) if image.label != NO_GROUP)
