"""The bench over every category shift: its jobs, what a result holds, and its tables."""

import csv
import dataclasses
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.bench.benches import PROTOCOL, write_data
from tests.bench.test_tables import make, notes
from unida.bench.results import Result, RuleResult, from_json, read_results, to_json
from unida.bench.run import resolve_settings
from unida.bench.tables.render import Table
from unida.bench.tables.run import (
    PaperStyle,
    paper_table,
    to_csv,
    to_latex,
    to_markdown,
    universal_tables,
)
from unida.bench.worker import Places, work
from unida.cli.bench import Bench
from unida.cli.table import TableCommand
from unida.errors import UserError
from unida.protocols.tasks import load_protocol

FOUR: dict[str, list[int | None]] = {"closed": [None], "pda": [None], "unda": [None]}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("office-home", FOUR | {"oda": [None, 1, 2, 5]}),
        ("office-caltech10", FOUR | {"oda": [None, 1, 2]}),  # five are all it has
        ("digits", FOUR | {"oda": [None, 1]}),
        ("domainnet", {"closed": [None], "unda": [None]}),
    ],
)
def test_all_settings_are_those_the_protocol_has(
    name: str, expected: dict[str, list[int | None]]
) -> None:
    assert resolve_settings(load_protocol(name), "all") == expected


def test_settings_are_listed_with_commas_and_numbers() -> None:
    office = load_protocol("office-home")
    found = resolve_settings(office, "closed, oda-2,unda,oda-40,oda-2")
    assert found == {"closed": [None], "oda": [2, None], "unda": [None]}
    assert resolve_settings(load_protocol("visda"), "oda-glc") == {"oda-glc": [None]}


@pytest.mark.parametrize("text", ["", "oda-41", "open", "closed-1", "oda-glc"])
def test_a_setting_that_is_not_there_is_one_sentence(text: str) -> None:
    with pytest.raises(UserError) as error:
        resolve_settings(load_protocol("office-home"), text)
    assert "\n" not in str(error.value)


def test_all_needs_one_of_the_four_settings(tmp_path: Path) -> None:
    path = tmp_path / "other.toml"
    path.write_text(PROTOCOL.replace("shared", "[settings.mine]\nshared", 1))
    with pytest.raises(UserError, match="mine"):
        resolve_settings(load_protocol(str(path)), "all")


def test_every_shift_of_a_seed_is_planned_before_the_next_seed(tmp_path: Path) -> None:
    jobs = Bench("digits", tmp_path, setting="all", methods="source_only", seeds=2).jobs()
    shifts = ["closed", "pda", "oda", "oda-1", "unda"]
    assert [job.shift for job in jobs] == [s for _ in (0, 1) for s in shifts for _ in (0, 1)]
    assert len({job.name for job in jobs}) == len(jobs) == 2 * 5 * 2


def test_a_number_in_the_setting_is_the_same_run_as_unknowns(tmp_path: Path) -> None:
    by_name = Bench("digits", tmp_path, setting="oda-1").jobs()
    by_option = Bench("digits", tmp_path, setting="oda", unknowns="1").jobs()
    assert [job.name for job in by_name] == [job.name for job in by_option]


@pytest.mark.parametrize("setting", ["all", "oda-1", "oda,unda"])
def test_unknowns_are_of_one_plain_setting(tmp_path: Path, setting: str) -> None:
    with pytest.raises(UserError, match="unknowns"):
        Bench("digits", tmp_path, setting=setting, unknowns="1").jobs()


def test_a_threshold_without_end_is_null_and_read_back() -> None:
    scores = {"h": None, "known_instance": 0.75}
    rules = {
        "none": RuleResult("none", math.inf, "", scores, []),
        "share": RuleResult("share", 0.5, "", scores, [], 0.2, (0.1, 0.3)),
        "all": RuleResult("share", -math.inf, "", scores, [], 1.0),
    }
    line = to_json(make(rules=rules))
    assert "Infinity" not in line
    assert json.loads(line)["rules"]["none"]["threshold"] is None
    found = from_json(line, "here").rules
    assert found["none"] == rules["none"]
    assert found["share"] == rules["share"]
    assert math.isfinite(found["all"].threshold)
    assert found["all"].threshold < -1e300


def test_a_result_from_before_the_share_still_opens() -> None:
    values = json.loads(to_json(make()))
    for rule in values["rules"].values():
        del rule["share"], rule["interval"]
    old = from_json(json.dumps(values), "here")
    assert old == make()
    assert {(r.share, r.interval) for r in old.rules.values()} == {(None, None)}


def test_an_undefined_number_is_refused_rather_than_written() -> None:
    bad = dataclasses.replace(make(), seconds=math.nan)
    with pytest.raises(ValueError, match="JSON"):
        to_json(bad)


CLASSES = {"closed": (10, 0, 0), "pda": (5, 5, 0), "oda": (5, 0, 5), "unda": (4, 3, 3)}
TASKS = (("amazon", "dslr"), ("dslr", "amazon"))


def run(setting: str, task: int = 0, seed: int = 0, **changes: Any) -> Result:
    """A run whose value is 0.5 under `own` and 0.6 under `share`, 0.1 more on the second task."""
    name, _, number = setting.partition("-")
    shared, private, unknown = CLASSES[name]
    unknown = int(number) if number else unknown
    n_unknown = 10 * unknown
    own = changes.pop("own", 0.5) + 0.1 * task + 0.02 * seed
    estimate = changes.pop("estimate", n_unknown / 100)

    def rule(name: str, value: float, share: float | None = None) -> RuleResult:
        scores = {"h": value, "known_instance": 0.9, "unknown": value}
        if not unknown:
            scores = {"h": None, "known_instance": value, "unknown": None}
        interval = None if share is None else (share - 0.05, share + 0.05)
        return RuleResult(name, 0.0, "", scores, [], share, interval)

    source, target = TASKS[task]
    values: dict[str, Any] = {
        "data": "office-caltech10", "setting": name, "source": source, "target": target,
        "seed": seed, "unknown_classes": unknown,
        "known_classes": [f"k{k}" for k in range(shared + private)],
        "shared_classes": [f"k{k}" for k in range(shared)],
        "images": {"source": 50, "target": 100, "unknown": n_unknown},
        "rules": {
            "own": rule("own", own),
            "none": dataclasses.replace(rule("none", 0.0), threshold=math.inf),
            "share": rule("share", own + 0.1, estimate),
        },
        "ranking": {"auroc": 0.9, "closed": 0.8, "best_threshold": own + 0.2},
    }  # fmt: skip
    return make(**(values | changes))


def bench(*settings: str, seeds: int = 1, **changes: Any) -> list[Result]:
    return [
        run(setting, task, seed, **changes)
        for setting in settings
        for task in (0, 1)
        for seed in range(seeds)
    ]


def cells(table: Table, rule: str, label: str = "san") -> dict[str, str]:
    (found,) = [row for row in table.rows if row[:2] == (label, rule)]
    return dict(zip(table.columns, found, strict=True))


EVERY = (*CLASSES, "oda-1", "oda-2")


def test_columns_are_category_shifts_and_their_means() -> None:
    table, _ = universal_tables(bench(*EVERY))
    means = ("mean of four", "oda-1", "oda-2", "mean few")
    assert table.columns == ("method", "rule", "closed", "pda", "oda", "unda", *means)
    own = cells(table, "own")
    assert {own[name] for name in table.columns[2:]} == {"55.0"}
    assert cells(table, "share")["mean of four"] == "65.0"
    assert cells(table, "best threshold (oracle)")["mean few"] == "75.0"


def test_nothing_rejected_is_a_reference_and_no_rule() -> None:
    table, _ = universal_tables(bench(*EVERY))
    found = cells(table, "nothing rejected (oracle)")
    assert [found[name] for name in CLASSES] == ["80.0", "80.0", "0.0", "0.0"]
    assert found["mean of four"] == "40.0"
    assert not any(row[1] == "none" for row in table.rows)
    only_unda, _ = universal_tables(bench("unda"))
    assert not any("nothing rejected" in row[1] for row in only_unda.rows)


def test_the_best_rule_in_hindsight_is_chosen_by_column() -> None:
    table, _ = universal_tables(bench("closed", "unda"))
    found = cells(table, "best rule in hindsight (oracle)")
    assert (found["closed"], found["unda"]) == ("80.0", "65.0")  # nothing rejected; share
    assert "oracle" in notes(table)


def test_a_mean_of_four_needs_all_four_and_whole_seeds_deviate() -> None:
    table, _ = universal_tables(bench("closed", "pda", "oda", seeds=2))
    assert cells(table, "own")["mean of four"] == "–"
    table, _ = universal_tables(bench(*CLASSES, seeds=2))
    assert cells(table, "own")["oda"] == "56.0 ± 1.4"  # 55 and 57
    assert cells(table, "own")["mean of four"] == "56.0 ± 1.4"


def test_few_unknown_classes_are_told_from_all_without_a_full_run() -> None:
    table, _ = universal_tables(bench("oda-2"))
    assert table.columns[2:] == ("mean of four", "oda-2", "mean few")


def test_a_task_that_is_missing_leaves_no_mean() -> None:
    results = [*bench("closed", "unda"), *bench("closed", entry="ovanet", method="ovanet")]
    results += [run("unda", entry="ovanet", method="ovanet")]
    table, _ = universal_tables(results)
    found = cells(table, "own", "ovanet")
    assert (found["closed"], found["unda"]) == ("55.0", "–")
    assert "unda: 1 of 2 tasks are done, so there is no average: ovanet." in table.notes


def test_rows_do_not_mix_options_of_several_settings() -> None:
    results = [*bench("closed", "pda", "oda"), *bench("unda", options={"steps": 9})]
    table, _ = universal_tables(results)
    assert {row[0] for row in table.rows} == {"san", "san (steps=9)"}
    assert cells(table, "own")["unda"] == "–"


def test_refinement_has_rows_of_its_own() -> None:
    refined = bench(*CLASSES, refine="prototypes,knn", own=0.7)
    table, _ = universal_tables([*bench(*CLASSES), *refined])
    assert cells(table, "own", "san + refinement")["mean of four"] == "75.0"


def test_one_rule_can_be_chosen_and_a_missing_one_is_refused() -> None:
    table, _ = universal_tables(bench(*CLASSES), rule="share")
    assert [row[1] for row in table.rows if "oracle" not in row[1]] == ["share"]
    with pytest.raises(UserError, match="own"):
        universal_tables(bench(*CLASSES), rule="mixture")


def test_estimated_shares_stand_beside_the_true_ones() -> None:
    results = [*bench("unda"), run("closed", 0, estimate=0.04), run("closed", 1, estimate=0.2)]
    _, table = universal_tables(results)
    by_setting = {row[2]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    unda, closed, every = (by_setting[name] for name in ("unda", "closed", "all"))
    assert [unda[c] for c in ("true", "estimated", "error", "close")] == ["30.0"] * 2 + [
        "0.0", "100.0",
    ]  # fmt: skip
    assert [closed[c] for c in ("true", "estimated", "error")] == ["0.0", "12.0", "12.0"]
    assert (closed["close"], closed["in interval"]) == ("50.0", "50.0")
    assert (every["close"], every["error"], every["runs"]) == ("75.0", "6.0", "4")


def test_a_run_without_an_estimate_is_counted() -> None:
    results = [run("unda", 0), run("unda", 1, estimate=None)]
    _, table = universal_tables(results)
    assert table.rows[0][-1] == "1 of 2"
    assert len(universal_tables([run("unda", estimate=None)])) == 1


def test_searched_tasks_are_left_out_of_the_held_out_tables() -> None:
    searched = frozenset({TASKS[1]})
    whole, shares, held_out, held_out_shares = universal_tables(bench(*EVERY), searched=searched)
    assert cells(whole, "own")["mean of four"] == "55.0"
    assert cells(whole, "own")["mean of four, held out"] == "50.0"
    assert cells(held_out, "own")["closed"] == cells(held_out, "own")["mean few"] == "50.0"
    assert "held-out tasks only" in held_out.title
    assert (shares.rows[0][-1], held_out_shares.rows[0][-1]) == ("2", "1")
    assert "target labels of dslr → amazon" in notes(whole)
    everything = universal_tables(bench(*EVERY), searched=frozenset(TASKS))
    assert len(everything) == 2


def test_results_of_before_have_values_too() -> None:
    results = bench(*CLASSES)
    old = [
        dataclasses.replace(
            r,
            rules={"own": dataclasses.replace(r.rules["own"], share=None, interval=None)},
            ranking={"auroc": 0.9, "closed": 0.8},
        )
        for r in results
    ]
    (table,) = universal_tables(old)
    words = [row[1] for row in table.rows]
    assert words == ["own", "nothing rejected (oracle)", "best rule in hindsight (oracle)"]
    assert cells(table, "own")["mean of four"] == "55.0"


def test_every_format_has_the_numbers() -> None:
    tables = universal_tables([*bench(*EVERY), *bench("unda", data="digits")])
    assert [t.title.split(":")[0] for t in tables[::2]] == ["office-caltech10", "digits"]
    lines = list(csv.DictReader(io.StringIO(to_csv(*tables))))
    found = {
        (line["setting"], line["task"], line["rule"]): line
        for line in lines
        if line["data"] == "office-caltech10" and line["metric"] == "value"
    }
    assert float(found["mean of four", "Avg", "own"]["mean"]) == pytest.approx(55)
    assert float(found["oda-1", "dslr → amazon", "share"]["mean"]) == pytest.approx(70)
    assert found["unda", "Avg", "best threshold"]["oracle"] == "yes"
    for table in tables:
        assert "mean of four" in to_markdown(table) or "estimated" in to_markdown(table)
        assert to_latex(table).count("\\begin{tabular}") == 1


def test_the_command_writes_the_table(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "results.jsonl").write_text("".join(to_json(r) + "\n" for r in bench(*EVERY)))
    (tmp_path / "notes.toml").write_text('searched = [["amazon", "dslr"]]\n')
    TableCommand(tmp_path, universal=True).execute()
    text = capsysbinary.readouterr().out.decode()
    assert text.count("## office-caltech10") == 4
    with pytest.raises(UserError, match="universal"):
        TableCommand(tmp_path, universal=True, full=True).execute()


def test_rejecting_nothing_is_in_other_tables_only_on_request() -> None:
    results = bench("unda")
    assert {row[1] for row in paper_table(results).rows} == {"own", "share"}
    assert {row[1] for row in paper_table(results, PaperStyle(rule="none")).rows} == {"none"}


def test_a_bench_over_all_settings_ends_in_the_table(tmp_path: Path) -> None:
    protocol = write_data(tmp_path)
    settings = (
        'classes = ["0", "1", "2", "3", "8", "9"]\n'
        '[settings.closed]\nshared = ["0", "1", "8", "9"]\n[settings.oda]\n'
    )
    content = protocol.read_text().replace("shared", settings + "shared", 1)
    protocol.write_text(content.replace('source_private = ["3"]\n', ""))
    out = tmp_path / "results"
    command = Bench(
        str(protocol), out, setting="all", methods="source_only", tasks="dark-light", seeds=1,
        option=("steps=2", "device=cpu"),
    )  # fmt: skip
    for job in command.jobs():
        assert work(job, Places(str(out), str(protocol.parent / "data")))
    results = read_results(out)
    assert {(r.setting, r.unknown_classes) for r in results} == {
        ("closed", 0),
        ("oda", 1),
        ("oda", 2),
    }
    assert all(r.ranking["best_threshold"] is not None for r in results)
    table = universal_tables(results)[0]
    assert table.columns[2:] == ("closed", "oda", "mean of four", "oda-1", "mean few")
    best = cells(table, "best threshold (oracle)", "source_only")
    own = cells(table, "own", "source_only")
    assert all(float(best[name]) >= float(own[name]) for name in ("closed", "oda", "oda-1"))
