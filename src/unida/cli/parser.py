"""A command line as a frozen dataclass: its fields are the options, their docstrings the help."""

import ast
import dataclasses
import inspect
import itertools
import textwrap
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

T = TypeVar("T")

PLACEHOLDERS: dict[Any, str] = {Path: "PATH", str: "TEXT", int: "N", float: "X"}
NOTHING = ("None", "", "''")
"""Defaults that say nothing: what is done without the option is in its help."""

REGISTRY = ConstructorRegistry()


def parse(kind: type[T], command: str, args: list[str], default: T | None = None) -> T:
    """The options of a command; a wrong one, and --help, end it with a message."""
    start = tyro.MISSING_NONPROP if default is None else default
    words = _joined(args, set(_lists(kind)))
    return tyro.cli(kind, prog=f"unida {command}", args=words, default=start, registry=REGISTRY)


def _lists(kind: type) -> Iterator[str]:
    """The options that take several values."""
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        inner, *own = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
        if typing.get_origin(inner) is tuple and tyro.conf.Positional not in own:
            names = [given for one in own if (given := getattr(one, "name", None))]
            yield f"--{names[0] if names else name.replace('_', '-')}"


def _joined(args: list[str], lists: set[str]) -> list[str]:
    """`--set a=1 --set b=2` as `--set a=1 b=2`: of two, tyro would take the last."""
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


@REGISTRY.struct_rule
def _options(info: StructTypeInfo) -> StructConstructorSpec | None:
    """As tyro reads a dataclass, but for how it is shown."""
    if not dataclasses.is_dataclass(info.type):
        return None
    hints = typing.get_type_hints(info.type, include_extras=True)
    docs = dict(_docstrings(info.type))
    given = isinstance(info.default, info.type)
    return StructConstructorSpec(
        instantiate=info.type,
        fields=tuple(
            StructFieldSpec(
                name=field.name,
                type=_shown(hints[field.name], field.name),
                default=getattr(info.default, field.name) if given else _default(field),
                helptext=docs.get(field.name),
            )
            for field in dataclasses.fields(info.type)
        ),
    )


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return tyro.MISSING_NONPROP if field.default is dataclasses.MISSING else field.default


def _shown(hint: Any, name: str) -> Any:
    """The type of a field with how it is shown; what the field itself says of that comes first."""
    kind, *own = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    placeholder = _placeholder(kind)
    if tyro.conf.Positional in own:
        several = typing.get_origin(kind) is tuple
        placeholder = f"{name.upper().removesuffix('S')} ..." if several else name.upper()
    shown = tyro.conf.arg(metavar=placeholder, help_behavior_hint=_default_in_words)
    return Annotated.__class_getitem__((kind, shown, *own))  # type: ignore[attr-defined]


def _placeholder(kind: Any) -> str | None:
    """What stands for a value: TEXT in `--method TEXT`; None leaves it to tyro."""
    parts = [part for part in typing.get_args(kind) if part not in (type(None), Ellipsis)]
    if typing.get_origin(kind) in (typing.Union, types.UnionType) and len(parts) == 1:
        return _placeholder(parts[0])
    if typing.get_origin(kind) is tuple:
        return f"{_placeholder(parts[0])} ..."
    return PLACEHOLDERS.get(kind)


def _default_in_words(default: str) -> str:
    return "" if default in NOTHING else f"(default: {default})"


def _docstrings(kind: type) -> Iterator[tuple[str, str]]:
    """The string below each field, in one line; those of the class itself last."""
    for cls in reversed(kind.__mro__):
        if dataclasses.is_dataclass(cls):
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
            body = tree.body if isinstance(tree, ast.ClassDef) else []
            for field, below in itertools.pairwise(body):
                if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                    text = ast.literal_eval(below.value)
                    yield ast.unparse(field.target), " ".join(text.split())
