import pytest

from roquet.rules.balance.group_consistency import (
    members_by_value,
    ownership_fault,
    unknown_members,
    without_retry_topics,
)


def test_alike_members_are_one_faction() -> None:
    assert members_by_value({"b": {"t": "*"}, "a": {"t": "*"}}) == [({"t": "*"}, ["a", "b"])]
    assert members_by_value({}) == []


def test_the_most_common_wish_stands_first() -> None:
    wishes = {"a": "x", "b": "y", "c": "y"}
    assert members_by_value(wishes) == [("y", ["b", "c"]), ("x", ["a"])]


def test_members_of_whom_nothing_is_known_are_left_out() -> None:
    assert members_by_value({"a": "x", "b": None}) == [("x", ["a"])]


def test_retry_topics_are_not_a_members_own_will() -> None:
    assert without_retry_topics({"t": "*", "%RETRY%g": "*"}) == {"t": "*"}


def test_members_unknown_to_a_broker_are_reported() -> None:
    known = {"b": ["m1"], "a": ["m1", "m2"], "c": []}
    assert unknown_members(["m1", "m2"], known) == {"b": ["m2"], "c": ["m1", "m2"]}


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
