"""The examples in the docstrings of losses and building blocks run and print what they show."""

import doctest
import importlib
from pathlib import Path

import pytest

import unida

ROOT = Path(unida.__file__).parent
FILES = [path for folder in ("losses", "ops") for path in sorted((ROOT / folder).glob("[!_]*.py"))]
MODULES = ["unida.utils.schedule", *(f"unida.{f.parent.name}.{f.stem}" for f in FILES)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_every_loss_has_an_equation_a_reference_and_an_example() -> None:
    losses = importlib.import_module("unida.losses")
    for name in losses.__all__:
        text = getattr(losses, name).__doc__
        missing = [part for part in ("Returns:", "Reference:", "Example:") if part not in text]
        assert not missing, (name, missing)
        assert text.partition("\n")[0].endswith("."), name
