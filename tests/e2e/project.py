"""A small project of images for commands, good or to be spoiled."""

from pathlib import Path

import pytest

from tests.images import write_classes, write_folder
from unida.cli.main import main

Capture = pytest.CaptureFixture[str]

SMALL = ["--backbone", "small_cnn", "--image-size", "8", "--device", "cpu"]
SMALL += ["--steps", "2", "--batch", "4"]


class Project:
    """Good source and target folders in `root`, and the command to adapt."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.source = write_classes(root / "source", {"ant": 5, "bee": 5})
        self.target = write_folder(root / "target", 6, first=50)
        self.out = root / "out"

    def command(self, *more: str) -> list[str]:
        """Later options win over earlier ones."""
        places = ["--source", str(self.source), "--target", str(self.target)]
        return ["adapt", *places, "--out", str(self.out), *SMALL, *more]


def complaint(command: list[str], capfd: Capture) -> str:
    """The one sentence on standard error of a command that fails, and nothing else."""
    capfd.readouterr()
    assert main(command) == 2, command
    shown = capfd.readouterr()
    assert shown.out == "", command
    assert shown.err.count("\n") == 1, shown.err
    assert shown.err.startswith("unida: ")
    assert shown.err.endswith((".\n", "?\n"))
    return shown.err.removeprefix("unida: ").rstrip("\n")


def remarks(command: list[str], capfd: Capture) -> str:
    """What a command that succeeds writes to standard error."""
    capfd.readouterr()
    assert main(command) == 0
    return capfd.readouterr().err
