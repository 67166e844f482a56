"""`unida data check`: the folders of a benchmark's data set."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from unida.cli.parser import Command
from unida.errors import UserError
from unida.utils.logs import printable


@dataclass(frozen=True)
class DataCheck(Command):
    """Check the folders and image counts of a benchmark's data set.

    Example: unida data check office-home --root data/office-home --setting unda
    """

    name: Annotated[str, tyro.conf.Positional]
    """digits, domainnet, office-31, office-caltech10, office-home, visda, or the path of a .toml
    file."""
    root: Path
    """Folder of the data set, with its domains as folders."""
    setting: str | None = None
    """Check only the classes this setting needs, such as unda or oda; by default all."""
    json: bool = False
    """Print what was found as JSON."""

    def execute(self) -> None:
        """Print what was found; something missing is an error."""
        from unida.protocols.check import check
        from unida.protocols.tasks import load_protocol

        report = check(load_protocol(self.name), self.root, self.setting)
        if self.json:
            print(json.dumps(dataclasses.asdict(report), indent=2))
        else:
            console = Console()
            console.print(report.table())
            for sentence in (*report.notes, *report.problems):
                console.print(printable(sentence), markup=False, soft_wrap=True)
        if n := len(report.problems):
            counted = "one problem" if n == 1 else f"{n} problems"
            raise UserError(f"{report.title} below {self.root} has {counted}, listed above.")
