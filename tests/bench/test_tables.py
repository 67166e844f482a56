"""Tables against means and deviations computed by hand; nothing mixed, nothing hidden."""

import csv
import dataclasses
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from unida.bench.results import Result, RuleResult, from_json, to_json
from unida.bench.tables.render import Table
from unida.bench.tables.run import (
    PaperStyle,
    full_table,
    paper_table,
    paper_tables,
    to_csv,
    to_latex,
    to_markdown,
)
from unida.cli.table import TableCommand
from unida.errors import UserError

OFFICE = [("amazon", "dslr"), ("amazon", "webcam"), ("dslr", "amazon"), ("dslr", "webcam"),
          ("webcam", "dslr"), ("webcam", "amazon")]  # fmt: skip
OPTIONS = {
    "steps": 2000, "batch": 36, "image_size": 224, "lr": 0.01, "backbone": "resnet50",
    "weights": "resnet50.safetensors", "precision": "bf16", "reject": "mixture",
}  # fmt: skip


def make(h: float = 0.5, **changes: Any) -> Result:
    """A run of SAN on A2D of Office UNDA with that H under `own`, and 0.1 more under `mixture`."""
    in_force = changes.pop("in_force", "mixture")
    options = OPTIONS | changes.pop("options", {})

    def scores(value: float) -> dict[str, float | None]:
        return {"h": value, "known": 0.8, "unknown": 0.4, "balanced_h": 0.6, "h3": None}

    values: dict[str, Any] = {
        "data": "office-31", "setting": "unda", "source": "amazon", "target": "dslr",
        "entry": "san", "method": "san", "refine": "none",
        "seed": 0, "label_noise": 0.0, "unknown_classes": 11,
        "known_classes": [f"k{k}" for k in range(20)],
        "shared_classes": [f"k{k}" for k in range(10)],
        "images": {"source": 9, "target": 8, "unknown": 4},
        "options": options, "settings": {"lam": 1.0},
        "rules": {
            "own": RuleResult("own", 0.0, "", scores(h), []),
            "mixture": RuleResult(in_force, 0.0, "", scores(h + 0.1), []),
        },
        "ranking": {"auroc": 0.9, "oscr": 0.7, "nmi": 0.3, "closed": 0.95},
        "seconds": 12.0, "parameters": 1234567,
        "made_with": {"unida": "0.1.0", "torch": "2.11", "commit": "abc123", "device": "H200"},
    }  # fmt: skip
    return Result(**(values | changes))


def office(entry: str = "san", seeds: tuple[int, ...] = (0, 1, 2), **changes: Any) -> list[Result]:
    """All six tasks; H is 0.50, 0.51 … by task, and 0.02 more a seed."""
    method = changes.pop("method", entry.split("-")[0])
    return [
        make(0.5 + 0.01 * k + 0.02 * seed, entry=entry, method=method, seed=seed,
             source=source, target=target, **changes)
        for k, (source, target) in enumerate(OFFICE)
        for seed in seeds
    ]  # fmt: skip


def digits(**changes: Any) -> Result:
    """A run on data the paper does not have."""
    return make(**({"data": "digits", "source": "mnist", "target": "uci"} | changes))


def row(table: Table, label: str, rule: str = "own") -> dict[str, str]:
    found = [r for r in table.rows if r[0] == label and r[1].startswith(rule)]
    assert len(found) == 1, table.rows
    return dict(zip(table.columns, found[0], strict=True))


def notes(table: Table) -> str:
    return "\n".join(table.notes)


def test_cells_are_means_and_sample_deviations_over_seeds() -> None:
    table = paper_table(office())
    tasks = ("A2D", "A2W", "D2A", "D2W", "W2D", "W2A")
    assert table.columns == ("method", "rule", *tasks, "Avg", "Avg published†")
    cells = row(table, "san")
    assert cells["A2D"] == "52.0 ± 2.0"  # 50, 52, 54
    assert cells["W2A"] == "57.0 ± 2.0"
    assert cells["Avg"] == "54.5 ± 2.0"
    assert row(table, "san", "mixture")["A2D"] == "62.0 ± 2.0"


def test_the_deviation_of_an_average_is_that_of_whole_seeds() -> None:
    # Two tasks that move against each other: the average does not move at all.
    runs = [
        digits(h=h, seed=seed, source=source, target=target)
        for source, target, hs in (("a", "b", (0.2, 0.4)), ("b", "a", (0.4, 0.2)))
        for seed, h in enumerate(hs)
    ]
    cells = row(paper_table(runs), "san")
    assert cells["a → b"] == "30.0 ± 14.1"
    assert cells["Avg"] == "30.0 ± 0.0"


def test_one_seed_has_no_deviation_and_a_note_in_the_footer() -> None:
    table = paper_table(office(seeds=(0,)))
    assert row(table, "san")["Avg"] == "52.5"
    assert "one seed" in notes(table)
    assert "±" not in to_markdown(table)


def test_the_footer_names_what_was_run() -> None:
    text = notes(paper_table(office()))
    for piece in (
        "Last step; in a run, target labels are used for scoring only.",
        "10 shared / 10 source-private / 11 target-private",
        "steps 2000", "batch 36", "backbone resnet50", "weights resnet50.safetensors",
        "precision bf16", "Seeds: 0, 1, 2", "commit abc123", "torch 2.11", "office-31",
    ):  # fmt: skip
        assert piece in text


def test_published_numbers_have_columns_of_their_own() -> None:
    table = paper_table(office() + office("ovanet"))
    assert row(table, "san")["Avg published†"] == "91.8"
    assert row(table, "ovanet")["Avg published†"] == "86.5"
    assert row(table, "san", "mixture")["Avg published†"] == "–"  # published by the own rule
    assert "† published: Table 1 of the SAN paper" in notes(table)


def test_published_numbers_of_every_task_by_option() -> None:
    table = paper_table(office(), PaperStyle(published=True))
    cells = row(table, "san")
    assert (cells["A2D"], cells["A2D published†"]) == ("52.0 ± 2.0", "89.9")
    only = row(table, "SAN* (published only)")
    assert (only["A2D"], only["A2D published†"], only["Avg published†"]) == ("–", "90.4", "93.5")
    assert not [r for r in table.rows if r[0] == "SAN (published only)"]


def test_no_published_number_beside_other_classes_or_scores() -> None:
    fewer = [dataclasses.replace(r, known_classes=r.shared_classes) for r in office()]
    table = paper_table(fewer)
    assert not any("published" in column for column in table.columns)
    assert "Table 1 of the paper has 10 / 10 / 11 classes" in notes(table)
    known = paper_table(office(), PaperStyle(metric="known"))
    assert not any("published" in column for column in known.columns)
    assert row(known, "san")["Avg"] == "80.0 ± 0.0"


def test_the_papers_slip_is_noted_beside_its_row() -> None:
    domains = ("Art", "Clipart", "Product", "Real World")
    classes = [f"k{k}" for k in range(15)]
    runs = [
        make(entry=entry, method=entry, data="office-home", source=a, target=b,
             known_classes=classes, unknown_classes=50)
        for entry in ("san", "ovanet") for a in domains for b in domains if a != b
    ]  # fmt: skip
    table = paper_table(runs)
    assert table.columns[2:6] == ("A2C", "A2P", "A2R", "C2A")
    assert row(table, "san")["Avg published†"] == "75.9"
    assert "printed as 75.9; its printed tasks average to 75.5" in notes(table)
    without = paper_table([r for r in runs if r.entry == "ovanet"])
    assert "75.9" not in notes(without)


def test_an_average_needs_all_tasks() -> None:
    table = paper_table(office() + office("ovanet")[:6])
    assert row(table, "ovanet")["Avg"] == "–"
    assert row(table, "ovanet")["D2A"] == "–"
    assert "2 of 6 tasks are done, so there is no average: ovanet." in notes(table)


def test_tasks_nobody_ran_have_no_column_but_count_for_the_average() -> None:
    table = paper_table(office()[:3])
    assert table.columns == ("method", "rule", "A2D", "Avg", "Avg published†")
    assert row(table, "san")["Avg"] == "–"
    assert "1 of 6 tasks" in notes(table)


def test_other_numbers_of_seeds_are_visible() -> None:
    table = paper_table(office()[:-1])
    assert row(table, "san")["W2A"] == "56.0 ± 1.4 (n=2)"
    assert row(table, "san")["Avg"].endswith("(n=2)")
    assert "not all of them in every cell" in notes(table)
    assert "(n=…)" in notes(table)


def test_an_undefined_score_is_not_a_zero() -> None:
    runs = [digits(seed=s, ranking={"auroc": None if s else 0.5}) for s in (0, 1)]
    table = paper_table(runs, PaperStyle(metric="auroc"))
    assert table.rows == (("san", "any", "50.0 (n=1)"),)
    assert paper_table(runs, PaperStyle(metric="h3")).rows[0][2] == "–"


@pytest.mark.parametrize(
    ("unknown_classes", "metric", "noted"),
    [(0, "h", True), (0, "closed", False), (0, "os", False), (11, "h", False)],
)
def test_without_unknown_images_the_footer_names_scores_there_are(
    unknown_classes: int, metric: str, noted: bool
) -> None:
    runs = [digits(unknown_classes=unknown_classes)]
    table = paper_table(runs, PaperStyle(metric=metric))
    assert ("--metric closed" in notes(table)) == noted


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"options": {"steps": 500}}, "steps=500"),
        ({"options": {"backbone": "resnet18"}}, "backbone=resnet18"),
        ({"options": {"weights": "other.pt"}}, "weights=other.pt"),
        ({"options": {"precision": "fp32"}}, "precision=fp32"),
        ({"options": {"ensemble": 3}}, "ensemble=3"),
        ({"settings": {"lam": 0.3}}, "lam=0.3"),
        ({"settings": {}}, "lam not recorded"),
        ({"label_noise": 0.2}, "label noise 20 %"),
        ({"unknown_classes": 5}, "5 unknown classes"),
        ({"images": {"source": 9, "target": 7, "unknown": 4}},
         "images=9 source / 7 target / 4 unknown"),
    ],
)  # fmt: skip
def test_runs_with_other_options_are_rows_of_their_own(change: Any, named: str) -> None:
    table = paper_table(office() + office(seeds=(0,), **change))
    assert row(table, "san")["A2D"] == "52.0 ± 2.0"
    assert row(table, f"san ({named})")["A2D"] == "50.0 (n=1)"
    if "steps" in named:
        assert "steps 2000 (500 where a row says so)" in notes(table)
    if "noise" in named or "unknown classes" in named:
        assert row(table, f"san ({named})")["Avg published†"] == "–"


def format_1(entry: str, settings: dict[str, Any], **options: Any) -> str:
    """A line of an earlier version, in which refinement was a setting."""
    values = json.loads(to_json(make(entry=entry, settings=settings, options=options)))
    return json.dumps({k: v for k, v in values.items() if k != "refine"} | {"format": 1})


def test_format_1_is_migrated() -> None:
    before = {"neighbours": None, "anchors": True, "nearest_by": "z_then_y"}
    for entry, settings, refine in (
        ("san", {}, "none"),  # before there were neighbours
        ("san:neighbours=0", {"neighbours": 0, "by_mass": False}, "none"),
        ("san", {"neighbours": None}, "knn (z)"),
        ("san:anchors=false", {"neighbours": None, "anchors": False}, "knn (z)"),
        ("san:neighbours=9", {"neighbours": 9}, "knn (z, k=9)"),
        ("san:nearest_by=z", before | {"nearest_by": "z"}, "prototypes,knn (z)"),
        ("san", before | {"reads": "z"}, "prototypes,knn"),  # a setting that was removed
    ):
        found = from_json(format_1(entry, {"lam": 1.0} | settings, members=3), "here")
        assert found == make(refine=refine, options={"ensemble": 3})
    assert from_json(format_1("san:lam=1:anchors=false", {}), "here").entry == "san:lam=1"


def test_a_refinement_is_a_row_of_its_own() -> None:
    runs = office() + office(refine="prototypes,knn") + office(refine="knn")
    table = paper_table(runs)
    assert [r[0] for r in table.rows[::2]] == ["san", "san + knn", "san + refinement"]
    assert {record.refine for record in table.records} == {"", "none", "knn", "prototypes,knn"}
    assert "'+ refinement' is k-NN smoothing" in notes(table)
    assert "refinement" not in notes(paper_table(office()))
    variants = [dataclasses.replace(r, entry="san-no-scl") for r in runs]
    assert [r[0].split(",")[0] for r in paper_tables(runs + variants)[-1].rows[::2]] == [
        "san", "san + knn", "san + refinement",
        "san-no-scl", "san-no-scl + knn", "san-no-scl + refinement",
    ]  # fmt: skip


def test_options_without_effect_set_nothing_apart() -> None:
    other = {"log_every": 7, "reject": "own", "checkpoint_every": 9}
    runs = office(seeds=(0,)) + office(seeds=(1,), options=other)
    assert len(paper_table(runs).rows) == 2


def test_auto_precision_on_another_device_is_another_precision() -> None:
    auto = {"options": {"precision": "auto"}}
    runs = office(**auto) + office(seeds=(3,), made_with={"device": "x86_64"}, **auto)
    assert row(paper_table(runs), "san (precision=auto: fp32)")["A2D"] == "56.0 (n=1)"


def test_reduced_unknown_classes_are_found_without_a_full_run() -> None:
    table = paper_table(office(unknown_classes=5))
    assert row(table, "san (5 unknown classes)")["Avg published†"] == "–"


def test_duplicates_are_an_error() -> None:
    with pytest.raises(UserError, match="two results of san on amazon → dslr with seed 0"):
        paper_table([make(), make(0.7)])


def test_reconstructions_are_marked_in_every_table() -> None:
    runs = [r for entry in ("tnt", "gate", "spa", "spa-ovanet") for r in office(entry, (0,))]
    for table in (paper_table(runs), full_table(runs)):
        label = table.columns.index("method")
        assert all(cells[label].endswith(" (reconstruction)") for cells in table.rows)
        assert "'reconstruction': " in notes(table)
        assert {record.reconstruction for record in table.records if not record.published} == {True}


def test_methods_stand_in_the_papers_order() -> None:
    entries = ("san-no-scl", "san", "ovanet", "dance", "source_only")
    runs = [r for e in entries for r in office(e, method=e.split("-")[0])]
    labels = list(dict.fromkeys(r[0] for r in paper_table(runs).rows))
    assert labels == ["source_only", "dance", "ovanet", "san", "san-no-scl"]


def test_a_rule_that_fell_back_is_noted() -> None:
    some = paper_table(office(seeds=(0,)) + office(seeds=(1,), in_force="own"))
    assert some.rows[1][1] == "mixture (→ own in 6 of 12 runs)"
    assert paper_table(office(in_force="own")).rows[1][1] == "mixture → own"


def test_one_rule_by_option() -> None:
    assert [r[1] for r in paper_table(office(), PaperStyle(rule="mixture")).rows] == ["mixture"]
    with pytest.raises(UserError, match="rule is 'quantile'; allowed: mixture, own, both"):
        paper_table(office(), PaperStyle(rule="quantile"))
    with pytest.raises(UserError, match="metric is 'f1'"):
        PaperStyle(metric="f1")


def test_the_oracle_is_shown_only_by_option() -> None:
    best = {"own": {"h": 0.873, "step": 100.0}, "mixture": {"h": 0.95, "step": 200.0}}
    runs = office(oracle=best)
    for table in (paper_table(runs), full_table(runs)):
        text = to_markdown(table) + to_latex(table) + to_csv(table).split("\n", 1)[1]
        assert "87.3" not in text
        assert not any("oracle" in column for column in table.columns)
        assert not any(record.oracle for record in table.records)
    assert row(paper_table(runs, PaperStyle(oracle=True)), "san")["Avg H oracle"] == "87.3 ± 0.0"
    full = full_table(runs, oracle=True)
    assert full.rows[0][full.columns.index("H oracle")] == "87.3 ± 0.0"
    assert "no run of this table recorded one" in notes(
        paper_table(office(), PaperStyle(oracle=True))
    )


def test_visda_has_one_number_and_no_average() -> None:
    classes = [f"k{k}" for k in range(9)]
    run = make(data="visda", source="train", target="validation", known_classes=classes,
               shared_classes=classes[:6], unknown_classes=3)  # fmt: skip
    table = paper_table([run])
    assert table.columns == ("method", "rule", "S2R", "published†")
    assert table.rows[0] == ("san", "own", "50.0", "60.1")
    both = paper_table([run], PaperStyle(published=True))
    assert both.columns == ("method", "rule", "S2R", "S2R published†")


def test_the_ablation_has_the_papers_rows() -> None:
    entries = ("ovanet", "san", "san-info-nce", "san-no-aio", "san-no-scl", "dance")
    tables = paper_tables([r for e in entries for r in office(e)])
    ablation = tables[-1]
    assert len(tables) == 2
    assert [r[0].split(",")[0] for r in ablation.rows[::2]] == [
        "san", "san-no-aio", "san-no-scl", "san-info-nce", "ovanet",
    ]  # fmt: skip
    assert ablation.rows[2][2:] == ("54.5 ± 2.0", "90.5")
    assert ablation.columns[2:] == (
        "Office, UNDA (10 / 10 / 11)", "Office, UNDA (10 / 10 / 11) published†",
    )  # fmt: skip
    assert "77.9 on Office, the main table 86.5" in notes(ablation)
    assert "Table 5" in ablation.title


def test_the_ablation_works_on_other_data_and_needs_a_variant() -> None:
    runs = [digits(entry=e, method="san") for e in ("san", "san-no-scl")]
    ablation = paper_tables(runs)[-1]
    assert ablation.columns == ("method", "rule", "digits, UNDA (10 / 10 / 11)")
    assert "published" not in to_markdown(ablation)
    assert len(paper_tables(runs[:1])) == 1


def test_tables_are_apart_by_data_and_setting() -> None:
    shared = [f"k{k}" for k in range(10)]
    runs = office() + office(setting="oda", known_classes=shared) + [digits()]
    titles = [table.title for table in paper_tables(runs)]
    assert titles == [
        "Office, UNDA (10 / 10 / 11): H in %, as Table 1 of the paper",
        "Office, ODA (10 / 0 / 11): H in %, as Table 3 of the paper",
        "digits, UNDA (10 / 10 / 11): H in %",
    ]
    with pytest.raises(UserError, match="one data set and setting"):
        paper_table(runs)


def test_the_full_form_has_all_scores_time_and_size() -> None:
    table = full_table([digits(seed=s, seconds=10.0 + s) for s in (0, 1, 2)])
    assert table.columns == (
        "task", "method", "rule", "known", "unknown", "H", "balanced H", "AUROC", "OSCR", "H3",
        "seconds", "parameters",
    )  # fmt: skip
    assert table.rows[0][:5] == ("mnist → uci", "san", "own", "80.0 ± 0.0", "40.0 ± 0.0")
    assert table.rows[0][-3:] == ("–", "11", "1,234,567")


def test_a_collapse_is_explained_or_named_as_unexplained() -> None:
    runs = [digits(h=0.05), digits(h=0.04, entry="uan", method="uan"), digits(entry="dance")]
    text = notes(full_table(runs, notes={"uan": "its margin is off", "dance": "slow"}))
    assert "san collapsed (H 5.0 % on mnist → uci under its own rule): not explained yet." in text
    assert "uan collapsed (H 4.0 % on mnist → uci under its own rule): its margin is off" in text
    assert "dance: slow" in text


HOSTILE = "a|b_<img src=x>\n%&$#{}~^\\ *c* `d` [e](f)"


@pytest.fixture
def hostile() -> list[Table]:
    changes = {"data": HOSTILE, "source": HOSTILE, "made_with": {"commit": HOSTILE}}
    runs = [make(entry=HOSTILE, seed=s, options={"weights": HOSTILE}, **changes) for s in (0, 1)]
    return [paper_table(runs), full_table(runs, notes={HOSTILE: HOSTILE})]


def test_markdown_shows_hostile_names_as_they_are(hostile: list[Table]) -> None:
    for table in hostile:
        text = to_markdown(table)
        lines = [line for line in text.splitlines() if line.startswith("|")]
        assert len(lines) == 2 + len(table.rows)
        assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {len(table.columns) + 1}
        assert "<img" not in text
        assert "](f" not in text.replace(r"\](f", "")


def test_latex_is_balanced_and_every_row_is_whole(hostile: list[Table]) -> None:
    for table in [*hostile, paper_table(office() + office("tnt"), PaperStyle(published=True))]:
        text = to_latex(table)
        bare = re.sub(r"\\[\\&%$#_{}]", "", text)
        assert bare.count("{") == bare.count("}")
        assert bare.count("$") % 2 == 0
        assert "%" not in bare
        assert "#" not in bare
        rows = text.split(r"\toprule")[1].split(r"\bottomrule")[0].replace("\\midrule\n", "")
        rows_of = [line for line in rows.strip().split("\n") if line]
        assert len(rows_of) == 1 + len(table.rows)
        for line in rows_of:
            assert len(re.findall(r"(?<!\\)&", line)) == len(table.columns) - 1
            assert line.endswith(r" \\")
        for name in ("table", "tabular"):
            assert text.count(rf"\begin{{{name}}}") == text.count(rf"\end{{{name}}}") == 1


def test_latex_writes_signs_that_need_no_package() -> None:
    text = to_latex(paper_table([digits(seed=s, in_force="own") for s in (0, 1)]))
    assert r"mnist $\rightarrow$ uci" in text
    assert r"$\pm$" in text
    assert text.isascii()


def parse(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_csv_comes_back_as_it_went_in(hostile: list[Table]) -> None:
    rows = parse(to_csv(*hostile))
    assert {r["data"] for r in rows} == {r["entry"] for r in rows} == {HOSTILE}
    assert {r["commit"] for r in rows} == {HOSTILE}


def test_csv_holds_no_formula() -> None:
    first = paper_table(office())
    record = dataclasses.replace(first.records[0], entry="=1+1", mean=-1.5)
    (row,) = parse(to_csv(dataclasses.replace(first, records=(record,))))
    assert (row["entry"], float(row["mean"])) == ("'=1+1", -1.5)


def test_csv_is_long_and_flags_what_is_published() -> None:
    rows = parse(to_csv(paper_table(office())))
    ours = [r for r in rows if not r["published"]]
    assert len(ours) == 2 * 7  # two rules, six tasks and the average
    cell = next(r for r in ours if (r["task"], r["rule"]) == ("A2D", "own"))
    assert (float(cell["mean"]), float(cell["std"]), cell["n"]) == (52.0, 2.0, "3")
    assert (cell["source"], cell["target"], cell["seeds"]) == ("amazon", "dslr", "0 1 2")
    assert (cell["steps"], cell["backbone"], cell["commit"]) == ("2000", "resnet50", "abc123")
    printed = next(r for r in rows if r["published"] and (r["entry"], r["task"]) == ("SAN", "Avg"))
    assert (float(printed["mean"]), printed["n"], printed["std"]) == (91.8, "", "")
    assert len(rows) - len(ours) == 8 * 7


def test_csv_has_a_number_once_though_two_tables_show_it() -> None:
    runs = [r for e in ("san", "san-no-scl") for r in office(e)]
    text = to_csv(*paper_tables(runs))
    assert len(text.splitlines()) == len(set(text.splitlines()))


def write(folder: Path, results: list[Result]) -> Path:
    (folder / "results.jsonl").write_text("".join(to_json(r) + "\n" for r in results))
    return folder


def test_the_command_writes_all_formats(tmp_path: Path) -> None:
    write(tmp_path, office())
    out = tmp_path / "new" / "tables"
    TableCommand(tmp_path, out=out, format="all").execute()
    assert sorted(p.name for p in out.iterdir()) == ["tables.csv", "tables.md", "tables.tex"]
    assert (out / "tables.md").read_text() == to_markdown(paper_table(office()))


def test_the_command_prints_markdown_and_reads_notes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, [digits(h=0.05)])
    (tmp_path / "notes.toml").write_text('[notes]\nsan = "too few steps"\n')
    TableCommand(tmp_path / "results.jsonl", full=True).execute()
    printed = capsys.readouterr().out
    assert printed.startswith("## digits, UNDA")
    assert "under its own rule): too few steps" in printed
    (tmp_path / "notes.toml").write_text("san = 1")
    with pytest.raises(UserError, match=r"notes, searched"):
        TableCommand(tmp_path, full=True).execute()
    for bad in ("notes = 1", "searched = [1]", 'searched = ["Art"]', "["):
        (tmp_path / "notes.toml").write_text(bad)
        with pytest.raises(UserError, match=r"notes.toml cannot be used"):
            TableCommand(tmp_path, full=True).execute()


def test_tasks_that_settings_were_chosen_on_are_marked_and_left_out_of_an_average(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = office()
    tasks = list(dict.fromkeys((r.source, r.target) for r in runs))
    write(tmp_path, runs)
    source, target = tasks[0]
    (tmp_path / "notes.toml").write_text(f'searched = [["{source}", "{target}"]]')
    TableCommand(tmp_path).execute()
    printed = capsys.readouterr().out
    header, _, row = [line.split("|") for line in printed.splitlines() if line[:1] == "|"][:3]
    names = [cell.strip() for cell in header]
    assert sum(name.endswith("‡") for name in names) == 1
    cells = dict(zip(names, (cell.strip() for cell in row), strict=True))
    held_out = [
        100 * (r.rules[cells["rule"]].scores["h"] or 0.0)
        for r in runs
        if (r.source, r.target) != tasks[0]
    ]
    mean = sum(held_out) / len(held_out)
    assert float(cells["Avg held out"].split(" ")[0]) == pytest.approx(mean, abs=0.06)
    assert "‡ Settings were chosen with this task's target labels" in printed
    TableCommand(tmp_path, format="csv").execute()
    assert '"Avg held out"' in capsys.readouterr().out
    TableCommand(tmp_path, full=True).execute()
    rows = [line for line in capsys.readouterr().out.splitlines() if line[:1] == "|"][2:]
    assert {"‡" in row for row in rows} == {True, False}


def test_where_settings_were_chosen_on_every_task_nothing_is_held_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = office()
    write(tmp_path, runs)
    tasks = sorted({(r.source, r.target) for r in runs})
    (tmp_path / "notes.toml").write_text(f"searched = {[list(task) for task in tasks]}")
    TableCommand(tmp_path).execute()
    header, _, row = (line.split("|") for line in capsys.readouterr().out.splitlines()[2:5])
    cells = dict(zip((name.strip() for name in header), row, strict=True))
    assert cells["Avg held out"].strip() == "–"


def test_all_formats_need_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="with --out FOLDER"):
        TableCommand(write(tmp_path, office()), format="all").execute()


def test_balance_h_by_image_is_derived_where_results_lack_it() -> None:
    """The check case: A_c .666667, A_u .6, θ 5/6."""
    scores = {"h": 0.6, "known_instance": 2 / 3, "unknown": 0.6}
    images = {"source": 9, "target": 11, "unknown": 5}
    run = digits(images=images, rules={"own": RuleResult("own", 0.0, "", scores, [])})
    table = paper_table([run], PaperStyle(metric="balanced_h_instance"))
    assert row(table, "san")["mnist → uci"] == "63.5"


def test_a_metric_may_go_by_another_name() -> None:
    table = paper_table([digits()], PaperStyle(metric="ucr"))
    assert table == paper_table([digits()], PaperStyle(metric="oscr"))
