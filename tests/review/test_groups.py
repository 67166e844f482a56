"""Edited groups: who is in which, and two reviewers' edits at once."""

from typing import Any

import pytest

from unida.discovery.categories import LabelledImage
from unida.review.corrections import ConflictError, Corrections, merge
from unida.review.groups import check_groups, edited_groups, is_group

FOUND = tuple(LabelledImage(f"/{k}{n}.png", k, 0.6) for k in "123" for n in "ab")


def groups(**edits: dict[str, str]) -> dict[str, str]:
    images = edited_groups(FOUND, edits.get("merges", {}), edits.get("moves", {}))
    return {image.path: image.label for image in images}


def test_merges_are_followed_to_the_end_and_discarded_groups_are_left_out() -> None:
    assert set(groups(merges={"1": "2", "2": "3"}).values()) == {"3"}
    assert set(groups(merges={"1": "2", "2": "0"})) == {"/3a.png", "/3b.png"}


def test_a_moved_image_is_in_its_new_group_whatever_becomes_of_that() -> None:
    moves = {"/1a.png": "2", "/2a.png": "0", "/other.png": "3"}
    found = groups(moves=moves)
    assert (found["/1a.png"], found["/1b.png"], found["/other.png"]) == ("2", "1", "3")
    assert "/2a.png" not in found
    assert groups(moves=moves, merges={"2": "3"})["/1a.png"] == "3"


def test_confidence_stays_within_a_category_and_is_certain_elsewhere() -> None:
    moves = {"/1a.png": "1.01", "/2a.png": "1", "/3a.png": "new.5"}
    sure = {image.path: image.confidence for image in edited_groups(FOUND, {}, moves)}
    assert (sure["/1a.png"], sure["/2a.png"], sure["/3a.png"]) == (0.6, 1, 1)


def test_which_groups_may_exist() -> None:
    categories = frozenset("12")
    assert all(is_group(group, categories) for group in ("1", "1.01", "new.7f"))
    assert not any(is_group(g, categories) for g in ("3", "3.1", "1.", "new", "new.A/", ".1", ""))


def test_contradictions_within_one_stand() -> None:
    assert check_groups([], {"1": "2", "2": "3"}) is None
    assert "itself" in str(check_groups([], {"1": "2", "2": "1"}))
    assert "has a name" in str(check_groups(["1"], {"1": "2"}))


def stand(**parts: dict[str, str]) -> Corrections:
    values: dict[str, Any] = dict(parts)
    return Corrections(**values)


def test_edits_of_different_groups_are_both_kept() -> None:
    ours = stand(merges={"1": "2"}, moves={"/3a.png": "2"})
    theirs = stand(merges={"3": "0"}, names={"2": "fox"})
    merged = merge(Corrections(), ours, theirs)
    assert merged.merges == {"1": "2", "3": "0"}
    assert (merged.moves, merged.names) == ({"/3a.png": "2"}, {"2": "fox"})


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (stand(merges={"1": "2"}), stand(merges={"2": "1"})),
        (stand(merges={"1": "2"}), stand(names={"1": "fox"})),
        (stand(moves={"/1a.png": "2"}), stand(merges={"2": "0"})),
    ],
    ids=["merged into each other", "named and merged", "moved into a discarded group"],
)
def test_edits_that_contradict_each_other_are_a_conflict(
    ours: Corrections, theirs: Corrections
) -> None:
    for first, second in ((ours, theirs), (theirs, ours)):
        with pytest.raises(ConflictError) as raised:
            merge(Corrections(), first, second)
        assert raised.value.groups
        assert raised.value.current == second


def test_one_group_merged_into_two_is_a_conflict() -> None:
    with pytest.raises(ConflictError, match="category 1 is '3'"):
        merge(Corrections(), stand(merges={"1": "2"}), stand(merges={"1": "3"}))
