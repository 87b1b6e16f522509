import pytest

from roquet.model.topic import SubscriptionGroup
from roquet.rules.replication.replica_reads import (
    ReadBacklog,
    ReplicaAnswer,
    replica_answer,
    returns_to_master,
    suggested_broker_id,
)
from roquet.wire.codes import ResponseCode

GROUP = SubscriptionGroup(group_name="g", which_broker_when_consume_slowly=2, broker_id=0)
RECENT = ReadBacklog(bytes_behind=400, memory=1_000, memory_share=0.4)
OLD = ReadBacklog(bytes_behind=401, memory=1_000, memory_share=0.4)

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
    backlog: ReadBacklog, enabled: bool, returns: bool, suggested: int
) -> None:
    group_answer = suggested_broker_id(
        GROUP, backlog, reads_replicas=enabled, returns_to_master=returns
    )
    assert group_answer == suggested


def test_a_group_may_name_the_broker_that_it_always_reads_from() -> None:
    group = SubscriptionGroup(group_name="g", broker_id=3)
    assert suggested_broker_id(group, RECENT, reads_replicas=True, returns_to_master=False) == 3
    assert suggested_broker_id(group, RECENT, reads_replicas=True, returns_to_master=True) == 0


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
    backlog: ReadBacklog, is_replica: bool, is_master_alive: bool, expected: bool
) -> None:
    assert (
        returns_to_master(backlog, is_replica=is_replica, is_master_alive=is_master_alive)
        == expected
    )


@pytest.mark.parametrize(
    ("code", "returns", "corrects", "expected"),
    [
        (FOUND, True, False, ReplicaAnswer(FOUND, 9)),
        (NOT_FOUND, True, False, ReplicaAnswer(RETRY, 9)),
        (NOT_FOUND, False, False, ReplicaAnswer(NOT_FOUND, 9)),
        (RETRY, False, True, ReplicaAnswer(RETRY, 9)),
        (MOVED, True, False, ReplicaAnswer(RETRY, 5)),
        (MOVED, False, False, ReplicaAnswer(RETRY, 5)),
        (MOVED, True, True, ReplicaAnswer(RETRY, 9)),
        (MOVED, False, True, ReplicaAnswer(MOVED, 9)),
    ],
)
def test_a_replica_does_not_move_a_consumer_unless_it_may(
    code: int, returns: bool, corrects: bool, expected: ReplicaAnswer
) -> None:
    answer = replica_answer(code, 9, 5, returns_to_master=returns, corrects_offsets=corrects)
    assert answer == expected
