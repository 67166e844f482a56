"""The examples read a file as `unida` does, whatever kind of image it is."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from unida.data.decode import to_square

EXAMPLES = Path(__file__).parents[1] / "examples"


def to_rgb_of(example: str) -> Callable[[Image.Image], Image.Image]:
    """The function of that name, without running the script."""
    tree = ast.parse((EXAMPLES / example).read_text())
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    names: dict[str, Any] = {"Image": Image}
    exec(compile(tree, example, "exec"), names)
    found: Callable[[Image.Image], Image.Image] = names["to_rgb"]
    return found


def grey16() -> Image.Image:
    return Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000)


def see_through() -> Image.Image:
    draws = np.random.default_rng(0)
    return Image.fromarray(draws.integers(0, 256, (8, 8, 4), np.uint8), "RGBA")


@pytest.mark.parametrize("example", ["use_onnx.py", "use_torch.py"])
@pytest.mark.parametrize("make", [grey16, see_through])
def test_pixels_are_those_of_unida(
    example: str, make: Callable[[], Image.Image], tmp_path: Path
) -> None:
    make().save(tmp_path / "x.png")
    with Image.open(tmp_path / "x.png") as image:
        pixels = np.asarray(to_rgb_of(example)(image)).transpose(2, 0, 1)
        assert np.array_equal(pixels, to_square(image, 8))
