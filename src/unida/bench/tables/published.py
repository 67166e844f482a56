"""The paper's printed numbers, and where they contradict themselves."""

import functools
import re
import tomllib
from dataclasses import dataclass
from importlib import resources
from statistics import mean
from typing import Any

Classes = tuple[int, int, int]
"""Numbers of shared, source-private and target-private classes."""

ROUNDING = 0.05 + 1e-9
"""Largest difference of a mean and its printed value with one decimal."""


@dataclass(frozen=True)
class Note:
    """A remark on a table; `about` names the rows (or data sets) it concerns, none for all."""

    text: str
    about: tuple[str, ...] = ()

    def concerns(self, shown: list[str]) -> bool:
        return not self.about or bool(set(self.about) & set(shown))


@dataclass(frozen=True)
class PublishedRow:
    """A printed row: H in % by task, and the printed average (None where there is one task)."""

    name: str
    values: dict[str, float]
    average: float | None

    @property
    def overall(self) -> float:
        """Return the printed average, or the number of the only task."""
        return next(iter(self.values.values())) if self.average is None else self.average

    @property
    def everything(self) -> dict[str, float]:
        """Return all printed numbers, the average as `Avg`."""
        return self.values | ({} if self.average is None else {"Avg": self.average})

    @property
    def recomputed(self) -> float:
        return mean(self.values.values())

    @property
    def is_slip(self) -> bool:
        """Return whether the printed average differs from that of the printed tasks."""
        return abs(self.recomputed - self.overall) > ROUNDING


@dataclass(frozen=True)
class PublishedTable:
    """The rows of one data set and setting."""

    number: int
    data: str
    setting: str
    classes: Classes
    rows: dict[str, PublishedRow]
    notes: tuple[Note, ...]

    def remarks(self, shown: list[str]) -> list[str]:
        """Return inconsistent averages, then the notes, that concern the rows shown."""
        slips = [
            f"{row.name}'s published average is printed as {row.overall:.1f}; its printed tasks "
            f"average to {row.recomputed:.2f}."
            for row in self.rows.values()
            if row.is_slip and row.name in shown
        ]
        return slips + [note.text for note in self.notes if note.concerns(shown)]


@dataclass(frozen=True)
class PaperData:
    """A data set of the paper: accepted names, letters of domains, tasks in order."""

    key: str
    title: str
    names: tuple[str, ...]
    domains: dict[str, str]
    tasks: tuple[str, ...]

    def task(self, source: str, target: str) -> str | None:
        """Return the paper's name of a task, such as A2C; None for one it does not have."""
        letters = [self.domains.get(_plain(name)) for name in (source, target)]
        name = "2".join(letter or "" for letter in letters)
        return name if name in self.tasks else None


@dataclass(frozen=True)
class Ablation:
    """The paper's ablation: average H in % by row and data set."""

    number: int
    setting: str
    entries: dict[str, str]
    rows: dict[str, dict[str, float]]
    notes: tuple[Note, ...]

    @property
    def names(self) -> dict[str, str]:
        """Return our entries, each with the printed name of its row."""
        return {entry: name for name, entry in self.entries.items()}


@dataclass(frozen=True)
class Paper:
    """Everything of published.toml."""

    name: str
    caveat: str
    entries: dict[str, str]
    data: dict[str, PaperData]
    tables: tuple[PublishedTable, ...]
    ablation: Ablation

    def find_data(self, name: str) -> PaperData | None:
        return next((data for data in self.data.values() if _plain(name) in data.names), None)

    def find_table(self, data: PaperData, setting: str) -> PublishedTable | None:
        fits = (t for t in self.tables if (t.data, t.setting) == (data.key, _plain(setting)))
        return next(fits, None)

    def printed_name(self, entry: str) -> str | None:
        """Return the paper's name of one of our entries."""
        return next((name for name, ours in self.entries.items() if ours == entry), None)


@functools.cache
def paper() -> Paper:
    """Read published.toml, which comes with the package."""
    file = resources.files("unida.bench.tables") / "published.toml"
    values = tomllib.loads(file.read_text(encoding="utf-8"))
    ablation = values["ablation"]
    return Paper(
        name=values["paper"],
        caveat=values["caveat"],
        entries=values["entries"],
        data={key: _data(key, value) for key, value in values["data"].items()},
        tables=tuple(_table(value) for value in values["tables"]),
        ablation=Ablation(
            ablation["number"],
            ablation["setting"],
            ablation["entries"],
            ablation["rows"],
            _notes(ablation, "data"),
        ),
    )


def _data(key: str, value: dict[str, Any]) -> PaperData:
    return PaperData(
        key, value["title"], tuple(value["names"]), value["domains"], tuple(value["tasks"])
    )


def _table(value: dict[str, Any]) -> PublishedTable:
    shared, source, target = value["classes"]
    return PublishedTable(
        number=value["number"],
        data=value["data"],
        setting=value["setting"],
        classes=(shared, source, target),
        rows={name: _row(name, dict(numbers)) for name, numbers in value["rows"].items()},
        notes=_notes(value, "methods"),
    )


def _row(name: str, numbers: dict[str, float]) -> PublishedRow:
    average = numbers.pop("avg", None)
    return PublishedRow(name, numbers, average)


def _notes(value: dict[str, Any], about: str) -> tuple[Note, ...]:
    return tuple(Note(n["text"], tuple(n.get(about, ()))) for n in value.get("notes", ()))


def _plain(name: str) -> str:
    """Normalise a name: 'Office-Home' and 'office_home' are the same."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
