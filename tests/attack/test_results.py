"""Results of a bench that come from anyone."""

import gzip
import json
from pathlib import Path

import pytest

from tests.bench.test_tables import make
from unida.bench import results
from unida.bench.results import from_json, read_results, to_json
from unida.errors import UserError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("entry", ["san"]),
        ("seed", "0"),
        ("images", []),
        ("known_classes", [[]]),
        ("settings", {"lam": []}),
    ],
)
def test_a_field_of_another_type_is_refused(name: str, value: object) -> None:
    line = json.dumps(json.loads(to_json(make())) | {name: value})
    with pytest.raises(UserError, match=f"here is not a result .*{name} is"):
        from_json(line, "here")


def test_a_small_file_with_an_endless_text_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "results.jsonl.gz"
    file.write_bytes(gzip.compress(bytes(2**20)))
    monkeypatch.setattr(results, "MAX_TEXT", 2**16)
    with pytest.raises(UserError, match="more than 65536 bytes"):
        read_results(file)


def test_the_reason_is_not_the_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    file.write_bytes(to_json(make()).encode() * 50 + b"\xff")
    with pytest.raises(UserError, match="cannot be read") as error:
        read_results(file)
    assert len(str(error.value)) < 500
