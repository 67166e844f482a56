"""A command line as a frozen dataclass: its fields are the options, their docstrings the help."""

import dataclasses
import typing
from collections.abc import Iterator
from typing import Annotated, TypeVar

import tyro

from unida.config import RENAMED, RunConfig, current_options
from unida.errors import require
from unida.methods.presets import RunOptions, configure, find_preset

T = TypeVar("T")
R = TypeVar("R", bound=RunOptions)


def parse(kind: type[T], command: str, args: list[str], default: T | None = None) -> T:
    """Parse the options of a command; a wrong one, and --help, end it with a message."""
    return tyro.cli(
        kind,
        prog=f"unida {command}",
        args=_joined(_current(args), set(_lists(kind))),
        default=tyro.MISSING_NONPROP if default is None else default,
        config=(tyro.conf.OmitArgPrefixes,),
    )


def parse_run(kind: type[R], command: str, args: list[str], base: RunConfig | None = None) -> R:
    """Parse the options of a run; those left out are the base's, or those of the preset.

    Args:
        kind: dataclass of the command.
        command: its name.
        args: the words behind it.
        base: a run to take options from.
    """
    if base is None:
        preset = parse(kind, command, args).method
        default = dataclasses.replace(kind.of(configure(preset)), method=preset, settings=())
        return parse(kind, command, args, default)
    default = kind.of(base)
    given = parse(kind, command, args, default)
    if find_preset(given.method).method != base.method and given.settings == default.settings:
        given = dataclasses.replace(given, settings=())  # they are another method's
    return given


def _current(args: list[str]) -> list[str]:
    """Return the words with renamed options replaced."""
    words = iter(args)
    current: list[str] = []
    for word in words:
        flag, sign, value = word.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        if not flag.startswith("--") or name not in RENAMED:
            current.append(word)
            continue
        value = value if sign else next(words, "")
        require(bool(value), name, value, "a value")
        for new, text in current_options({name: value}).items():
            option = "--" + new.replace("_", "-")
            current += [option] if text is True else [option, str(text)]
    return current


def _lists(kind: type) -> Iterator[str]:
    """Yield the options that take several values."""
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        inner, *own = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
        if typing.get_origin(inner) is tuple and tyro.conf.Positional not in own:
            names = [given for one in own if (given := getattr(one, "name", None))]
            yield f"--{names[0] if names else name.replace('_', '-')}"


def _joined(args: list[str], lists: set[str]) -> list[str]:
    """Return `--set a=1 --set b=2` as `--set a=1 b=2`: of two, tyro would take the last."""
    rest: list[str] = []
    values: dict[str, list[str]] = {}
    place = rest
    for word in args:
        flag, sign, value = word.partition("=")
        if flag in lists:
            place = values.setdefault(flag, [])
            place += [value] if sign else []
        else:
            place = rest if word.startswith("--") else place
            place.append(word)
    return [*rest, *(word for flag, some in values.items() for word in (flag, *some))]
