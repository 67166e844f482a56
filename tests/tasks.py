"""A small adaptation task, and the options that make a run of it quick."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from unida.config import RunConfig
from unida.data.domain import Domain
from unida.data.pixels import ArrayStore
from unida.data.samples import Samples
from unida.methods.presets import configure
from unida.protocols.digits import uci
from unida.types import Prediction

QUICK: dict[str, Any] = {
    "backbone": "small_cnn",
    "image_size": 16,
    "batch": 8,
    "lr": 0.02,
    "steps": 20,
    "flip": False,
    "device": "cpu",
    "log_every": 5,
    "checkpoint_every": 10,
    "report": False,
}


@dataclass(frozen=True)
class Task:
    source: Path
    target: Path

    def config(self, out: Path, **options: Any) -> RunConfig:
        values = QUICK | {"source": str(self.source), "target": str(self.target), "out": str(out)}
        return configure(**(values | options))

    def arguments(self, out: Path, **options: Any) -> list[str]:
        """The same as arguments of `unida adapt`."""
        values = QUICK | {"source": self.source, "target": self.target, "out": out} | options
        args = []
        for key, value in values.items():
            flag = key.replace("_", "-")
            if isinstance(value, bool):
                args.append(f"--{flag}" if value else f"--no-{flag}")
            else:
                args += [f"--{flag}", str(value)]
        return args


def labelled(images: Tensor, n_classes: int = 4) -> Domain:
    """Images in memory as a source domain, their classes in turn."""
    paths = tuple(Path(f"{number}.png") for number in range(len(images)))
    samples = Samples(paths, np.arange(len(images)) % n_classes, tuple("abcdefgh"[:n_classes]))
    return Domain(samples, ArrayStore(images), torch.device("cpu"))


def assert_alike(first: Sequence[Prediction], second: Sequence[Prediction]) -> None:
    """The same predictions; the last bits of numbers hang on where in memory the weights lie."""
    for one, other in zip(first, second, strict=True):
        assert (one.path, one.label, one.rule) == (other.path, other.label, other.rule)
        numbers = [(p.confidence, p.unknown_score) for p in (one, other)]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-4, abs=1e-5)


def write_task(
    root: Path, known: Iterable[int], target: Iterable[int], count: int, shift: bool = True
) -> Task:
    """Real handwritten digits, so many a class; the target is drawn brighter by default."""
    images, labels = uci()
    for role, digits in (("source", known), ("target", target)):
        for digit in digits:
            numbers = np.flatnonzero(labels == digit)
            numbers = numbers[:count] if role == "source" else numbers[-count:]
            folder = root / role / str(digit)
            folder.mkdir(parents=True)
            for i in numbers:
                plain = role == "source" or not shift
                pixels = images[i] if plain else images[i] // 2 + 100
                Image.fromarray(pixels).save(folder / f"{i:04}.png")
    return Task(root / "source", root / "target")
