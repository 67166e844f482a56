"""Benchmark data sets as plain data.

Lives here: one TOML file a data set (schema: `unida.protocols.schema`), and their reader.
Does not live here: any other code; a data set is added as one file.
"""

import functools
import tomllib
from importlib import resources
from typing import Any


def set_names() -> list[str]:
    """List the built-in data sets."""
    files = resources.files(__name__).iterdir()
    return sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml"))


@functools.cache
def read_set(name: str) -> dict[str, Any]:
    """Read a built-in file; the result is cached and must not be changed."""
    return tomllib.loads(resources.files(__name__).joinpath(f"{name}.toml").read_text("utf-8"))


@functools.cache
def folder_names() -> tuple[tuple[str, ...], ...]:
    """List the names of the folder of every domain of the built-in sets."""
    contents = [read_set(name) for name in set_names()]
    return tuple(
        (domain, *content.get("folders", {}).get(domain, ()))
        for content in contents
        for domain in content["domains"]
    )
