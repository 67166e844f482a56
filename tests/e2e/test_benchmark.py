"""The researcher's way: a bench on the demo's data, killed and resumed, to tables and figures."""

import csv
from pathlib import Path

import pytest

from tests.processes import UNIDA, started, wait_for
from unida.bench.results import read_results
from unida.cli.main import main

pytestmark = pytest.mark.slow

STEPS = 8


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2 methods × 2 seeds; the bench and its runs were killed on the way."""
    out = tmp_path_factory.mktemp("digits") / "results"
    command = [
        *("bench", "digits", "--methods", "source_only,san", "--seeds", "2"),
        *("--tasks", "mnist-uci", "--workers", "2", "--runs-per-worker", "2"),
        *("--out", str(out)),
        *("--option", f"steps={STEPS}", "log_every=4", "checkpoint_every=4", "device=cpu"),
    ]
    with started([*UNIDA, *command]) as bench:
        wait_for(lambda: len(list(out.glob("runs/*/result.jsonl"))) >= 1, bench)
        bench.kill()
    before = {file: file.stat().st_mtime_ns for file in out.glob("runs/*/result.jsonl")}
    assert 1 <= len(before) < 4
    assert main(command) == 0
    assert {file: file.stat().st_mtime_ns for file in before} == before  # none was done again
    return out


def test_all_runs_are_there_and_only_those(results: Path) -> None:
    found = {(r.entry, r.source, r.target, r.seed) for r in read_results(results)}
    entries = ("source_only", "san")
    assert found == {(e, "mnist", "uci", seed) for e in entries for seed in (0, 1)}
    assert len(list((results / "runs").iterdir())) == 4


def test_the_table_has_means_over_seeds_and_its_settings(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["table", str(results)]) == 0
    shown = capsys.readouterr().out
    for word in ("mnist → uci", "±", "Last step", f"steps {STEPS}", "small_cnn", "commit"):
        assert word in shown
    h = {r.row: [] for r in read_results(results)}
    for r in read_results(results):
        if r.source == "mnist":
            h[r.row].append(100 * (r.rules["own"].scores["h"] or 0.0))
    for name, (first, second) in h.items():
        row = next(x for x in shown.splitlines() if x.startswith(f"| {name} | own |"))
        assert f"{(first + second) / 2:.1f} ± {abs(first - second) / 2**0.5:.1f}" in row
    assert main(["table", str(results), "--format", "all", "--full", "--out", str(results)]) == 0
    assert {f.suffix for f in results.glob("tables.*")} == {".md", ".tex", ".csv"}


def test_the_figures_come_with_their_data(results: Path) -> None:
    assert main(["figure", str(results)]) == 0
    for kind in ("tsne", "curves", "scores"):
        name = results / "figures" / f"{kind}-digits-unda"
        for suffix in (".png", ".svg"):
            assert name.with_suffix(suffix).stat().st_size > 5000
        with name.with_suffix(".csv").open(newline="") as file:
            assert len(list(csv.DictReader(file))) > 10
