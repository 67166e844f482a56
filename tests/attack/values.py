"""Values that a careless or hostile person gives: as text, and inside of JSON."""

import random
from typing import Any

TEXTS = (
    "", " ", ".", "..", "/", "-", "--", "=", "'", '"', "\\", "\n", "\t", "{}", "[]", "%s", "$HOME",
    "~", "*", "&", ",", ":", "a=b=c", "x" * 300, "x/" * 3000, "ü", "e\u0301", "\u200b", "\u202e",
    "\ufeff", "\U0001f600", "\udcff", "unknown", "Unknown", "=1+1", "@SUM(A1)", "none", "null",
    "nan", "inf", "-inf", "1e400", "-1", "0", "1", "2", "0.5", "-0.0", "1e-300", "1_0", "0x10",
    "٣", "1,2", "1:2", "99999999999999999999", "true", "False", "None", "auto", "cpu", "cuda:99",
    "/dev/null", "/dev/full", "/dev/zero", "/proc/self/mem", "/nowhere/at/all", "nowhere",
    "hf:nowhere", "hf:", "timm:resnet18", "timm:", "small_cnn", "resnet18", "threshold:nan",
    "threshold:", "source:2", "source:0.05", "mixture", "own", "share", "--help", "--resume",
)  # fmt: skip

NUMBERS: tuple[Any, ...] = (
    -1, 0, 1, 2, 3, 7, 8, 255, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64, 10**30, 10_000_000,
    0.0, -0.0, 0.5, 1.5, 1e-300, 1e300, float("nan"), float("inf"), float("-inf"), True, False,
)  # fmt: skip


def any_text(rng: random.Random) -> str:
    """A text from the list, or one of random characters."""
    if rng.random() < 0.8:
        return rng.choice(TEXTS)
    characters = (rng.choice((rng.randrange(1, 128), rng.randrange(1, 0xD800))) for _ in range(8))
    return "".join(map(chr, characters))


def any_json(rng: random.Random, depth: int = 2) -> Any:
    """Whatever JSON may hold, NaN too."""
    kind = rng.randrange(7 if depth else 4)
    if kind < 2:
        return rng.choice(NUMBERS)
    if kind == 2:
        return any_text(rng)
    if kind == 3:
        return None
    items = [any_json(rng, depth - 1) for _ in range(rng.randrange(4))]
    if kind == 4:
        return {any_text(rng): item for item in items}
    return nested(rng.choice((50, 400))) if kind == 5 and rng.random() < 0.2 else items


def nested(depth: int) -> Any:
    """A list in a list in a list …"""
    inner: Any = []
    for _ in range(depth):
        inner = [inner]
    return inner


def changed(content: Any, rng: random.Random) -> tuple[Any, str]:
    """A copy of what JSON holds with one value, at random, replaced, removed, added or doubled.

    Returns:
        The copy, and what was done.
    """
    if isinstance(content, dict) and content and rng.random() < 0.9:
        key = rng.choice(list(content))
        how = rng.random()
        if how < 0.1:
            return {k: v for k, v in content.items() if k != key}, f"no {key}"
        if how < 0.15:
            new = any_text(rng)
            return content | {new: any_json(rng)}, f"{new!r:.40} added"
        inner, what = changed(content[key], rng)
        return content | {key: inner}, f"{key}.{what}"
    if isinstance(content, list) and content and rng.random() < 0.9:
        i, how = rng.randrange(len(content)), rng.random()
        if how < 0.1:
            return content[:i] + content[i + 1 :], f"without [{i}]"
        if how < 0.2:
            return [*content, content[i]], f"[{i}] twice"
        inner, what = changed(content[i], rng)
        return [*content[:i], inner, *content[i + 1 :]], f"[{i}].{what}"
    value = _near(content, rng) if rng.random() < 0.3 else any_json(rng)
    return value, f" = {value!r:.60}"


def _near(value: Any, rng: random.Random) -> Any:
    """Something like the value: a number nearby, the number as a text, a text with one more
    character."""
    if isinstance(value, int | float):
        return rng.choice((value + 1, value - 1, -value, value * 1000, str(value)))
    if isinstance(value, str):
        return rng.choice((value + any_text(rng), value[:-1], value.upper(), [value]))
    return any_json(rng)
