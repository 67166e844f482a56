"""A search space: the settings of a method or options of a run that are varied, and how."""

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unida.config import GROUP_OF, GROUPS, RunConfig
from unida.errors import UserError, require
from unida.methods import METHODS
from unida.methods.presets import make_settings

OPTIONS = (
    "backbone",
    "weights",
    "image_size",
    "steps",
    "batch",
    "lr",
    "backbone_lr",
    "momentum",
    "weight_decay",
    "precision",
    "reject",
    "flip",
    "jitter",
)
"""Options of a run that may be searched. The seed is none: the best one is mere luck."""

PAPERS_GRID: dict[str, tuple[str, ...]] = {
    # SAN※: the paper searches λ, β and α and prints no values. β as in the released sweeps
    # (called alpha there), α over its range; λ around the defaults with and without weights, as
    # the released λ multiplies another mean.
    "san": ("lam=0.3,1,3", "beta=0.5,0.7,0.9", "alpha=0,0.5,1"),
}
"""Default search spaces, by method."""

FORMS = "FIELD=A,B,C or FIELD=LOW..HIGH, with :log after a range to search it by factors"


@dataclass(frozen=True)
class Choices:
    """Values to try, as text."""

    values: tuple[str, ...]

    def __str__(self) -> str:
        return ",".join(self.values)


@dataclass(frozen=True)
class Range:
    """All values from `low` to `high`: integers if `whole`, on a logarithmic scale if `log`."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}" + (":log" if self.log else "")


Space = dict[str, Choices | Range]


def parse_space(texts: tuple[str, ...], config: RunConfig) -> Space:
    """Parse `FIELD=SPEC` texts; every value must be valid for the method or the run.

    Args:
        texts: none for the paper's grid, if the method has one.
        config: the run whose settings and options are varied.
    """
    texts = texts or PAPERS_GRID.get(config.method, ())
    require(bool(texts), "space", "", FORMS)
    space: Space = {}
    for text in texts:
        name, sign, spec = (part.strip() for part in text.partition("="))
        require(bool(sign and name and spec), "space", text, FORMS)
        require(name not in space, "space", text, "each field once")
        space[name] = _parse_spec(name, spec, config)
    return dict(sorted(space.items()))


def is_setting(name: str, method: str) -> bool:
    """Return whether a field is the method's; a name that method and run share is the method's."""
    return name in _names(METHODS[method].Config)


def with_values(config: RunConfig, values: Mapping[str, object]) -> RunConfig:
    """Return the run with these values of searched fields."""
    settings = {k: v for k, v in values.items() if is_setting(k, config.method)}
    options = {k: v for k, v in values.items() if k not in settings}
    return config.replace(settings=_with_settings(config, settings), **options)


def _parse_spec(name: str, spec: str, config: RunConfig) -> Choices | Range:
    kind = _type_of(name, config.method)
    if ".." in spec and kind in (int, float):
        return _parse_range(name, spec, config, whole=kind is int)
    values = tuple(value.strip() for value in spec.split(","))
    typed = [_checked(name, value, config) for value in values]
    require(len(set(typed)) == len(typed), f"space of {name}", spec, "each value once")
    return Choices(values)


def _parse_range(name: str, spec: str, config: RunConfig, whole: bool) -> Range:
    ends, sign, scale = spec.partition(":")
    require(not sign or scale == "log", f"space of {name}", spec, FORMS)
    low, high = (_checked(name, end.strip(), config) for end in ends.split("..", 1))
    ordered = low is not None and high is not None and -math.inf < low < high < math.inf
    require(ordered, f"space of {name}", spec, "LOW..HIGH with LOW below HIGH")
    require(not sign or low > 0, f"space of {name}", spec, "LOW above 0, to go by factors")
    return Range(low, high, log=bool(sign), whole=whole)


def _checked(name: str, value: str, config: RunConfig) -> Any:
    """Return the typed value; one that is invalid for the method or the run is an error."""
    if is_setting(name, config.method):
        settings = _with_settings(config, {})
        if getattr(settings, name) != getattr(type(settings)(), name):
            raise UserError(f"{name} is both in --set and in --space: leave it out of one.")
        return getattr(_with_settings(config, {name: value}), name)
    return config.replace(**{name: value}).flat()[name]


def _with_settings(config: RunConfig, values: Mapping[str, object]) -> Any:
    """Return the method's settings with these values."""
    return make_settings(config.method, {**config.flat()["settings"], **values})


def _type_of(name: str, method: str) -> Any:
    """Return the type of a field; of an optional one, the type without None."""
    settings = METHODS[method].Config
    allowed = ", ".join([*_names(settings), *OPTIONS])
    require(is_setting(name, method) or name in OPTIONS, "a field of space", name, allowed)
    owner = settings if is_setting(name, method) else GROUPS[GROUP_OF[name]]
    hint = typing.get_type_hints(owner)[name]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next(a for a in typing.get_args(hint) if a is not type(None))
    return hint


def _names(cls: type) -> list[str]:
    return [field.name for field in dataclasses.fields(cls)]
