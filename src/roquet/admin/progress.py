"""Progress: where a group is to go on, worked out for every queue before anything is changed."""

import asyncio
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, TypeAlias

import msgspec

from roquet.admin import groups
from roquet.admin.reach import Reach, leaders
from roquet.model import names
from roquet.model.errors import CallRefused, RoquetError, UsageError
from roquet.model.queue import MessageQueue
from roquet.wire.calls.group import GetConnections
from roquet.wire.calls.offset import (
    MaxOffset,
    MinOffset,
    OffsetByTime,
    QueryOffset,
    UpdateOffset,
)
from roquet.wire.calls.reset import ResetOffset
from roquet.wire.codes import ResponseCode

NEVER: Final = -1
"""The time that stands for the end of a queue."""


class Edge(Enum):
    """Where a queue begins and ends."""

    FIRST = "first"
    LAST = "last"


Target: TypeAlias = Edge | int
"""An edge, or a time in ms since the epoch: the first message stored then or later."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """Where a group stands in a queue, and where it is to go on."""

    queue: MessageQueue
    now: int | None
    """None when the group has no progress there."""
    then: int
    begin: int
    end: int

    @property
    def again(self) -> int:
        """Messages that come once more."""
        return max((self.now or 0) - self.then, 0) if self.now is not None else 0

    @property
    def skipped(self) -> int:
        """Messages that will never be handled."""
        return max(self.then - max(self.now if self.now is not None else self.begin, self.begin), 0)


async def plan(
    reach: Reach,
    group: str,
    topic: str,
    target: Target,
    only: Sequence[tuple[str, int]] = (),
) -> list[Move]:
    """What a reset would do in each queue, or in those named by broker and id; changes nothing."""
    names.check_group(group)
    route = await reach.known_route(topic)
    queues = route.read_queues(topic)
    for broker, queue_id in only:
        if MessageQueue(topic, broker, queue_id) not in queues:
            raise UsageError(f"topic {topic!r} has no queue {queue_id} on {broker!r}")
    places = leaders(route.broker_datas)
    wanted = [q for q in queues if not only or (q.broker_name, q.queue_id) in only]
    return list(
        await asyncio.gather(
            *(_move(reach, places[q.broker_name], group, q, target) for q in wanted)
        )
    )


async def is_online(reach: Reach, group: str) -> bool:
    """Whether the group has members now."""
    answers, failed = await reach.ask_each(
        await reach.brokers(), GetConnections(consumer_group=group)
    )
    for error in failed.values():
        if not isinstance(error, CallRefused):
            raise error
    return bool(answers)


async def reset(reach: Reach, group: str, moves: Sequence[Move]) -> None:
    """Have a group go on where the moves say.

    A broker tells members that are online; without any, its table of progress is changed, and
    a group that nobody knows yet is made.
    RoquetError says how many queues were reset when not all were.
    """
    online = await is_online(reach, group)
    brokers = await reach.brokers()
    for done, move in enumerate(moves):
        try:
            await _apply(reach, brokers, group, move, online=online)
        except (RoquetError, KeyError) as error:
            raise RoquetError(
                f"{done} of {len(moves)} queues were reset, {move.queue} was not: {error}"
            ) from error


async def _apply(
    reach: Reach, brokers: Mapping[str, str], group: str, move: Move, *, online: bool
) -> None:
    queue = move.queue
    address = brokers[queue.broker_name]
    if online:
        told = ResetOffset(
            topic=queue.topic,
            group=group,
            queue_id=queue.queue_id,
            offset=move.then,
            timestamp=NEVER,
            is_force=True,
        )
        await reach.ask(address, told)
        return
    call = UpdateOffset(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_offset=move.then,
    )
    try:
        await reach.ask(address, call)
    except CallRefused as error:
        if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            raise
        await groups.create(reach, group, {})
        await reach.ask(address, call)


async def _move(
    reach: Reach, address: str, group: str, queue: MessageQueue, target: Target
) -> Move:
    topic, queue_id = queue.topic, queue.queue_id
    low, high, now = await asyncio.gather(
        reach.ask(address, MinOffset(topic=topic, queue_id=queue_id)),
        reach.ask(address, MaxOffset(topic=topic, queue_id=queue_id)),
        _committed(reach, address, group, queue),
    )
    begin, end = low.offset, high.offset
    if isinstance(target, Edge):
        then = begin if target is Edge.FIRST else end
    else:
        call = OffsetByTime(topic=topic, queue_id=queue_id, timestamp=target)
        then = min(max((await reach.ask(address, call)).offset, begin), end)
    return Move(queue=queue, now=now, then=then, begin=begin, end=end)


async def _committed(reach: Reach, address: str, group: str, queue: MessageQueue) -> int | None:
    call = QueryOffset(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        set_zero_if_not_found=False,
    )
    try:
        return (await reach.ask(address, call)).offset
    except CallRefused as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        raise
