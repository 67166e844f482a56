"""`unida table`: the results of a benchmark as tables, in Markdown, LaTeX or CSV."""

import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from unida.bench.results import Result, read_results
from unida.bench.tables.ablation import ablation_table
from unida.bench.tables.full import full_table
from unida.bench.tables.groups import Pairs, group_results
from unida.bench.tables.paper_style import PaperStyle, paper_table
from unida.bench.tables.render import Table, to_csv, to_latex, to_markdown
from unida.errors import UserError, require
from unida.training.run_folder import write_text
from unida.utils.console import say

__all__ = [
    "FORMATS",
    "PaperStyle",
    "TableCommand",
    "ablation_table",
    "full_table",
    "paper_table",
    "paper_tables",
    "run_table",
    "to_csv",
    "to_latex",
    "to_markdown",
]

Metric = Literal[
    "h", "known", "unknown", "balanced_h", "known_instance", "h_instance",
    "os", "h3", "auroc", "oscr", "nmi", "closed",
]  # fmt: skip


@dataclass(frozen=True)
class TableCommand:
    """Makes tables of the results of a benchmark, laid out like the paper's.

    Example: unida table results --out tables --format all
    """

    results: Annotated[Path, tyro.conf.Positional]
    """Folder of `unida bench`, or a .jsonl file of results. A notes.toml beside them explains rows
    of the full form by lines ENTRY = "text" under [notes], and names tasks whose target labels
    chose settings by a line searched = [["Art", "Product"]]."""
    out: Path | None = None
    """Folder for tables.md, tables.tex and tables.csv; standard output if left out."""
    format: Literal["md", "tex", "csv", "all"] = "md"
    """Markdown, LaTeX (booktabs), CSV with a line for every number, or all three (with --out)."""
    rule: Literal["own", "mixture", "both"] = "both"
    """Reject rule."""
    metric: Metric = "h"
    """Score shown by the paper's layout. Published numbers are H and only shown beside H."""
    published: bool = False
    """Show the published number of every task too, and methods that were only published."""
    oracle: bool = False
    """Show H of the best step by target labels, for reference, if the bench recorded it."""
    full: bool = False
    """The long form: a row for every task, method and rule, with all scores, time and size."""


FORMATS: dict[str, Callable[[Sequence[Table]], str]] = {
    "md": lambda tables: "\n".join(map(to_markdown, tables)),
    "tex": lambda tables: "\n".join(map(to_latex, tables)),
    "csv": lambda tables: to_csv(*tables),
}


def run_table(given: TableCommand) -> None:
    """Writes the tables to files or to standard output."""
    require(given.format != "all" or given.out is not None, "format", "all", "with --out FOLDER")
    results = read_results(given.results)
    notes = read_notes(given.results)
    if given.full:
        tables = [
            full_table(
                group.results,
                rule=given.rule,
                oracle=given.oracle,
                notes=notes.by_entry,
                searched=notes.searched,
            )
            for group in group_results(results)
        ]
    else:
        style = PaperStyle(given.metric, given.rule, given.oracle, given.published, notes.searched)
        tables = paper_tables(results, style)
    formats = list(FORMATS) if given.format == "all" else [given.format]
    for name in formats:
        _write(FORMATS[name](tables), given.out, f"tables.{name}")


def _write(text: str, folder: Path | None, name: str) -> None:
    if folder is None:
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
        sys.stdout.flush()
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be made: {error.strerror}.") from None
    write_text(folder / name, text)
    say(f"wrote {folder / name}")


def paper_tables(results: list[Result], style: PaperStyle | None = None) -> list[Table]:
    """A table for every data set and setting, then the ablation if its entries were run."""
    style = style or PaperStyle()
    groups = group_results(results)
    tables = [paper_table(group.results, style) for group in groups]
    for setting in dict.fromkeys(result.setting for result in results):
        of_setting = [group for group in groups if group.results[0].setting == setting]
        ablation = ablation_table(
            of_setting, metric=style.metric, rule=style.rule, searched=style.searched
        )
        tables += [ablation] if ablation else []
    return tables


@dataclass(frozen=True)
class Notes:
    """What people have to say about results.

    Attributes:
        by_entry: explanations of rows.
        searched: tasks whose target labels chose settings.
    """

    by_entry: dict[str, str] = field(default_factory=dict)
    searched: Pairs = frozenset()


def read_notes(results: Path) -> Notes:
    """What notes.toml beside the results says; nothing where there is none."""
    file = (results if results.is_dir() else results.parent) / "notes.toml"
    if not file.exists():
        return Notes()
    try:
        content = tomllib.loads(file.read_text())
        searched = frozenset((source, target) for source, target in content.pop("searched", []))
        by_entry = {str(entry): str(text) for entry, text in content.pop("notes", {}).items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f'{file} cannot be used ({error!r}): it wants lines ENTRY = "text" under [notes].'
        ) from None
    require(not content, f"a key of {file}", ", ".join(content), "notes, searched")
    return Notes(by_entry, searched)
