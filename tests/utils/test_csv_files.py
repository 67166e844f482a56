"""CSV files: any cell comes back, and none is a formula where a spreadsheet opens the file."""

import csv
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unida.data.samples import read_labelled
from unida.training.predictions import prediction_lines, read_predictions
from unida.training.run_folder import write_lines, write_text
from unida.types import Prediction
from unida.utils.csv_files import from_cell, read_csv, to_cell, to_csv

FORMULAS = [
    "=1+1",
    "+1+1",
    "-1+1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "=cmd|' /C calc'!A0",
    "--1",
    "-x.png",
]
NUMBERS = ["-1", "+2.5", "-1e-05", "-.5", "0", "7", "-inf", "nan"]


@given(st.text(st.sampled_from("'=+-@\t\r1ex.")) | st.text())
def test_any_cell_comes_back_and_is_a_number_or_no_formula(text: str) -> None:
    cell = to_cell(text)
    assert from_cell(cell) == text
    assert not cell.startswith(("=", "@", "\t", "\r"))
    assert not cell.startswith(("+", "-")) or re.fullmatch(
        r".(inf|nan|[\d.]+(e.?\d+)?)", cell, re.I
    )


def test_numbers_and_plain_texts_stay_as_they_are() -> None:
    for text in (*NUMBERS, "a.png", "/a/=b.png", "it's", "'quoted'", "a=b", ""):
        assert to_cell(text) == text


@pytest.mark.parametrize("name", FORMULAS)
def test_predictions_hold_no_formula_and_are_read_back(name: str, tmp_path: Path) -> None:
    place = tmp_path / "predictions.csv"
    write_lines(place, prediction_lines([Prediction(Path(name), name, 0.5, -1.25, "own")]))
    with place.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["path"] == row["label"] == f"'{name}"
    assert row["unknown_score"] == "-1.25"
    table = read_predictions(place)
    assert (table.paths, table.labels, table.unknown_score.tolist()) == ([name], [name], [-1.25])


def test_a_list_that_was_written_is_read_as_images(tmp_path: Path) -> None:
    rows = [(name, name) for name in FORMULAS if name.strip() == name]
    write_text(tmp_path / "source.csv", to_csv(("path", "label"), rows))
    samples = read_labelled(tmp_path / "source.csv")
    assert samples.labels is not None
    labels = [samples.classes[k] for k in samples.labels]
    found = [
        (str(path.relative_to(tmp_path)), label)
        for path, label in zip(samples.paths, labels, strict=True)
    ]
    assert found == rows


def test_other_columns_are_left_out(tmp_path: Path) -> None:
    write_text(tmp_path / "a.csv", to_csv(("b", "a"), [("1", "=2")]))
    assert read_csv(tmp_path / "a.csv", ("a",)) == [{"a": "=2"}]
