"""The committed analyses are what the command makes."""

import csv
from pathlib import Path

import pytest

from unida.bench.entries import parse_entry
from unida.bench.figures import pair_losses
from unida.bench.figures.run import FIGURES, to_csv
from unida.bench.figures.run_selection import Choice
from unida.bench.figures.sheet import FigureData
from unida.bench.results import read_runs
from unida.bench.run import resolve_entries

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "analyses"
RESULTS = ROOT / "benchmarks" / "results" / "office-home"


def numbers(text: str) -> list[list[float | str]]:
    def cell(text: str) -> float | str:
        try:
            return float(text)
        except ValueError:
            return text

    return [[cell(part) for part in row] for row in csv.reader(text.splitlines())]


@pytest.mark.parametrize(
    ("name", "data"),
    [("difference", pair_losses.difference), ("gradients", pair_losses.gradients)],
)
def test_the_committed_numbers_are_those_of_the_losses(name: str, data: object) -> None:
    assert callable(data)
    made = data()
    assert isinstance(made, FigureData)
    committed = numbers((FOLDER / f"{name}.csv").read_text())
    for ours, theirs in zip(numbers(to_csv(made)), committed, strict=True):
        assert ours == [
            pytest.approx(x, rel=1e-6, abs=1e-9) if isinstance(x, float) else x for x in theirs
        ]


def test_every_page_shows_a_figure_that_is_there() -> None:
    for kind in ("gradients", "difference", "snr"):
        text = (FOLDER / f"{kind}.md").read_text()
        assert f"]({kind}.png)" in text
        assert f"]({kind}.csv)" in text
        assert (FOLDER / f"{kind}.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("place", "kind", "rule", "name"),
    [
        ("frozen/label-noise", "noise", "own", "noise-office-home-unda-own"),
        ("frozen/label-noise", "noise", "share", "noise-office-home-unda-share"),
        ("frozen/unknown-classes", "unknowns", "own", "unknowns-office-home-unda-own"),
        ("frozen/unknown-classes", "unknowns", "share", "unknowns-office-home-unda-share"),
        ("finetuned/view-noise", "views", "own", "views-office-home-unda"),
    ],
)
def test_the_committed_curves_are_those_of_the_results(
    place: str, kind: str, rule: str, name: str
) -> None:
    runs = read_runs(RESULTS / place)
    if kind == "views":  # one task only was run; the page says so
        runs = [run for run in runs if run.result.entry != "san-no-scl:crop=0.1"]
    made = to_csv(FIGURES[kind].prepare(runs, Choice(rule)))
    assert (FOLDER / f"{name}.csv").read_text() == made
    assert (FOLDER / f"{name}.png").stat().st_size > 10_000


def test_the_group_views_is_each_loss_at_each_strength() -> None:
    settings = [parse_entry(entry).config({}).settings for entry in resolve_entries("views")]
    found = {(one.contrast, one.crop) for one in settings}
    assert found == {
        (contrast, crop)
        for contrast in ("scaled", "info_nce", "none")
        for crop in (0.9, 0.7, 0.5, 0.3, 0.1)
    }
