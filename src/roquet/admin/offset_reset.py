"""Offset reset: moves a group's committed offsets, planned before any is changed."""

import asyncio
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, TypeAlias

import msgspec

from roquet.admin import groups
from roquet.admin.client import AdminClient, known_leader, leader_addresses, without_answers
from roquet.model import names
from roquet.model.errors import CallRefused, RoquetError, UsageError
from roquet.model.queue import MessageQueue
from roquet.wire.calls.admin.group import GetConnections
from roquet.wire.calls.admin.offset_reset import ResetOffset
from roquet.wire.calls.bodies import ResetOffsetBody
from roquet.wire.calls.offset import MaxOffset, MinOffset, OffsetByTime, QueryOffset, UpdateOffset
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

LAST_MS: Final = -1
"""The timestamp that means the end of a queue, as in mqadmin."""

FIRST_MS: Final = 0
"""The timestamp that means its beginning."""


class QueueEdge(Enum):
    """The first or the last offset of a queue."""

    FIRST = "first"
    LAST = "last"


ResetTarget: TypeAlias = QueueEdge | int
"""A queue's edge, or a time in ms since the epoch: the first message stored then or later."""


class QueueReset(msgspec.Struct, frozen=True, kw_only=True):
    """A planned change of a group's offset in one queue."""

    queue: MessageQueue
    committed: int | None
    """None when the group has committed nothing there."""
    target: int
    """The offset at which it is to go on."""
    begin: int
    end: int
    """The queue's offsets: half-open [begin, end)."""
    time_ms: int
    """The requested time, for brokers that reset by time alone."""

    @property
    def redelivered(self) -> int:
        """Number of messages that are delivered once more."""
        return 0 if self.committed is None else max(self.committed - self.target, 0)

    @property
    def skipped(self) -> int:
        """Number of messages that will never be delivered to the group."""
        committed = self.begin if self.committed is None else self.committed
        return max(self.target - max(committed, self.begin), 0)


async def plan(
    admin: AdminClient,
    group: str,
    topic: str,
    target: ResetTarget,
    only: Sequence[tuple[str, int]] = (),
) -> list[QueueReset]:
    """Work out a reset; changes nothing.

    `only` names queues as (broker, queue id); empty means all. Raises UsageError for an unknown
    topic or queue.
    """
    names.check_group(group)
    route = await admin.known_route(topic)
    queues = route.read_queues(topic)
    for broker, queue_id in only:
        if MessageQueue(topic, broker, queue_id) not in queues:
            raise UsageError(f"topic {topic!r} has no queue {queue_id} on {broker!r}")
    addresses = leader_addresses(route.broker_datas)
    wanted = [q for q in queues if not only or (q.broker_name, q.queue_id) in only]
    return list(
        await asyncio.gather(
            *(_plan_queue(admin, addresses[q.broker_name], group, q, target) for q in wanted)
        )
    )


async def is_online(admin: AdminClient, group: str) -> bool:
    """Whether the group has members now. Raises CallError when a broker does not tell."""
    answers, failed = await admin.ask_each(
        await admin.brokers(), GetConnections(consumer_group=group)
    )
    for error in without_answers(failed, ResponseCode.CONSUMER_NOT_ONLINE).values():
        raise error
    return bool(answers)


async def reset(admin: AdminClient, group: str, resets: Sequence[QueueReset]) -> None:
    """Apply planned resets.

    With members online, brokers move the members; without any, the committed offsets are
    overwritten, and an unknown group is created. Raises RoquetError, with the number of queues that
    were reset, when one fails.
    """
    online = await is_online(admin, group)
    leaders = await admin.leaders()
    whole = await _brokers_moved_whole(admin, resets) if online else set()
    done: set[MessageQueue] = set()
    for change in resets:
        if change.queue in done:
            continue
        try:
            address = known_leader(leaders, change.queue.broker_name)
            if online:
                is_whole = change.queue.broker_name in whole
                done |= await _reset_online(
                    admin, address, group, change, resets, is_whole=is_whole
                )
            else:
                done |= await _commit_offset(admin, address, group, change)
        except (RoquetError, KeyError) as error:
            raise RoquetError(
                f"{len(done)} of {len(resets)} queues were reset, {change.queue} was not: {error}"
            ) from error


async def _brokers_moved_whole(admin: AdminClient, resets: Sequence[QueueReset]) -> set[str]:
    topics = {each.queue.topic for each in resets}
    routes = await asyncio.gather(*map(admin.known_route, topics))
    queues = [
        q for topic, route in zip(topics, routes, strict=True) for q in route.read_queues(topic)
    ]
    stay = {q.broker_name for q in set(queues) - {each.queue for each in resets}}
    return {each.queue.broker_name for each in resets} - stay


async def _reset_online(
    admin: AdminClient,
    address: str,
    group: str,
    change: QueueReset,
    resets: Sequence[QueueReset],
    *,
    is_whole: bool,
) -> set[MessageQueue]:
    """Let a broker reset a group that is online; returns the queues that this has reset.

    A broker that leaves it to the members (`useServerSideResetOffset=false`) may look at the time
    alone, and reset all its queues. That is right when all of them are to be reset. Otherwise it
    gets a time that moves none: without force, and ahead of all progress.
    """
    queue = change.queue
    wanted = {each.queue: each for each in resets}
    call = ResetOffset(
        topic=queue.topic,
        group=group,
        queue_id=queue.queue_id,
        offset=change.target,
        timestamp=change.time_ms if is_whole else LAST_MS,
        is_force=is_whole,
    )
    try:
        reply = await admin.ask(address, call)
    except CallRefused as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return await _commit_offset(admin, address, group, change)  # all are at proxies, and pop
    offsets = codec.loads(reply.body, ResetOffsetBody).offset_table if reply.body else {}
    if not is_whole and offsets.keys() - {queue}:
        raise RoquetError(
            "the broker can only move all its queues of the topic while the group is online,"
            " and has moved none: stop the members, or reset all queues"
        )
    _check(change, offsets)
    for other in offsets.keys() & wanted.keys():
        _check(wanted[other], offsets)
    return offsets.keys() & wanted.keys()


def _check(change: QueueReset, offsets: Mapping[MessageQueue, int]) -> None:
    """Raise RoquetError when a broker did not reset a queue to the target."""
    offset = offsets.get(change.queue)
    if offset is None:
        raise RoquetError("the broker does not say where the group goes on")
    if offset == change.target or (change.time_ms == LAST_MS and offset > change.target):
        return  # the queue's end has grown meanwhile
    raise RoquetError(
        f"the broker has the group go on at {offset} of {change.queue}, not at {change.target}"
    )


async def _commit_offset(
    admin: AdminClient, address: str, group: str, change: QueueReset
) -> set[MessageQueue]:
    """Overwrite the committed offset of one queue; creates an unknown group."""
    queue = change.queue
    call = UpdateOffset(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_offset=change.target,
    )
    try:
        await admin.ask(address, call)
    except CallRefused as error:
        if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            raise
        await groups.create(admin, group, {})
        await admin.ask(address, call)
    return {queue}


async def _plan_queue(
    admin: AdminClient, address: str, group: str, queue: MessageQueue, target: ResetTarget
) -> QueueReset:
    topic, queue_id = queue.topic, queue.queue_id
    low, high, committed = await asyncio.gather(
        admin.ask(address, MinOffset(topic=topic, queue_id=queue_id)),
        admin.ask(address, MaxOffset(topic=topic, queue_id=queue_id)),
        committed_offset(admin, address, group, queue),
    )
    begin, end = low.offset, high.offset
    if isinstance(target, QueueEdge):
        offset, time_ms = (begin, FIRST_MS) if target is QueueEdge.FIRST else (end, LAST_MS)
    else:
        time_ms = target
        call = OffsetByTime(topic=topic, queue_id=queue_id, timestamp=target)
        offset = min(max((await admin.ask(address, call)).offset, begin), end)
    return QueueReset(
        queue=queue, committed=committed, target=offset, begin=begin, end=end, time_ms=time_ms
    )


async def committed_offset(
    admin: AdminClient, address: str, group: str, queue: MessageQueue
) -> int | None:
    """A group's committed offset, by the broker at an address; None where it has none."""
    call = QueryOffset(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        set_zero_if_not_found=False,
    )
    try:
        return (await admin.ask(address, call)).offset
    except CallRefused as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        raise
