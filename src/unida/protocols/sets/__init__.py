"""The data sets of the benchmarks as plain data: one TOML file each, and no code but this."""

import functools
import tomllib
from importlib import resources
from typing import Any


def set_names() -> list[str]:
    """The built-in data sets."""
    files = resources.files(__name__).iterdir()
    return sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml"))


@functools.cache
def read_set(name: str) -> dict[str, Any]:
    """The content of a built-in file; it is shared, so leave it as it is."""
    return tomllib.loads(resources.files(__name__).joinpath(f"{name}.toml").read_text("utf-8"))


@functools.cache
def folder_names() -> tuple[tuple[str, ...], ...]:
    """For every domain of the built-in sets the names its folder is known by."""
    contents = [read_set(name) for name in set_names()]
    return tuple(
        (domain, *content.get("folders", {}).get(domain, ()))
        for content in contents
        for domain in content["domains"]
    )
