"""Replica reads: which broker of a group a consumer reads from next, and answers of a replica.

A master whose consumer is so far behind that its messages have left the memory sends it to a
replica, which sends it back once it has caught up there. Source: Apache RocketMQ 5.5.0,
PullMessageProcessor and DefaultMessageStore.getMessage.
"""

from typing import Final

import msgspec

from roquet.model.topic import MASTER_ID, SubscriptionGroup


class ReadBacklog(msgspec.Struct, frozen=True, kw_only=True):
    """How far the messages of a pull lie in front of the log's end, in bytes."""

    bytes_behind: int
    """From the last entry that was scanned to the end; 0 when nothing was."""
    memory: int
    """Memory of the machine."""
    memory_share: float
    """Share of it that recent messages may be in (accessMessageInMemoryMaxRatio)."""

    @property
    def is_slow(self) -> bool:
        """Whether the messages are likely to be on the disk alone."""
        return self.bytes_behind > self.memory * self.memory_share


def suggested_broker_id(
    group: SubscriptionGroup,
    backlog: ReadBacklog,
    *,
    reads_replicas: bool,
    returns_to_master: bool,
) -> int:
    """Id of the broker that a consumer reads from next (suggestWhichBrokerId).

    `reads_replicas` is the setting slaveReadEnable: without it every consumer reads from the
    master. A group may name the broker for its slow members (whichBrokerWhenConsumeSlowly), and
    the one for all others (brokerId). `returns_to_master`: a replica answers, and the reader has
    caught up there (see `returns_to_master`).
    """
    if not reads_replicas or returns_to_master:
        return MASTER_ID
    return group.which_broker_when_consume_slowly if backlog.is_slow else group.broker_id


def returns_to_master(backlog: ReadBacklog, *, is_replica: bool, is_master_alive: bool) -> bool:
    """Whether a reader has caught up at a replica, and the master lives to which it goes back."""
    return is_replica and is_master_alive and not backlog.is_slow


NOT_FOUND: Final = 19
RETRY_IMMEDIATELY: Final = 20
OFFSET_MOVED: Final = 21
"""Response codes of a pull."""


class ReplicaAnswer(msgspec.Struct, frozen=True):
    """Response code and next offset of a pull at a replica."""

    code: int
    next_offset: int


def replica_answer(
    code: int, next_offset: int, asked: int, *, returns_to_master: bool, corrects_offsets: bool
) -> ReplicaAnswer:
    """Answer of a replica in place of the one that a master with the same queue would give.

    A wrong offset stays as it was asked for, unless `corrects_offsets` (offsetCheckInSlave): a
    replica that lacks old files, or is behind, must not move a consumer. Without messages a reader
    that returns to the master does so at once, and does not wait here.
    """
    if code == OFFSET_MOVED and not corrects_offsets:
        return ReplicaAnswer(RETRY_IMMEDIATELY, asked)
    if code in (NOT_FOUND, OFFSET_MOVED) and returns_to_master:
        return ReplicaAnswer(RETRY_IMMEDIATELY, next_offset)
    return ReplicaAnswer(code, next_offset)
