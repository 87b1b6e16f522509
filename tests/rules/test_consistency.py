"""What is amiss in a group."""

import pytest

from roquet.rules.consistency import factions, missing, own_topics, ownership_fault


def test_alike_members_are_one_faction() -> None:
    assert factions({"b": {"t": "*"}, "a": {"t": "*"}}) == [({"t": "*"}, ["a", "b"])]
    assert factions({}) == []


def test_the_most_common_wish_stands_first() -> None:
    wishes = {"a": "x", "b": "y", "c": "y"}
    assert factions(wishes) == [("y", ["b", "c"]), ("x", ["a"])]


def test_members_of_whom_nothing_is_known_are_left_out() -> None:
    assert factions({"a": "x", "b": None}) == [("x", ["a"])]


def test_retry_topics_are_not_a_members_own_will() -> None:
    assert own_topics({"t": "*", "%RETRY%g": "*"}) == {"t": "*"}


def test_who_is_unknown_to_a_broker_is_named() -> None:
    known = {"b": ["m1"], "a": ["m1", "m2"], "c": []}
    assert missing(["m1", "m2"], known) == {"b": ["m2"], "c": ["m1", "m2"]}


@pytest.mark.parametrize(
    ("owners", "wanted", "fault"),
    [
        (["a"], True, None),
        (["a", "b"], True, "2 owners"),
        (["a", "b"], False, "2 owners"),
        ([], True, "no owner"),
        ([], False, None),
        (None, True, None),
    ],
)
def test_a_queue_has_one_owner(owners: list[str] | None, wanted: bool, fault: str | None) -> None:
    assert ownership_fault(owners, wanted=wanted) == fault
