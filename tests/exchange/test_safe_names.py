"""Names of files are safe whatever the class is called."""

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unida.exchange.safe_names import MAX_BYTES, NameTable, safe_name

HOSTILE = [
    "..", ".", "", " ", "a/b", "a\\b", "../../etc/passwd", "/root", "C:\\x", "a\0b", "NUL",
    "nul.txt", "Com1", "LPT9.png", "COM¹", "~root", "-rf", ".hidden", "x.", "x ", "a\nb",
    "a\u202eb", "\udc80", "q?*|<>\"", "é" * 300, "cat",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_a_hostile_name_is_one_plain_file_in_its_folder(text: str, tmp_path: Path) -> None:
    name = safe_name(text)
    (tmp_path / name).touch()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert not name.startswith((".", "-", "~", " "))
    assert not name.endswith((".", " "))
    assert name.split(".")[0].strip().upper() not in {"NUL", "COM1", "LPT9", "COM¹"}


def test_a_plain_name_stays() -> None:
    for name in ("cat", "Alarm Clock", "größe", "犬", "a.b-c_d"):
        assert safe_name(name) == name


@given(st.text())
def test_any_text_has_a_name(text: str) -> None:
    name = safe_name(text)
    assert 1 <= len(name.encode()) <= MAX_BYTES
    assert not set(name) & set('/\\:*?"<>|')
    assert all(unicodedata.category(c)[0] != "C" for c in name)
    assert name not in (".", "..")
    assert safe_name(text) == name


@given(st.lists(st.text(alphabet="aAé\u00e9e\u0301./-2 "), unique=True))
def test_different_texts_differ_in_more_than_case(texts: list[str]) -> None:
    names = NameTable(["unknown"])
    made = [names.add(text) for text in texts]
    folded = {unicodedata.normalize("NFC", name).casefold() for name in made}
    assert len(folded) == len(texts)
    assert "unknown" not in folded


def test_a_long_name_keeps_its_extension() -> None:
    assert safe_name("é" * 300 + ".jpeg") == "é" * 47 + ".jpeg"
    assert len(safe_name("a." + "x" * 300)) == MAX_BYTES


def test_a_number_goes_before_the_extension() -> None:
    names = NameTable()
    assert [names.add("1.png") for _ in range(3)] == ["1.png", "1-2.png", "1-3.png"]
    assert names.add("1-2.PNG") == "1-2-2.PNG"
