"""Which runs a benchmark has, and what they are called."""

from pathlib import Path
from typing import Any

import pytest

from tests.bench.benches import PROTOCOL, write_data
from unida.bench.entries import parse_entry
from unida.bench.jobs import Job, plan
from unida.errors import UserError
from unida.methods.presets import PRESETS


@pytest.fixture
def protocol(tmp_path: Path) -> str:
    path = tmp_path / "small.toml"
    path.write_text(PROTOCOL)
    return str(path)


def job(protocol: str, **changes: Any) -> Job:
    values: dict[str, Any] = {
        "data": protocol,
        "setting": "unda",
        "source": "dark",
        "target": "light",
        "entry": "san",
        "seed": 0,
    }
    return Job(**(values | changes))


def test_every_combination_is_planned_once(protocol: str) -> None:
    tasks = [("dark", "light"), ("light", "dark")]
    jobs = plan(protocol, "unda", ["san", "ovanet", "san"], tasks, range(3), {})
    assert len(jobs) == len({j.name for j in jobs}) == 2 * 2 * 3
    first = [(j.entry, j.source, j.seed) for j in jobs[:4]]
    assert first == [(e, s, 0) for s in ("dark", "light") for e in ("san", "ovanet")]


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"entry": "ovanet"},
        {"entry": "san:lam=0.5"},
        {"options": {"steps": "9"}},
        {"label_noise": 0.1},
        {"unknown_classes": 1},
        {"oracle": True},
        {"discover": True},
        {"source": "light", "target": "dark"},
    ],
    ids=str,
)
def test_whatever_matters_changes_the_name(protocol: str, changes: dict[str, Any]) -> None:
    assert job(protocol, **changes).name != job(protocol).name


def test_where_things_lie_does_not_change_the_name(protocol: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "moved.toml"
    elsewhere.write_text(PROTOCOL)
    assert job(str(elsewhere)).name == job(protocol).name
    placed = job(protocol, options={"device": "cpu", "cache": "disk"})
    assert placed.name == job(protocol).name


def test_the_default_written_out_is_the_same_run(protocol: str) -> None:
    assert job(protocol, options={"steps": 2000}).name == job(protocol).name


def test_a_bench_trains_on_all_source_images_by_default(protocol: str) -> None:
    places = (Path("source"), Path("target"), Path("out"))
    assert job(protocol).config(*places).data.holdout == 0
    given = job(protocol, options={"holdout": "0.1"})
    assert given.config(*places).data.holdout == 0.1
    assert given.name != job(protocol).name


def test_another_split_of_the_same_name_is_another_run(protocol: str, tmp_path: Path) -> None:
    changed = tmp_path / "changed.toml"
    changed.write_text(PROTOCOL.replace('["8", "9"]', '["9"]'))
    assert job(str(changed)).name != job(protocol).name


def test_weights_count_by_content_not_by_place(protocol: str, tmp_path: Path) -> None:
    a, b, c = (tmp_path / name for name in ("a.safetensors", "b.safetensors", "c.safetensors"))
    a.write_bytes(b"one")
    b.write_bytes(b"one")
    c.write_bytes(b"two")
    names = [job(protocol, options={"weights": str(file)}).name for file in (a, b, c)]
    assert names[0] == names[1] != names[2]


def test_a_hostile_entry_makes_a_plain_folder_name(protocol: str) -> None:
    name = job(protocol, source="../../etc", target="a/b\n").name
    assert "/" not in name
    assert "\n" not in name


@pytest.mark.parametrize("name", [*PRESETS, "san", "spa", "san-no-scl:beta=1"])
def test_entries_are_methods_with_settings(name: str) -> None:
    entry = parse_entry(name)
    assert entry.name == name
    assert entry.is_reconstruction == (entry.method == "spa")


@pytest.mark.parametrize(
    ("text", "message"),
    [("san-no-slc", "san-no-scl"), ("san:lamb=1", "lam"), ("san:lam", "KEY=VALUE")],
)
def test_a_bad_entry_is_one_sentence(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        parse_entry(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stepps": "9"}, "steps"),
        ({"steps": "0"}, "1 or more"),
        ({"seed": "3"}, "does not set"),
        ({"out": "x"}, "does not set"),
    ],
)
def test_a_bad_option_is_found_while_planning(
    protocol: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        plan(protocol, "unda", ["san"], [("dark", "light")], [0], options)


def test_a_setting_the_protocol_lacks_is_one_sentence(protocol: str) -> None:
    with pytest.raises(UserError, match="unda"):
        plan(protocol, "oda", ["san"], [("dark", "light")], [0], {})


def test_the_small_data_set_matches_its_protocol(tmp_path: Path) -> None:
    path = write_data(tmp_path)
    assert len(list((path.parent / "data").rglob("*.png"))) == 2 * 6 * 8
