"""The description in the file of a stored model: read, and checked before anything is built.

The file may come from anywhere. Numbers in it that are sizes are bounded here; what is built from
them is built without memory of its own (`torch.device("meta")`) and compared with the tensors.
"""

import json
import math
import reprlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from unida.errors import UserError, require

MAX_MEMBERS = 100
MAX_SIDE = 8192
_MOST = 2**40
_LAYERS = ("layer", "depth", "block")
"""In a name in the configuration of a network: so many modules are made, whatever their size."""


def parse_description(text: str, where: str) -> dict[str, Any]:
    """Read the description of a model of any format.

    Args:
        text: JSON, from the metadata of the file.
        where: the file, for the error.
    """
    with refusing_damage(where):
        d: dict[str, Any] = json.loads(text)
    require(isinstance(d, dict), f"the description of {where}", _short(d), "an object")
    for name, (is_right, allowed) in (_REQUIRED | _OPTIONAL).items():
        with refusing_damage(where):
            ok = is_right(d.get(name)) or (name in _OPTIONAL and name not in d)
        require(ok, f"{name} of {where}", _short(d.get(name)), allowed)
    n_classes, found = len(d["classes"]), d["sizes"].get("n_classes")
    require(found == n_classes, f"n_classes of {where}", found, f"{n_classes}, as many as names")
    return d


def check_network(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Refuse the configuration of a network that is larger than its stored tensors."""
    most = max(2**20, sum(tensor.numel() for tensor in tensors.values()))
    for name, value in _numbers(config):
        limit = len(tensors) if any(part in name for part in _LAYERS) else most
        require(value <= limit, f"{name} of the backbone", value, f"{limit} at most")


@contextmanager
def refusing_damage(where: str) -> Iterator[None]:
    """Turn whatever a damaged file raises while it is read into a `UserError`."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # of any type: the content may be anything
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{where} is damaged ({type(error).__name__}: {reason}).") from error


def _numbers(config: Any, name: str = "") -> Iterator[tuple[str, int]]:
    """Yield the whole numbers in nested objects and lists, each with the nearest name."""
    if isinstance(config, Mapping):
        for key, value in config.items():
            yield from _numbers(value, str(key))
    elif isinstance(config, list):
        for value in config:
            yield from _numbers(value, name)
    elif isinstance(config, int):
        yield name, config


def _is_size(value: Any, most: int = _MOST) -> bool:
    return isinstance(value, int) and 0 <= value <= most


def _is_side(value: Any) -> bool:
    return _is_size(value, MAX_SIDE) and value >= 8


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _are_names(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) > 1
        and all(isinstance(name, str) and name for name in value)
        and len(set(value)) == len(value)
    )


def _are_sizes(value: Any) -> bool:
    """Whether all whole numbers in an object are sizes."""
    return isinstance(value, dict) and all(_is_size(n) for _, n in _numbers(value))


def _are_refiners(value: Any) -> bool:
    return (
        isinstance(value, list) and 1 <= len(value) <= MAX_MEMBERS and all(map(_is_refiner, value))
    )


def _is_refiner(value: Any) -> bool:
    if value is None:
        return True
    widths = value.get("widths") if _are_sizes(value) else None
    return isinstance(widths, list) and 1 <= len(widths) <= 2


def _is_reference(value: Any) -> bool:
    texts = ("file", "sha256", "backbone")
    return (
        isinstance(value, dict)
        and all(isinstance(value.get(name), str) for name in texts)
        and isinstance(value.get("repository"), str | None)
    )


def _are_rules(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(rule, dict)
        and isinstance(rule.get("name"), str)
        and isinstance(rule.get("threshold"), int | float | str)
        and not math.isnan(float(rule["threshold"]))  # an infinite one is a text
        for rule in value.values()
    )


_Check = tuple[Callable[[Any], bool], str]

_REQUIRED: dict[str, _Check] = {
    "method": (lambda value: isinstance(value, str), "a text"),
    "settings": (lambda value: isinstance(value, dict), "an object"),
    "backbone": (lambda value: isinstance(value, str), "a text"),
    "classes": (_are_names, "a list of two different names or more"),
    "sizes": (_are_sizes, f"an object with whole numbers from 0 to {_MOST}"),
    "image_size": (_is_side, f"a whole number from 8 to {MAX_SIDE}"),
    "pixel_size": (_is_side, f"a whole number from 8 to {MAX_SIDE}"),
    "reject": (lambda value: isinstance(value, str), "a text"),
    "rules": (_are_rules, "objects with a name and a threshold"),
    "temperature": (lambda value: _is_number(value) and value > 0, "a number above 0"),
}
_OPTIONAL: dict[str, _Check] = {
    "members": (lambda value: _is_size(value, MAX_MEMBERS) and value, f"from 1 to {MAX_MEMBERS}"),
    "refiners": (_are_refiners, f"a list of 1 to {MAX_MEMBERS}"),
    "reference": (lambda value: value is None or _are_sizes(value), "an object, or null"),
    "known": (lambda value: isinstance(value, list) and all(map(_is_number, value)), "numbers"),
    "weights": (
        lambda value: value is None or _is_reference(value),
        "null, or an object with a file and its sha256",
    ),
    "target": (lambda value: isinstance(value, list) and all(map(_is_number, value)), "numbers"),
}


def _short(value: Any) -> Any:
    """Return a value whose `repr` is short."""
    text = reprlib.repr(value)
    return value if text == repr(value) else text
