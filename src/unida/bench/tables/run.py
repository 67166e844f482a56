"""The results of a benchmark as tables, in Markdown, LaTeX or CSV."""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unida.bench.results import Result, read_results
from unida.bench.tables.ablation import ablation_table
from unida.bench.tables.discovery import discovery_tables
from unida.bench.tables.full import full_table
from unida.bench.tables.groups import Pairs, group_results
from unida.bench.tables.paper_style import PaperStyle, paper_table
from unida.bench.tables.render import Table, to_csv, to_latex, to_markdown
from unida.bench.tables.universal import universal_tables
from unida.errors import UserError, require

__all__ = [
    "FORMATS",
    "PaperStyle",
    "ablation_table",
    "discovery_tables",
    "full_table",
    "make_tables",
    "paper_table",
    "paper_tables",
    "to_csv",
    "to_latex",
    "to_markdown",
    "universal_tables",
]

FORMATS: dict[str, Callable[[Sequence[Table]], str]] = {
    "md": lambda tables: "\n".join(map(to_markdown, tables)),
    "tex": lambda tables: "\n".join(map(to_latex, tables)),
    "csv": lambda tables: to_csv(*tables),
}


def make_tables(
    place: Path,
    *,
    rule: str = "both",
    metric: str = "h",
    published: bool = False,
    oracle: bool = False,
    full: bool = False,
    universal: bool = False,
    discover: bool = False,
) -> list[Table]:
    """Make the tables of a benchmark.

    Args:
        place: folder of results, or a file of them; notes.toml beside it is read.
        rule: a reject rule, or `both` for all that were recorded.
        metric: score shown by the paper's layout.
        published: show published numbers of every task too.
        oracle: show H of the best step by target labels.
        full: the long form, with all scores, time and size.
        universal: every category shift of a data set in one table.
        discover: scores of novel categories.
    """
    require(not (full and universal), "universal", True, "False with full")
    require(not (discover and (full or universal)), "discover", True, "False with full, universal")
    results, notes = read_results(place), read_notes(place)
    if discover:
        return discovery_tables(results)
    if universal:
        return universal_tables(results, rule=rule, searched=notes.searched)
    if not full:
        return paper_tables(results, PaperStyle(metric, rule, oracle, published, notes.searched))
    return [
        full_table(
            group.results,
            rule=rule,
            oracle=oracle,
            notes=notes.by_entry,
            searched=notes.searched,
        )
        for group in group_results(results)
    ]


def paper_tables(results: list[Result], style: PaperStyle | None = None) -> list[Table]:
    """Return a table for every data set and setting, and the ablation if its entries were run."""
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
    """Notes on results, written by people.

    Attributes:
        by_entry: explanations of rows.
        searched: tasks whose target labels were used to choose settings.
    """

    by_entry: dict[str, str] = field(default_factory=dict)
    searched: Pairs = frozenset()


def read_notes(results: Path) -> Notes:
    """Read notes.toml beside the results; empty where there is none."""
    file = (results if results.is_dir() else results.parent) / "notes.toml"
    if not file.exists():
        return Notes()
    try:
        content = tomllib.loads(file.read_text())
        searched = frozenset((source, target) for source, target in content.pop("searched", []))
        by_entry = {str(entry): str(text) for entry, text in content.pop("notes", {}).items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f'{file} cannot be used ({error!r}): it needs lines ENTRY = "text" under [notes].'
        ) from None
    require(not content, f"a key of {file}", ", ".join(content), "notes, searched")
    return Notes(by_entry, searched)
