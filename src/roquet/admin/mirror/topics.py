"""Topics of a mirror: those that are chosen, made in the target, and the target of each queue."""

import re
from collections.abc import Mapping, Sequence
from fnmatch import translate

from roquet.admin import topics
from roquet.admin.client import AdminClient, known_leader
from roquet.admin.topics import TopicSettings
from roquet.model import names
from roquet.model.errors import RoquetError
from roquet.model.queue import MessageQueue
from roquet.rules.mirror import target_queues

QueueMap = Mapping[MessageQueue, MessageQueue]


def chosen(every: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Names that match one of some patterns, as `orders*`; all names without a pattern.

    Retry and dead-letter topics are part of a group, and no topic to copy.
    """
    wanted = [re.compile(translate(pattern)) for pattern in patterns or ("*",)]
    return [
        name
        for name in every
        if not (names.is_retry(name) or names.is_dlq(name))
        and any(pattern.match(name) for pattern in wanted)
    ]


async def plan(source: AdminClient, target: AdminClient, topic: str) -> QueueMap:
    """The target of each queue of a topic; nothing is made yet.

    Brokers that the target gets later are left out while the topic is on others: queues stay where
    they are copied to.
    """
    sources = (await source.known_route(topic)).read_queues(topic)
    brokers, there = set(await target.brokers()), await target.route(topic)
    known = {data.broker_name for data in there.queue_datas} if there else set[str]()
    preferred = brokers & (known | {queue.broker_name for queue in sources})
    return target_queues(sources, sorted(preferred if known else brokers))


async def prepare(source: AdminClient, target: AdminClient, topic: str) -> QueueMap:
    """Make a topic in the target, with the type and the queues of the source, or let it have more.

    Raises RoquetError when the target does not let us, or a broker of it has no leader.
    """
    mapped = await plan(source, target, topic)
    route, leaders = await target.route(topic), await target.leaders()
    there = {data.broker_name: data for data in route.queue_datas} if route else {}
    needed = {queue.broker_name: queue.queue_id + 1 for queue in sorted(mapped.values())}
    for broker, count in needed.items():
        known_leader(leaders, broker)
        if (known := there.get(broker)) is None:
            await topics.create(target, topic, await _settings(source, topic, count), [broker])
        elif min(known.read_queue_nums, known.write_queue_nums) < count:
            more = TopicSettings(
                read_queues=max(count, known.read_queue_nums),
                write_queues=max(count, known.write_queue_nums),
            )
            await topics.update(target, topic, more, [broker])
    return mapped


async def _settings(source: AdminClient, topic: str, count: int) -> TopicSettings:
    """Settings of a topic with this many queues, and the type that it has in the source."""
    found = await topics.show(source, topic)
    for place in found.places:
        if place.attributes is not None:
            attributes = ",".join(f"+{key}={value}" for key, value in place.attributes.items())
            return TopicSettings(
                read_queues=count,
                write_queues=count,
                order=place.order,
                attributes=attributes or None,
            )
    raise RoquetError(f"the settings of topic {topic!r} are not known: {'; '.join(found.problems)}")
