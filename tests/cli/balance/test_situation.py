"""Situations from a few numbers, and what makes no sense."""

from typing import Any

import pytest

from roquet.cli.balance.situation import MemberChange, build_situation
from roquet.model.errors import UsageError


def test_queues_are_neighbours_on_brokers_in_rooms() -> None:
    situation = build_situation(queues=5, brokers=2)
    assert [str(queue) for queue in situation.queues] == [
        "Orders@room1@broker-a:0",
        "Orders@room1@broker-a:1",
        "Orders@room1@broker-a:2",
        "Orders@room2@broker-b:0",
        "Orders@room2@broker-b:1",
    ]
    assert [situation.label(queue) for queue in situation.queues] == ["a0", "a1", "a2", "b0", "b1"]
    assert [situation.room_of_member(member) for member in situation.members] == [
        "room1",
        "room2",
        "room1",
    ]
    assert situation.summary() == "5 queues on 2 brokers, 3 members in 2 rooms"


def test_one_broker_is_one_machine_room_and_needs_no_letter() -> None:
    situation = build_situation(queues=1, members=1)
    assert situation.label(situation.queues[0]) == "0"
    assert situation.summary() == "1 queue on 1 broker, 1 member"


def test_a_newcomer_has_the_next_name_and_names_sort_as_numbers() -> None:
    situation = build_situation(members=9, then=MemberChange.JOIN)
    assert situation.changed_member == "c10"
    assert situation.remaining == [f"c{n:02}" for n in range(1, 11)]
    assert situation.summary().endswith("9 members; then c10 joins")


def test_the_last_member_leaves_unless_another_is_named() -> None:
    assert build_situation(then=MemberChange.LEAVE).remaining == ["c1", "c2"]
    killed = build_situation(then=MemberChange.KILL, who="c1")
    assert killed.remaining == ["c2", "c3"]
    assert killed.all_members == ["c1", "c2", "c3"]
    assert killed.summary().endswith("then c1 is killed")
    assert build_situation(then=MemberChange.LEAVE).summary().endswith("then c3 leaves")


def test_lag_is_in_the_order_of_the_queues() -> None:
    situation = build_situation(queues=3, lag="5,0, 9")
    assert [situation.lag[queue] for queue in situation.queues] == [5, 0, 9]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"queues": 2, "brokers": 3}, "too few for 3 brokers"),
        ({"lag": "1,2"}, "--lag has 2 numbers: one for each of 8 queues is due"),
        ({"lag": "many"}, "'many' is not a list of numbers"),
        ({"lag": "0,0,0,0,0,0,0,-4"}, "-4 messages cannot wait"),
        ({"then": MemberChange.LEAVE, "members": 1}, "nobody would be left"),
        ({"then": MemberChange.KILL, "who": "C2"}, "no member 'C2'; did you mean 'c2'"),
        ({"then": MemberChange.JOIN, "who": "c2"}, "--who says who leaves"),
        ({"who": "c2"}, "--who says who leaves"),
    ],
)
def test_impossible_numbers_are_an_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build_situation(**changes)
