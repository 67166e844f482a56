"""The bench over every category shift: its jobs, what a result holds, and its tables."""

import dataclasses
import json
import math
from pathlib import Path

import pytest

from tests.bench.benches import PROTOCOL
from tests.bench.test_tables import make
from unida.bench.results import RuleResult, from_json, to_json
from unida.bench.run import resolve_settings
from unida.cli.bench import Bench
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
