"""`unida table`: the results of a benchmark as tables."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro

from unida.cli.parser import Command
from unida.errors import UserError, require
from unida.utils.logs import logger


@dataclass(frozen=True)
class TableCommand(Command):
    """Make tables of a benchmark's results, laid out like the paper's.

    Example: unida table results

    Example: unida table results --universal --out tables --format all
    """

    headings: ClassVar[dict[str, tuple[str, ...]]] = {
        "layout": ("universal", "full"),
        "content": ("rule", "metric", "published", "oracle"),
        "output": ("out", "format"),
    }

    results: Annotated[Path, tyro.conf.Positional]
    """Folder of `unida bench`, or a file of results (.jsonl, .jsonl.gz). A notes.toml beside them
    explains rows of the full form by lines ENTRY = "text" under [notes], and names tasks whose
    target labels chose settings by a line searched = [["Art", "Product"]]."""
    out: Path | None = None
    """Folder for tables.md, tables.tex and tables.csv; standard output if left out."""
    format: Literal["md", "tex", "csv", "all"] = "md"
    """Markdown, LaTeX (booktabs), CSV with a line for every number, or all three (with --out)."""
    rule: str = "both"
    """Reject rule."""
    metric: str = "h"
    """Score shown by the paper's layout: h, balanced_h, known, unknown, closed, auroc, … Published
    numbers are H and only shown beside H."""
    published: bool = False
    """Show the published number of every task too, and methods that were only published."""
    oracle: bool = False
    """Show H of the best step by target labels, for reference, if the bench recorded it."""
    full: bool = False
    """The long form: a row for every task, method and rule, with all scores, time and size."""
    universal: bool = False
    """Every category shift of a data set in one table (H where images are unknown, else accuracy
    with rejected images counted wrong), and the estimated shares of unknown images."""

    discover: bool = False
    """Scores of novel categories, of a bench with --discover."""

    def execute(self) -> None:
        """Write the tables to files or to standard output."""
        from unida.bench.tables.run import FORMATS, make_tables

        require(self.format != "all" or self.out is not None, "format", "all", "with --out FOLDER")
        tables = make_tables(
            self.results,
            rule=self.rule,
            metric=self.metric,
            published=self.published,
            oracle=self.oracle,
            full=self.full,
            universal=self.universal,
            discover=self.discover,
        )
        for name in FORMATS if self.format == "all" else [self.format]:
            self._write(FORMATS[name](tables), f"tables.{name}")

    def _write(self, text: str, name: str) -> None:
        from unida.training.run_folder import write_text

        if self.out is None:
            sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
            sys.stdout.flush()
            return
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{self.out} cannot be made: {error.strerror}.") from None
        write_text(self.out / name, text)
        logger.info("wrote %s", self.out / name)
