"""Lines of JSON that any reader takes."""

import json
from typing import Any

import numpy as np

from unida.utils.json_text import finite, to_line


def refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def test_numbers_that_json_does_not_have_are_null() -> None:
    content: dict[str, Any] = {
        "a": [float("nan"), (np.float64("-inf"), 1.5)],
        "b": {"c": float("inf"), "d": True, "e": None, "f": 7},
    }
    line = to_line(content)
    assert line.endswith("}\n")
    assert json.loads(line, parse_constant=refuse) == finite(content)
    assert finite(content) == {
        "a": [None, [None, 1.5]],
        "b": {"c": None, "d": True, "e": None, "f": 7},
    }
