"""A small adaptation task, and the options that make a run of it quick."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unida.config import RunConfig

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
}


@dataclass(frozen=True)
class Task:
    source: Path
    target: Path

    def config(self, out: Path, **options: Any) -> RunConfig:
        values = QUICK | {"source": str(self.source), "target": str(self.target), "out": str(out)}
        return RunConfig(**(values | options))

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
