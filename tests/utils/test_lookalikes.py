"""Names that a person cannot tell apart are found, and told apart in the message."""

import pytest

from unida.utils.lookalikes import describe_clash, look_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("caf\u00e9", "cafe\u0301"),
        ("cat", "c\u200bat"),
        ("cat", "cat\ufeff"),
        ("cat", "ca\u00adt"),
        ("cat", "cat\ufe0f"),
        ("big cat", "big\u00a0 cat "),
        ("Cat", "cat"),
        ("STRASSE", "straße"),
        ("unknown", "UnKnown\u2060"),
    ],
)
def test_these_look_alike(one: str, other: str) -> None:
    assert look_of(one) == look_of(other)
    assert describe_clash([one, "another", other])


def test_these_do_not() -> None:
    names = ["cat", "cats", "c-at", "cät", "c", "c++", "ｃ", "字", "-1", "1", "x²", "x2"]
    assert describe_clash(names) == ""


def test_the_message_shows_the_difference() -> None:
    assert describe_clash(["Ant", "bee", "ant"]) == "differ only in case (Ant, ant)"
    assert describe_clash(["é", "e\u0301"]) == r"look alike ('\xe9', 'e\u0301')"
