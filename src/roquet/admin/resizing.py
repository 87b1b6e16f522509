"""Resizing: a topic gets fewer or more queues while it is used, and no message is left behind.

    more     queues can be read ─▶ queues can be written
    fewer    no new messages ─▶ producers have heard of it ─▶ every group is through ─▶ gone

Producers ask for routes every 30 s: until then some write into queues that are to go, which brokers
take as long as these can be read.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

import msgspec

from roquet.admin import topics
from roquet.admin.client import AdminClient
from roquet.admin.topics import TopicInfo, TopicSettings
from roquet.model.errors import CallRefused, ConnectFailed, UsageError
from roquet.model.subscription import MessageModel
from roquet.net.clock import SYSTEM_CLOCK, Clock
from roquet.wire.calls.admin.group import GetConnections, GetConsumeStats
from roquet.wire.calls.bodies import ConsumerConnection, ConsumeStats
from roquet.wire.fastjson import codec

SETTLE_MS: Final = 35_000
"""How long after the last change a producer may still write by its old route: clients of all
languages ask for routes every 30 s; and what is on the way needs a moment."""

POLL_MS: Final = 1_000
"""How often groups are asked how far they are."""

QUEUES_MAX: Final = 16_384
"""Of one topic on one broker: as many as our own broker gives it."""


class ResizeStep(msgspec.Struct, frozen=True, kw_only=True):
    """How far a resize is."""

    doing: str
    waiting: Mapping[str, int] = {}
    """Group to messages that it has not handled yet in queues that are to go."""
    left_ms: int = 0
    """How long producers are still given."""


async def resize(
    admin: AdminClient,
    name: str,
    count: int,
    *,
    settle_ms: int = SETTLE_MS,
    clock: Clock = SYSTEM_CLOCK,
) -> AsyncIterator[ResizeStep]:
    """Give a topic `count` queues on each of its brokers; yields while it goes on.

    It can be stopped at any time, and begun again: nothing is lost in any state between. Queues go
    once every group that has ever read from the topic has handled what is in them. Members that
    broadcast are not waited for: each keeps its own progress, which no broker knows.
    """
    check_queue_count(count)
    queues = "1 queue" if count == 1 else f"{count} queues"
    found = await topics.show(admin, name)
    if any(place.read_queues < count for place in found.places):
        yield ResizeStep(doing=f"consumers are told of {queues}")
        await topics.update(
            admin, name, TopicSettings(read_queues=count), _brokers_below(found, count)
        )
    yield ResizeStep(doing=f"producers are told of {queues}")
    await topics.update(admin, name, TopicSettings(write_queues=count))
    if all(place.read_queues <= count for place in found.places):
        return
    until_ms = clock.monotonic_ms() + settle_ms
    while (left_ms := until_ms - clock.monotonic_ms()) > 0:
        yield ResizeStep(doing="producers hear of it", left_ms=left_ms)
        await clock.sleep(min(POLL_MS, left_ms))
    while waiting := await backlog(admin, name, count):
        yield ResizeStep(doing="groups read what is left", waiting=waiting)
        await clock.sleep(POLL_MS)
    yield ResizeStep(doing=f"the queues from {count} on go")
    await topics.update(admin, name, TopicSettings(read_queues=count))


def check_queue_count(count: int) -> None:
    """UsageError unless a topic may have so many queues."""
    if not 0 < count <= QUEUES_MAX:
        raise UsageError(f"{count} queues: from 1 to {QUEUES_MAX} are possible")


async def backlog(admin: AdminClient, name: str, first: int) -> dict[str, int]:
    """Messages in queues from an id on that groups have not handled, by group.

    What members broadcast to themselves does not count: see `broadcasting_groups`.
    """
    groups = (await topics.show(admin, name)).groups
    own = await broadcasting_groups(admin, groups)
    groups = [group for group in groups if group not in own]
    left = await asyncio.gather(*(_lag(admin, name, group, first) for group in groups))
    return {group: n for group, n in zip(groups, left, strict=True) if n}


async def broadcasting_groups(admin: AdminClient, groups: Sequence[str]) -> list[str]:
    """Those groups that are online and of which each member gets everything.

    Members keep their progress themselves: what brokers have of such a group does not move.
    """
    brokers = await admin.brokers()
    answers = await asyncio.gather(*(_models(admin, brokers, group) for group in groups))
    own = {MessageModel.BROADCASTING}
    return [group for group, models in zip(groups, answers, strict=True) if models == own]


async def _models(
    admin: AdminClient, brokers: Mapping[str, str], group: str
) -> set[MessageModel | None]:
    """How members of a group divide messages, as all brokers see it; nothing without members."""
    answers, silent = await admin.ask_each(brokers, GetConnections(consumer_group=group))
    for broker, error in silent.items():
        if not isinstance(error, CallRefused):
            raise ConnectFailed(f"{broker} does not say who is in {group}: {error}")
    found = (codec.loads(reply.body, ConsumerConnection) for reply in answers.values())
    return {connection.message_model for connection in found}


def _brokers_below(found: TopicInfo, count: int) -> list[str]:
    return [place.broker for place in found.places if place.read_queues < count]


async def _lag(admin: AdminClient, topic: str, group: str, first: int) -> int:
    brokers = await admin.brokers()
    answers, silent = await admin.ask_each(
        brokers, GetConsumeStats(consumer_group=group, topic=topic)
    )
    for broker, error in silent.items():
        raise ConnectFailed(f"{broker} does not say how far {group} is: {error}")
    return sum(
        progress.lag
        for reply in answers.values()
        for queue, progress in codec.loads(reply.body, ConsumeStats).offset_table.items()
        if queue.topic == topic and queue.queue_id >= first
    )
