"""JSON without NaN and Infinity, which it does not have and most readers refuse."""

import json
import math
from typing import Any


def to_line(content: Any) -> str:
    """Return a line of JSON; a number that is not finite is null."""
    return json.dumps(finite(content), allow_nan=False) + "\n"


def finite(value: Any) -> Any:
    """Replace numbers that JSON does not have by None, in nested objects and lists."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value
