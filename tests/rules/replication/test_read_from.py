"""Which broker of a name is read, and replies that a replica may give."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.topic import SubscriptionGroup
from roquet.rules.replication import read_from
from roquet.rules.replication import read_from as rules
from roquet.wire.codes import ResponseCode

NEW = rules.ReadSource()


def choice(
    how: rules.ReadFrom, source: rules.ReadSource, ids: set[int], now_ms: int = 0, turn: int = 0
) -> int | None:
    return rules.next_broker_id(how, source, rules.usable_ids(source, ids, now_ms), turn)


IDS = st.sets(st.integers(0, 4))


def test_the_numbers_are_those_of_the_wire() -> None:
    assert ResponseCode(read_from.FOUND) is ResponseCode.SUCCESS
    assert ResponseCode(read_from.FILTERED) is ResponseCode.PULL_RETRY_IMMEDIATELY


@pytest.mark.parametrize(
    ("how", "suggested", "ids", "expected"),
    [
        (rules.ReadFrom.MASTER, 1, {0, 1, 2}, 0),
        (rules.ReadFrom.MASTER, 0, {1, 2}, 1),
        (rules.ReadFrom.SUGGESTED, 0, {0, 1, 2}, 0),
        (rules.ReadFrom.SUGGESTED, 1, {0, 1, 2}, 1),
        (rules.ReadFrom.SUGGESTED, 1, {0, 2}, 2),
        (rules.ReadFrom.SUGGESTED, 1, {0, 3}, 0),
        (rules.ReadFrom.SUGGESTED, 0, {3, 2}, 2),
        (rules.ReadFrom.REPLICA, 0, {0, 2}, 2),
        (rules.ReadFrom.REPLICA, 0, {0}, 0),
        (rules.ReadFrom.REPLICA, 0, set(), None),
    ],
)
def test_a_missing_broker_is_replaced_by_the_next_id_and_then_by_any(
    how: rules.ReadFrom, suggested: int, ids: set[int], expected: int | None
) -> None:
    assert choice(how, rules.ReadSource(suggested_id=suggested), ids) == expected


def test_readers_are_distributed_over_replicas() -> None:
    chosen = [choice(rules.ReadFrom.REPLICA, NEW, {0, 1, 2}, turn=turn) for turn in range(4)]
    assert chosen == [1, 2, 1, 2]


def test_a_broker_that_failed_is_left_alone_for_a_while() -> None:
    failed = rules.after_failure(rules.ReadSource(suggested_id=1), 1, 100)
    assert failed.suggested_id == 0
    replica = [
        choice(rules.ReadFrom.REPLICA, failed, {0, 1}, now_ms)
        for now_ms in (100, 99 + rules.AVOID_MS, 100 + rules.AVOID_MS)
    ]
    assert replica == [0, 0, 1]


def test_a_master_that_failed_is_replaced_by_a_replica() -> None:
    failed = rules.after_failure(NEW, 0, 0)
    assert choice(rules.ReadFrom.MASTER, failed, {0, 1}, 1) == 1


def test_when_all_failed_the_first_choice_is_tried_again() -> None:
    failed = rules.after_failure(rules.after_failure(NEW, 0, 0), 1, 0)
    assert choice(rules.ReadFrom.MASTER, failed, {0, 1}, 1) == 0
    assert choice(rules.ReadFrom.REPLICA, failed, {0, 1}, 1) == 1


def test_an_answer_brings_a_suggestion_and_forgives_its_broker() -> None:
    source = rules.after_answer(rules.after_failure(rules.after_failure(NEW, 0, 0), 1, 0), 0, 1)
    assert source == rules.ReadSource(suggested_id=1, avoided={1: rules.AVOID_MS})


@given(st.sampled_from(rules.ReadFrom), st.integers(0, 4), IDS, IDS, st.integers(0, 9))
def test_the_choice_has_an_address_and_is_not_avoided_without_need(
    how: rules.ReadFrom, suggested: int, ids: set[int], avoided: set[int], turn: int
) -> None:
    source = rules.ReadSource(suggested_id=suggested, avoided=dict.fromkeys(avoided, 1))
    chosen = choice(how, source, ids, turn=turn)
    assert (chosen in ids) if ids else (chosen is None)
    assert chosen not in avoided or ids <= avoided


@pytest.mark.parametrize(
    ("code", "asked", "next_offset", "expected"),
    [
        (ResponseCode.SUCCESS, 5, 7, True),
        (ResponseCode.SUCCESS, 5, 5, False),
        (ResponseCode.SUCCESS, 4, 7, False),  # older than its first message
        (ResponseCode.PULL_RETRY_IMMEDIATELY, 5, 9, True),  # all filtered
        (ResponseCode.PULL_RETRY_IMMEDIATELY, 5, 11, False),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, 10, 10, False),  # nothing new here
        (ResponseCode.PULL_RETRY_IMMEDIATELY, 2, 5, False),  # moved to its first message
        (ResponseCode.PULL_NOT_FOUND, 10, 10, False),
        (ResponseCode.PULL_OFFSET_MOVED, 20, 10, False),
        (ResponseCode.PULL_OFFSET_MOVED, 2, 5, False),
    ],
)
def test_only_messages_that_a_replica_has_move_a_reader(
    code: int, asked: int, next_offset: int, expected: bool
) -> None:
    offsets = rules.PulledOffsets(asked=asked, next=next_offset, first=5, end=10)
    assert rules.has_messages(code, offsets) is expected


GROUP = SubscriptionGroup(group_name="g", which_broker_when_consume_slowly=2, broker_id=0)
RECENT = rules.ReadBacklog(bytes_behind=400, memory=1_000, memory_share=0.4)
OLD = rules.ReadBacklog(bytes_behind=401, memory=1_000, memory_share=0.4)

FOUND, NOT_FOUND = int(ResponseCode.SUCCESS), int(ResponseCode.PULL_NOT_FOUND)
RETRY, MOVED = int(ResponseCode.PULL_RETRY_IMMEDIATELY), int(ResponseCode.PULL_OFFSET_MOVED)


@pytest.mark.parametrize(
    ("backlog", "enabled", "returns", "suggested"),
    [
        (RECENT, False, False, 0),
        (OLD, False, False, 0),
        (RECENT, True, False, 0),
        (OLD, True, False, 2),
        (RECENT, True, True, 0),
    ],
)
def test_a_slow_group_is_sent_to_its_replica_if_replicas_may_be_read(
    backlog: rules.ReadBacklog, enabled: bool, returns: bool, suggested: int
) -> None:
    group_answer = rules.suggested_broker_id(
        GROUP, backlog, reads_replicas=enabled, returns_to_master=returns
    )
    assert group_answer == suggested


def test_a_group_may_name_the_broker_that_it_always_reads_from() -> None:
    group = SubscriptionGroup(group_name="g", broker_id=3)
    assert (
        rules.suggested_broker_id(group, RECENT, reads_replicas=True, returns_to_master=False) == 3
    )
    assert (
        rules.suggested_broker_id(group, RECENT, reads_replicas=True, returns_to_master=True) == 0
    )


@pytest.mark.parametrize(
    ("backlog", "is_replica", "is_master_alive", "expected"),
    [
        (RECENT, True, True, True),
        (OLD, True, True, False),
        (RECENT, True, False, False),
        (RECENT, False, True, False),
    ],
)
def test_a_reader_that_has_caught_up_at_a_replica_goes_back_to_a_master_that_lives(
    backlog: rules.ReadBacklog, is_replica: bool, is_master_alive: bool, expected: bool
) -> None:
    assert (
        rules.returns_to_master(backlog, is_replica=is_replica, is_master_alive=is_master_alive)
        == expected
    )


@pytest.mark.parametrize(
    ("code", "returns", "corrects", "expected"),
    [
        (FOUND, True, False, rules.ReplicaAnswer(FOUND, 9)),
        (NOT_FOUND, True, False, rules.ReplicaAnswer(RETRY, 9)),
        (NOT_FOUND, False, False, rules.ReplicaAnswer(NOT_FOUND, 9)),
        (RETRY, False, True, rules.ReplicaAnswer(RETRY, 9)),
        (MOVED, True, False, rules.ReplicaAnswer(RETRY, 5)),
        (MOVED, False, False, rules.ReplicaAnswer(RETRY, 5)),
        (MOVED, True, True, rules.ReplicaAnswer(RETRY, 9)),
        (MOVED, False, True, rules.ReplicaAnswer(MOVED, 9)),
    ],
)
def test_a_replica_does_not_move_a_consumer_unless_it_may(
    code: int, returns: bool, corrects: bool, expected: rules.ReplicaAnswer
) -> None:
    answer = rules.replica_answer(code, 9, 5, returns_to_master=returns, corrects_offsets=corrects)
    assert answer == expected
