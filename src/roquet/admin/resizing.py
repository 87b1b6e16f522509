"""Resizing: changes a topic's number of queues while it is used, and leaves no message behind.

    more     queues can be read ─▶ queues can be written
    fewer    no new messages ─▶ producers know the new route ─▶ every group is through ─▶ gone

Producers refresh routes every 30 s: until then some write into queues that are to go, which brokers
accept as long as these can be read.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

import msgspec

from roquet.admin import topics
from roquet.admin.client import AdminClient, without_answers
from roquet.admin.topics import TopicInfo, TopicSettings
from roquet.model.errors import ConnectFailed, UsageError
from roquet.model.subscription import MessageModel
from roquet.net.clock import SYSTEM_CLOCK, Clock
from roquet.wire.calls.admin.group import GetConnections, GetConsumeStats
from roquet.wire.calls.bodies import ConsumerConnection, ConsumeStats
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

SETTLE_MS: Final = 35_000
"""How long after the last change a producer may still use its old route: clients of all languages
refresh routes every 30 s, and requests in flight need a moment."""

POLL_MS: Final = 1_000
"""Interval of asking for the groups' progress."""

QUEUES_MAX: Final = 16_384
"""Queues of one topic on one broker: the limit of Roquet's broker."""


class ResizeStep(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a resize."""

    doing: str
    waiting: Mapping[str, int] = {}
    """Group to number of messages that it has not handled yet in queues that are to go."""
    left_ms: int = 0
    """Remaining time for producers to refresh their routes."""


async def resize(
    admin: AdminClient,
    name: str,
    count: int,
    *,
    settle_ms: int = SETTLE_MS,
    clock: Clock = SYSTEM_CLOCK,
) -> AsyncIterator[ResizeStep]:
    """Give a topic `count` queues on each of its brokers; yields its progress.

    It can be stopped at any time and started again: nothing is lost in any state between. Queues
    are removed once every group that has ever read the topic has handled their messages.
    Broadcasting groups are not waited for: their members keep progress that no broker knows.
    """
    check_queue_count(count)
    queues = "1 queue" if count == 1 else f"{count} queues"
    topic = await whole_topic(admin, name)
    if fewer := [place.broker for place in topic.places if place.read_queues < count]:
        yield ResizeStep(doing=f"consumers get {queues}")
        await topics.update(admin, name, TopicSettings(read_queues=count), fewer)
    yield ResizeStep(doing=f"producers get {queues}")
    await topics.update(admin, name, TopicSettings(write_queues=count))
    if all(place.read_queues <= count for place in topic.places):
        return
    until_ms = clock.monotonic_ms() + settle_ms
    while (left_ms := until_ms - clock.monotonic_ms()) > 0:
        yield ResizeStep(doing="waiting for producers to refresh their routes", left_ms=left_ms)
        await clock.sleep(min(POLL_MS, left_ms))
    while waiting := await backlog(admin, name, count):
        yield ResizeStep(doing="waiting for groups to read what is left", waiting=waiting)
        await clock.sleep(POLL_MS)
    yield ResizeStep(doing=f"removing queues from {count} on")
    await topics.update(admin, name, TopicSettings(read_queues=count))


async def whole_topic(admin: AdminClient, name: str) -> TopicInfo:
    """Everything about a topic, by all its brokers.

    Raises ConnectFailed when one does not tell its part: a group that is not known there would not
    be waited for, and would lose what it has not read.
    """
    topic = await topics.show(admin, name)
    if topic.problems:
        raise ConnectFailed(f"topic {name!r} is not resized now: {'; '.join(topic.problems)}")
    return topic


def check_queue_count(count: int) -> None:
    """Raise UsageError unless `count` is a possible number of queues."""
    if not 0 < count <= QUEUES_MAX:
        raise UsageError(f"{count} queues: from 1 to {QUEUES_MAX} are possible")


async def backlog(admin: AdminClient, name: str, first: int) -> dict[str, int]:
    """Unhandled messages in queues with ids from `first` on, by group; groups without any left out.

    Broadcasting groups are left out, too.
    """
    groups = (await whole_topic(admin, name)).groups or ()
    own = await broadcasting_groups(admin, groups)
    groups = [group for group in groups if group not in own]
    left = await asyncio.gather(*(_lag(admin, name, group, first) for group in groups))
    return {group: n for group, n in zip(groups, left, strict=True) if n}


async def broadcasting_groups(admin: AdminClient, groups: Sequence[str]) -> list[str]:
    """The groups whose members are online and broadcast.

    Their members keep progress themselves: the offsets that brokers have of them do not move.
    """
    brokers = await admin.brokers()
    answers = await asyncio.gather(*(_models(admin, brokers, group) for group in groups))
    own = {MessageModel.BROADCASTING}
    return [group for group, models in zip(groups, answers, strict=True) if models == own]


async def _models(
    admin: AdminClient, brokers: Mapping[str, str], group: str
) -> set[MessageModel | None]:
    """Message models of a group's members, as all brokers see them; empty without members."""
    answers, silent = await admin.ask_each(brokers, GetConnections(consumer_group=group))
    for broker, error in without_answers(silent, ResponseCode.CONSUMER_NOT_ONLINE).items():
        raise ConnectFailed(f"{broker} does not say who is in {group}: {error}")
    connections = (codec.loads(reply.body, ConsumerConnection) for reply in answers.values())
    return {connection.message_model for connection in connections}


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
