"""`unida methods`: what there is to choose from."""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from unida.cli.parser import Command


@dataclass(frozen=True)
class Methods(Command):
    """List the methods, presets and reject rules.

    Example: unida methods
    """

    json: bool = False
    """Print everything as JSON."""

    def execute(self) -> None:
        """Print three tables, or one JSON object."""
        if self.json:
            print(json.dumps(_content(), indent=2))
        else:
            self._print_tables()

    def _print_tables(self) -> None:
        from unida.decision.rejection import RULES
        from unida.methods import METHODS
        from unida.methods.presets import PRESETS

        console = Console()
        methods = Table("--method", "paper, and when an image is unknown", box=None, padding=(0, 2))
        for name, method in METHODS.items():
            about = method.about
            rule = about.rule + (" (transductive)" if about.transductive else "")
            paper = f"{about.paper} ({about.venue}; {about.spec})"
            methods.add_row(name, Text.assemble(paper, "\n", (f"unknown if {rule}", "dim")))
        presets = Table("preset", "what it is", "settings and options", box=None, padding=(0, 2))
        for name, preset in PRESETS.items():
            values = {**preset.settings, **preset.options}
            pairs = " ".join(f"{key}={value}" for key, value in values.items())
            presets.add_row(name, preset.about, pairs)
        rules = Table("--reject", "what it does", box=None, padding=(0, 2))
        for kind in RULES.values():
            rules.add_row(Text(kind.usage), Text(kind.about))
        for table in (methods, presets, rules):
            console.print(table)
            console.print()


def _content() -> dict[str, Any]:
    """Return methods, presets and reject rules by name."""
    from unida.decision.rejection import RULES
    from unida.methods import METHODS
    from unida.methods.presets import PRESETS

    return {
        "methods": {name: dataclasses.asdict(method.about) for name, method in METHODS.items()},
        "presets": {
            name: {"about": p.about, "settings": {**p.settings}, "options": {**p.options}}
            for name, p in PRESETS.items()
        },
        "rules": {name: {"usage": kind.usage, "about": kind.about} for name, kind in RULES.items()},
    }
