"""A command as a frozen dataclass: its fields are the options, their docstrings the help."""

import dataclasses
import inspect
import operator
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import docstring_parser
import tyro
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec
from tyro.constructors import StructTypeInfo as TypeInfo

from unida.config import RENAMED, RENAMED_VALUES, current_options
from unida.errors import UserError, require

T = TypeVar("T")

MARKERS = (tyro.conf.OmitArgPrefixes, tyro.conf.DisallowNone)
PLACEHOLDERS: dict[Any, str] = {Path: "PATH", str: "TEXT", int: "N", float: "X"}
REGISTRY = ConstructorRegistry()


class Command:
    """Base of the commands: frozen dataclasses of their options.

    Attributes:
        headings: options by the heading under which `--help` has them.
    """

    headings: ClassVar[dict[str, tuple[str, ...]]] = {}

    @classmethod
    def parse(cls, name: str, args: list[str]) -> Self:
        """Make the command from the words behind its name."""
        return parse(cls, name, args)

    def execute(self) -> None:
        """Do what the command is for."""
        raise NotImplementedError


class _BadValueError(Exception):
    """A `UserError` on its way through tyro, which would print it in its own way."""


def parse(kind: type[T], command: str, args: list[str], default: T | None = None) -> T:
    """Parse the options of a command; a wrong one, and --help, end it with a message."""
    try:
        return tyro.cli(
            kind,
            prog=f"unida {command}",
            description=inspect.getdoc(kind),
            args=_joined(_current(args, set(_names(kind))), set(_lists(kind))),
            default=tyro.MISSING_NONPROP if default is None else default,
            config=MARKERS,
            registry=REGISTRY,
        )
    except _BadValueError as error:
        raise UserError(str(error)) from None


def summary(kind: type) -> str:
    """Return the first line of a command's docstring."""
    return (kind.__doc__ or "").partition("\n")[0].rstrip(".")


def _current(args: list[str], names: set[str]) -> list[str]:
    """Return the words with renamed options of a command, which has these names, replaced."""
    words = iter(args)
    current: list[str] = []
    for word in words:
        flag, sign, value = word.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        new_names = _new_names(name)
        if not flag.startswith("--") or not new_names or not new_names <= names:
            current.append(word)
            continue
        value = value if sign else next(words, "")
        require(bool(value), name, value, "a value")
        for new, text in current_options({name: value}).items():
            option = "--" + new.replace("_", "-")
            current += [option] if text is True else [option, str(text)]
    return current


def _new_names(name: str) -> set[str]:
    """Return the options that a renamed one is now; none where it was not renamed."""
    new = name if name in RENAMED_VALUES else RENAMED.get(name)
    if new is None or isinstance(new, str):
        return {new} if new else set()
    return {key for options in new.values() for key in options}


def _names(kind: type) -> Iterator[str]:
    """Yield the fields of a command, those of groups among them."""
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(field.type):
            yield from _names(typing.cast(type, field.type))
        yield field.name


def _lists(kind: type) -> Iterator[str]:
    """Yield the options that take several values, those of groups among them."""
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        inner, *own = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
        if dataclasses.is_dataclass(inner):
            yield from _lists(typing.cast(type, inner))
        elif typing.get_origin(inner) is tuple and tyro.conf.Positional not in own:
            yield _flag(name, own)


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


def list_options(kind: type) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the options of a command, those of groups among them, with the allowed values."""
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        inner, *own = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
        if dataclasses.is_dataclass(inner):
            yield from list_options(typing.cast(type, inner))
        elif tyro.conf.Positional not in own:
            flag = _flag(name, own)
            allowed = typing.get_args(inner) if typing.get_origin(inner) is Literal else ()
            yield flag, tuple(map(str, allowed))
            if inner is bool:
                yield f"--no-{flag.removeprefix('--')}", ()


def _flag(name: str, own: list[Any]) -> str:
    """Return the option of a field, which its annotation may name."""
    names = [given for one in own if (given := getattr(one, "name", None))]
    return f"--{names[0] if names else name.replace('_', '-')}"


class _Section:
    """Options under a heading of their own; a subclass holds those of one heading."""

    fields: ClassVar[tuple[StructFieldSpec, ...]] = ()


@REGISTRY.struct_rule
def _section(info: TypeInfo) -> StructConstructorSpec | None:
    """Read the options of a heading as a dict."""
    if not (isinstance(info.type, type) and issubclass(info.type, _Section)):
        return None
    return StructConstructorSpec(instantiate=dict, fields=info.type.fields)


@REGISTRY.struct_rule
def _options(info: TypeInfo) -> StructConstructorSpec | None:
    """Read a dataclass as tyro does; help texts, placeholders and headings are our own."""
    cls = info.type
    if not dataclasses.is_dataclass(cls):
        return None

    def instantiate(**values: Any) -> Any:
        try:
            return _build(cls, values)
        except UserError as error:
            raise _BadValueError(str(error)) from None

    return StructConstructorSpec(instantiate=instantiate, fields=tuple(_fields(cls, info.default)))


def _fields(cls: Any, default: Any) -> Iterator[StructFieldSpec]:
    """Yield the fields of a dataclass: those under no heading, and a section for each heading.

    The class attribute `headings` maps a heading to the names of its fields. A field that is a
    dataclass with headings gives its sections in its place.
    """
    hints = typing.get_type_hints(cls, include_extras=True)
    docs = {
        param.arg_name: " ".join((param.description or "").split())
        for base in reversed(cls.__mro__[:-1])
        for param in docstring_parser.parse_from_object(base).params
    }

    def default_of(field: "dataclasses.Field[Any]") -> Any:
        if isinstance(default, cls):
            return getattr(default, field.name)
        if field.default_factory is not dataclasses.MISSING:
            return field.default_factory()
        return tyro.MISSING_NONPROP if field.default is dataclasses.MISSING else field.default

    specs: dict[str, StructFieldSpec] = {}
    for field in dataclasses.fields(cls):
        if _headings(field.type):
            yield from _fields(field.type, default_of(field))
            continue
        specs[field.name] = StructFieldSpec(
            name=field.name,
            type=_shown(hints[field.name], field.name),
            default=default_of(field),
            helptext=docs.get(field.name),
        )
    for heading, names in _headings(cls).items():
        section = type(heading, (_Section,), {"fields": tuple(specs.pop(name) for name in names)})
        yield StructFieldSpec(name=heading, type=section, default=tyro.MISSING_NONPROP)
    yield from specs.values()


def _build(cls: Any, values: dict[str, Any]) -> Any:
    """Make a dataclass from the values of its fields and sections."""
    own: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if _headings(field.type):
            own[field.name] = _build(field.type, values)
        elif field.name in values:
            own[field.name] = values[field.name]
    for heading, names in _headings(cls).items():
        own |= {name: values[heading][name] for name in names}
    return cls(**own)


def _headings(kind: Any) -> dict[str, tuple[str, ...]]:
    """Return the headings of a dataclass; none of any other type."""
    return getattr(kind, "headings", {}) if dataclasses.is_dataclass(kind) else {}


def _shown(hint: Any, name: str) -> Any:
    """Return the type of a field with how it is shown; what the field says itself comes first."""
    kind, *own = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    if dataclasses.is_dataclass(kind):
        return hint
    placeholder = _placeholder(kind)
    if tyro.conf.Positional in own:
        several = typing.get_origin(kind) is tuple
        placeholder = f"{name.upper().removesuffix('S')} ..." if several else name.upper()
    shown = tyro.conf.arg(metavar=placeholder, help_behavior_hint=_default_in_words)
    return operator.getitem(Annotated, (kind, shown, *own))


def _placeholder(kind: Any) -> str | None:
    """Return what stands for a value: TEXT in `--method TEXT`; None leaves it to tyro."""
    parts = [part for part in typing.get_args(kind) if part not in (type(None), Ellipsis)]
    if typing.get_origin(kind) in (typing.Union, types.UnionType) and len(parts) == 1:
        return _placeholder(parts[0])
    if typing.get_origin(kind) is tuple:
        return f"{_placeholder(parts[0])} ..."
    if typing.get_origin(kind) is Literal and any("," in part for part in parts):
        return "|".join(parts)
    return PLACEHOLDERS.get(kind)


def _default_in_words(default: str) -> str:
    """Return nothing for a default that says nothing."""
    return "" if default in ("None", "", "''", "False") else f"(default: {default})"
