"""Progress: where a group is to go on, worked out for every queue before anything is changed."""

import asyncio
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, TypeAlias

import msgspec

from roquet.admin import groups
from roquet.admin.client import AdminClient, leader_addresses
from roquet.model import names
from roquet.model.errors import CallRefused, RoquetError, UsageError
from roquet.model.queue import MessageQueue
from roquet.wire.calls.admin.group import GetConnections
from roquet.wire.calls.admin.offset_reset import ResetOffset
from roquet.wire.calls.bodies import ResetOffsetBody
from roquet.wire.calls.offset import (
    MaxOffset,
    MinOffset,
    OffsetByTime,
    QueryOffset,
    UpdateOffset,
)
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

LAST_MS: Final = -1
"""The time that stands for the end of a queue."""

FIRST_MS: Final = 0
"""The one that stands for its beginning."""


class QueueEdge(Enum):
    """Where a queue begins and ends."""

    FIRST = "first"
    LAST = "last"


ResetTarget: TypeAlias = QueueEdge | int
"""An edge, or a time in ms since the epoch: the first message stored then or later."""


class QueueReset(msgspec.Struct, frozen=True, kw_only=True):
    """Where a group stands in a queue, and where it is to go on."""

    queue: MessageQueue
    now: int | None
    """None when the group has no progress there."""
    then: int
    begin: int
    end: int
    time_ms: int
    """The time that was asked for: what brokers are told that know times alone."""

    @property
    def again(self) -> int:
        """Messages that come once more."""
        return max((self.now or 0) - self.then, 0) if self.now is not None else 0

    @property
    def skipped(self) -> int:
        """Messages that will never be handled."""
        return max(self.then - max(self.now if self.now is not None else self.begin, self.begin), 0)


async def plan(
    admin: AdminClient,
    group: str,
    topic: str,
    target: ResetTarget,
    only: Sequence[tuple[str, int]] = (),
) -> list[QueueReset]:
    """What a reset would do in each queue, or in those named by broker and id; changes nothing."""
    names.check_group(group)
    route = await admin.known_route(topic)
    queues = route.read_queues(topic)
    for broker, queue_id in only:
        if MessageQueue(topic, broker, queue_id) not in queues:
            raise UsageError(f"topic {topic!r} has no queue {queue_id} on {broker!r}")
    places = leader_addresses(route.broker_datas)
    wanted = [q for q in queues if not only or (q.broker_name, q.queue_id) in only]
    return list(
        await asyncio.gather(
            *(_plan_queue(admin, places[q.broker_name], group, q, target) for q in wanted)
        )
    )


async def is_online(admin: AdminClient, group: str) -> bool:
    """Whether the group has members now."""
    answers, failed = await admin.ask_each(
        await admin.brokers(), GetConnections(consumer_group=group)
    )
    for error in failed.values():
        if not isinstance(error, CallRefused):
            raise error
    return bool(answers)


async def reset(admin: AdminClient, group: str, moves: Sequence[QueueReset]) -> None:
    """Have a group go on where the moves say.

    A broker moves or tells members that are online; without any, its table of progress is changed,
    and a group that nobody knows yet is made.
    RoquetError says how many queues were reset when not all were.
    """
    online = await is_online(admin, group)
    brokers = await admin.brokers()
    whole = await _brokers_moved_whole(admin, moves) if online else set()
    done: set[MessageQueue] = set()
    for move in moves:
        if move.queue in done:
            continue
        try:
            address = brokers[move.queue.broker_name]
            if online:
                is_whole = move.queue.broker_name in whole
                done |= await _reset_online(admin, address, group, move, moves, is_whole=is_whole)
            else:
                done |= await _commit_offset(admin, address, group, move)
        except (RoquetError, KeyError) as error:
            raise RoquetError(
                f"{len(done)} of {len(moves)} queues were reset, {move.queue} was not: {error}"
            ) from error


async def _brokers_moved_whole(admin: AdminClient, moves: Sequence[QueueReset]) -> set[str]:
    """The brokers of which all queues are to move."""
    topics = {move.queue.topic for move in moves}
    routes = await asyncio.gather(*map(admin.known_route, topics))
    there = [
        q for topic, route in zip(topics, routes, strict=True) for q in route.read_queues(topic)
    ]
    stay = {q.broker_name for q in set(there) - {move.queue for move in moves}}
    return {move.queue.broker_name for move in moves} - stay


async def _reset_online(
    admin: AdminClient,
    address: str,
    group: str,
    move: QueueReset,
    moves: Sequence[QueueReset],
    *,
    is_whole: bool,
) -> set[MessageQueue]:
    """Have a broker move a group that is online; gives the queues that are done with it.

    A broker that leaves it to the members (`useServerSideResetOffset=false`) may look at the time
    alone, and tell of all its queues. That is what is wanted when all of them are to move. When
    some are not, it gets a time that moves none: not by force, and ahead of everybody.
    """
    queue = move.queue
    wanted = {m.queue: m for m in moves}
    call = ResetOffset(
        topic=queue.topic,
        group=group,
        queue_id=queue.queue_id,
        offset=move.then,
        timestamp=move.time_ms if is_whole else LAST_MS,
        is_force=is_whole,
    )
    reply = await admin.ask(address, call)
    found = codec.loads(reply.body, ResetOffsetBody).offset_table if reply.body else {}
    if not is_whole and found.keys() - {queue}:
        raise RoquetError(
            "the broker can only move all its queues of the topic while the group is online,"
            " and has moved none: stop the members, or reset all queues"
        )
    _check(move, found)
    for other in found.keys() & wanted.keys():
        _check(wanted[other], found)
    return found.keys() & wanted.keys()


def _check(move: QueueReset, found: Mapping[MessageQueue, int]) -> None:
    """RoquetError when a broker has not done with a queue what it was asked for."""
    offset = found.get(move.queue)
    if offset is None:
        raise RoquetError("the broker does not say where the group goes on")
    if offset == move.then or (move.time_ms == LAST_MS and offset > move.then):
        return  # its end, which has moved on meanwhile
    raise RoquetError(
        f"the broker has the group go on at {offset} of {move.queue}, not at {move.then}"
    )


async def _commit_offset(
    admin: AdminClient, address: str, group: str, move: QueueReset
) -> set[MessageQueue]:
    """Change a broker's table of progress."""
    queue = move.queue
    call = UpdateOffset(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_offset=move.then,
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
    low, high, now = await asyncio.gather(
        admin.ask(address, MinOffset(topic=topic, queue_id=queue_id)),
        admin.ask(address, MaxOffset(topic=topic, queue_id=queue_id)),
        _committed(admin, address, group, queue),
    )
    begin, end = low.offset, high.offset
    if isinstance(target, QueueEdge):
        then, time_ms = (begin, FIRST_MS) if target is QueueEdge.FIRST else (end, LAST_MS)
    else:
        time_ms = target
        call = OffsetByTime(topic=topic, queue_id=queue_id, timestamp=target)
        then = min(max((await admin.ask(address, call)).offset, begin), end)
    return QueueReset(queue=queue, now=now, then=then, begin=begin, end=end, time_ms=time_ms)


async def _committed(
    admin: AdminClient, address: str, group: str, queue: MessageQueue
) -> int | None:
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
