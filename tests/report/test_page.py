"""The page as a file: complete, self-contained, and safe against markup in names."""

import json
import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.report.made_up import CLASSES, HOSTILE
from unida.report.page import _fill, render, to_block

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=50)
@given(ANYTHING)
def test_what_goes_into_the_block_comes_out(content: object) -> None:
    assert json.loads(to_block(content)) == content


@given(st.text())
def test_no_character_of_the_block_is_markup(text: str) -> None:
    block = to_block({text: [text]})
    assert block.isascii()
    assert not set("<>&") & set(block)


def test_dangerous_texts_are_escaped() -> None:
    for text in ("\u2028", "\u2029", "\udcff", "</script>", "<!--", "]]>"):
        assert text not in to_block(text)
        assert json.loads(to_block(text)) == text


def test_numbers_that_json_does_not_have_are_null() -> None:
    content = {"a": [float("nan"), (float("inf"), 1.5)]}
    assert json.loads(to_block(content)) == {"a": [None, [None, 1.5]]}


def test_a_part_is_not_searched_for_names() -> None:
    assert _fill("<{{a}}|{{b}}>", {"a": "{{b}}", "b": "{{a}}"}) == "<{{b}}|{{a}}>"


def test_the_page_loads_nothing(report: Path) -> None:
    text = report.read_text()
    addresses = set(re.findall(r"(?:https?:)?//[a-z][\w.]+", text.partition('id="data"')[0]))
    assert addresses == set()
    assert re.findall(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"(?!data:,)", text) == []
    assert "default-src 'none'" in text


def test_names_stand_only_in_the_block_and_escaped(report: Path) -> None:
    text = report.read_text()
    assert HOSTILE not in text
    assert CLASSES[2] not in text
    assert text.count("<script") == 2
    assert text.count("</script>") == 2


def test_the_script_never_makes_markup_of_text() -> None:
    text = render({})
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
