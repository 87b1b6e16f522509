"""Resizing: a topic gets fewer or more queues while it is used, and no message is left behind.

    more     queues can be read ─▶ queues can be written
    fewer    no new messages ─▶ producers have heard of it ─▶ every group is through ─▶ gone

Producers ask for routes every 30 s: until then some write into queues that are to go, which brokers
take as long as these can be read.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Final

import msgspec

from roquet.admin import topics
from roquet.admin.reach import Reach
from roquet.admin.topics import Settings, Topic
from roquet.model.errors import ConnectFailed, UsageError
from roquet.net.clock import SYSTEM_CLOCK, Clock
from roquet.wire import dialect
from roquet.wire.calls.bodies import ConsumeStats
from roquet.wire.calls.group import GetConsumeStats

SETTLE_MS: Final = 35_000
"""How long after the last change a producer may still write by its old route: clients of all
languages ask for routes every 30 s; and what is on the way needs a moment."""

LOOK_MS: Final = 1_000
"""How often groups are asked how far they are."""

QUEUES_MAX: Final = 65_535
"""More queues of one topic on one broker than anybody needs are a slip of the hand."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """How far a resize is."""

    doing: str
    waiting: Mapping[str, int] = {}
    """Group to messages that it has not handled yet in queues that are to go."""
    left_ms: int = 0
    """How long producers are still given."""


async def resize(
    reach: Reach, name: str, count: int, *, settle_ms: int = SETTLE_MS, clock: Clock = SYSTEM_CLOCK
) -> AsyncIterator[Step]:
    """Give a topic `count` queues on each of its brokers; yields while it goes on.

    It can be stopped at any time, and begun again: nothing is lost in any state between. Queues go
    once every group that has ever read from the topic has handled what is in them.
    """
    check_count(count)
    found = await topics.show(reach, name)
    if any(place.read_queues < count for place in found.places):
        yield Step(doing=f"consumers are told of {count} queues")
        await topics.update(reach, name, Settings(read_queues=count), _short(found, count))
    yield Step(doing=f"producers are told of {count} queues")
    await topics.update(reach, name, Settings(write_queues=count))
    if all(place.read_queues <= count for place in found.places):
        return
    until_ms = clock.monotonic_ms() + settle_ms
    while (left_ms := until_ms - clock.monotonic_ms()) > 0:
        yield Step(doing="producers hear of it", left_ms=left_ms)
        await clock.sleep(min(LOOK_MS, left_ms))
    while waiting := await backlog(reach, name, count):
        yield Step(doing="groups read what is left", waiting=waiting)
        await clock.sleep(LOOK_MS)
    yield Step(doing=f"the queues from {count} on go")
    await topics.update(reach, name, Settings(read_queues=count))


def check_count(count: int) -> None:
    """UsageError unless a topic may have so many queues."""
    if not 0 < count <= QUEUES_MAX:
        raise UsageError(f"{count} queues: from 1 to {QUEUES_MAX} are possible")


async def backlog(reach: Reach, name: str, first: int) -> dict[str, int]:
    """Messages in queues from an id on that groups have not handled, by group."""
    found = await topics.show(reach, name)
    left = await asyncio.gather(*(_behind(reach, name, group, first) for group in found.groups))
    return {group: n for group, n in zip(found.groups, left, strict=True) if n}


def _short(found: Topic, count: int) -> list[str]:
    return [place.broker for place in found.places if place.read_queues < count]


async def _behind(reach: Reach, topic: str, group: str, first: int) -> int:
    brokers = await reach.brokers()
    answers, silent = await reach.ask_each(
        brokers, GetConsumeStats(consumer_group=group, topic=topic)
    )
    for broker, error in silent.items():
        raise ConnectFailed(f"{broker} does not say how far {group} is: {error}")
    return sum(
        progress.lag
        for reply in answers.values()
        for queue, progress in dialect.loads(reply.body, ConsumeStats).offset_table.items()
        if queue.topic == topic and queue.queue_id >= first
    )
