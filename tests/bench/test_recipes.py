"""Tables say which rows ran published settings, and keep rows of other settings apart."""

from typing import Any

from tests.bench.test_tables import make, notes
from unida.bench.results import Result
from unida.bench.tables.groups import group_results
from unida.bench.tables.run import paper_table

GLC = {"lambda_psd": 1.5, "lambda_knn": 1.0, "rho": 0.75, "w0": 0.55, "k": None}


def run(entry: str, settings: dict[str, Any], **changes: Any) -> Result:
    method = entry.split("-")[0].split(":")[0]
    places = {"data": "office-home", "source": "Art", "target": "Clipart"}
    return make(**places, entry=entry, method=method, settings=settings, **changes)


def published(*runs: Result) -> str:
    (line,) = [n for n in paper_table(list(runs)).notes if n.startswith("Settings that the auth")]
    return line


def test_a_row_with_the_published_settings_is_named_with_those_of_this_data_set() -> None:
    note = published(run("glc", GLC), run("source_only", {}))
    assert "Office-Home" in note
    assert "as published: glc (lambda_psd=1.5)" in note
    assert "none known: source_only" in note
    assert "otherwise" not in note


def test_a_row_with_other_settings_is_named_with_both_values() -> None:
    assert "otherwise: glc (lambda_psd=0.3, published 1.5)" in published(
        run("glc", GLC | {"lambda_psd": 0.3})
    )
    old = {name: value for name, value in GLC.items() if name != "rho"}
    assert "rho=not recorded, published 0.75" in published(run("glc", old))


def test_a_released_preset_is_held_to_its_options_too() -> None:
    options = {"backbone_lr": 0.1, "batch_norm": "batch", "lr": 0.01, "batch": 36}
    whole = run("ovanet-released", {"lam": 0.1}, options=options | {"steps": 10_000})
    assert "as published: ovanet-released" in published(whole)
    short = run("ovanet-released", {"lam": 0.1}, options=options | {"steps": 500})
    assert "ovanet-released (steps=500, published 10000)" in published(short)
    unused = {"backbone_lr": None, "batch_norm": "auto", "steps": 10_000, "frozen": True}
    frozen = run("ovanet-released", {"lam": 0.1}, options=options | unused)
    note = published(frozen)
    assert "backbone frozen" in note
    assert "backbone_lr" not in note


def test_data_without_published_settings_have_no_such_note() -> None:
    table = paper_table([make(data="digits", source="mnist", target="uci", entry="glc")])
    assert "the authors published" not in notes(table)


def test_runs_with_other_settings_of_an_entry_are_rows_of_their_own() -> None:
    earlier = run("glc", GLC | {"lambda_psd": 0.3}, seed=0)
    today = [run("glc", GLC, seed=seed) for seed in (0, 1)]
    (group,) = group_results([earlier, *today])
    assert [line.label for line in group.lines] == ["glc", "glc (lambda_psd=0.3)"]
    assert [len(line.all_runs()) for line in group.lines] == [2, 1]


def test_a_setting_that_was_introduced_later_does_not_part_a_row() -> None:
    later = {"sigma_y": 10.0, "near_rate": 1e4, "projection_momentum": True}
    runs = [run("san", {"lam": 1.0}, seed=0), run("san", {"lam": 1.0} | later, seed=1)]
    (group,) = group_results(runs)
    assert [line.label for line in group.lines] == ["san"]
    (group,) = group_results([*runs, run("san", {"lam": 1.0} | later | {"sigma_y": 50.0}, seed=2)])
    assert [line.label for line in group.lines] == ["san", "san (sigma_y=50.0)"]
