"""Read from: which broker of a name is read or suggested, and the replies of a replica.

    read_from   MASTER ──▶ id 0        SUGGESTED k ──▶ k, k + 1        REPLICA ──▶ one of ids > 0
    not there, or left alone for a while ──▶ the lowest id that is there, which is 0 with a master

A replica may lack what its master has: the newest messages, the oldest ones, a young topic. So only
messages that it has move a reader; every other answer sends the reader back to the master. Source:
pulls of Apache RocketMQ's clients (`PullAPIWrapper`, `findBrokerAddressInSubscribe`); there any
reply of a replica moves the reader. This layer does not import `wire.codes.ResponseCode`: a test
compares the numbers.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec

from roquet.model.route import MASTER_ID

if TYPE_CHECKING:
    from roquet.model.topic import SubscriptionGroup

AVOID_MS: Final = 3_000
"""How long a broker is left alone that failed or lacked messages: the time that a replica may need
to catch up, and a small part of its reads for one that is far behind."""

FOUND: Final = 0
"""SUCCESS: the reply holds messages."""

FILTERED: Final = 20
"""PULL_RETRY_IMMEDIATELY: no message up to the next offset passed the filter. Replicas also answer
it for offsets that they do not have."""


class ReadFrom(Enum):
    """Which broker of a name messages are read from."""

    MASTER = "master"
    """The master; a replica while the master is away."""
    REPLICA = "replica"
    """A replica for the messages that it has; the master for the newest ones, and without one."""
    SUGGESTED = "suggested"
    """The broker that the last reply suggested: a master sends readers that are far behind to a
    replica if its `slaveReadEnable` says so."""


class ReadSource(msgspec.Struct, frozen=True, kw_only=True):
    """Brokers of one queue as its reader knows them: the suggested one, and those left alone."""

    suggested_id: int = MASTER_ID
    """The broker id that the last reply suggested."""
    avoided: Mapping[int, int] = {}
    """Broker ids to leave alone, each with the end of that time on the monotonic clock."""


class PulledOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """The offsets of a pull and of its reply."""

    asked: int
    next: int
    first: int
    """The first offset that the broker has."""
    end: int
    """The offset that its next message will get."""


def usable_ids(source: ReadSource, ids: Collection[int], now_ms: int) -> Sequence[int]:
    """The broker ids that are not left alone now, or all when there is no other; sorted."""
    there = sorted(ids)
    return [each for each in there if source.avoided.get(each, 0) <= now_ms] or there


def next_broker_id(
    read_from: ReadFrom, source: ReadSource, usable: Sequence[int], turn: int = 0
) -> int | None:
    """The broker id to read from, out of `usable_ids`; None without any.

    `turn` distributes readers over several replicas, for example a queue's id.
    """
    for wanted in _wanted(read_from, source, usable, turn):
        if wanted in usable:
            return wanted
    return usable[0] if usable else None


def _wanted(
    read_from: ReadFrom, source: ReadSource, usable: Sequence[int], turn: int
) -> Sequence[int]:
    match read_from:
        case ReadFrom.MASTER:
            return [MASTER_ID]
        case ReadFrom.REPLICA:
            replicas = [broker_id for broker_id in usable if broker_id != MASTER_ID]
            return [replicas[turn % len(replicas)]] if replicas else []
        case ReadFrom.SUGGESTED:
            k = source.suggested_id
            return [k] if k == MASTER_ID else [k, k + 1]


def has_messages(code: int, offsets: PulledOffsets) -> bool:
    """Whether a replica's reply may move the reader: the replica has the offset that was asked for.

    An offset below its first one may still be at the master, and one at its end too; a replica that
    corrects such an offset would make the reader skip messages, or repeat all.
    """
    if not offsets.first <= offsets.asked < offsets.next:
        return False
    return code == FOUND or (code == FILTERED and offsets.next <= offsets.end)


def after_answer(source: ReadSource, broker_id: int, suggested_id: int) -> ReadSource:
    """After a reply that was of use: follow its suggestion."""
    avoided = {other: until for other, until in source.avoided.items() if other != broker_id}
    return ReadSource(suggested_id=suggested_id, avoided=avoided)


def after_failure(source: ReadSource, broker_id: int, now_ms: int) -> ReadSource:
    """After a failure, or a reply of a replica that lacks the messages: leave the broker alone."""
    return ReadSource(avoided={**source.avoided, broker_id: now_ms + AVOID_MS})


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
    group: "SubscriptionGroup",
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
