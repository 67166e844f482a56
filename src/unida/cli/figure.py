"""`unida figure`: the results of a benchmark as figures."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from unida.cli.parser import Command


@dataclass(frozen=True)
class Figure(Command):
    """Draw the paper's figures from results, each as PNG, SVG and CSV.

    Example: unida figure results --kinds noise,tsne

    Example: unida figure results --kinds scores --task "amazon -> dslr"
    """

    headings: ClassVar[dict[str, tuple[str, ...]]] = {
        "content": ("kinds", "rule"),
        "selection": ("task", "entries", "seed"),
        "output": ("out",),
    }

    results: Annotated[Path | None, tyro.conf.Positional] = None
    """Folder of a bench, or a file of results; features and losses need the folder. gradients,
    difference and snr need none."""
    kinds: tuple[str, ...] = ("all",)
    """Which: noise, unknowns, ablation, tsne, tsne-z, curves, scores, views, or all that the
    results allow; and of the losses themselves gradients, difference, snr."""
    out: Path | None = None
    """Folder to write to; by default figures in the folder of the results, or figures."""
    rule: str = "own"
    """Reject rule whose scores are shown."""
    task: str | None = None
    """Only this task, as in 'amazon -> dslr'; by default all, or the first where one is shown."""
    entries: tuple[str, ...] = ()
    """Only these methods and variants."""
    seed: int | None = None
    """Seed of the runs in tsne and scores; by default the first."""

    def execute(self) -> None:
        """Draw the figures."""
        from unida.bench.figures.run import draw_figures

        draw_figures(
            self.results,
            self.out,
            kinds=self.kinds,
            rule=self.rule,
            task=self.task,
            entries=self.entries,
            seed=self.seed,
        )
