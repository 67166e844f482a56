"""`unida methods`: what there is to choose from."""

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from unida.cli.parser import Command


@dataclass(frozen=True)
class Methods(Command):
    """List the methods, presets and reject rules.

    Example: unida methods
    """

    def execute(self) -> None:
        """Print three tables."""
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
