"""Topics of a mirror: those that are chosen, made in the target, and the target of each queue."""

import re
from collections.abc import Mapping, Sequence
from fnmatch import translate

from roquet.admin import topics
from roquet.admin.client import AdminClient, known_leader, leader_addresses
from roquet.model import names
from roquet.model.errors import RoquetError
from roquet.model.queue import MessageQueue
from roquet.model.topic import READ_WRITE, TopicConfig
from roquet.rules.mirror import queues_needed, target_queues
from roquet.wire.calls.admin.topic import CreateTopic, GetTopic
from roquet.wire.fastjson import codec

QueueMap = Mapping[MessageQueue, MessageQueue]


def chosen(every: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Names that match one of some patterns, as `orders*`; all names without a pattern.

    Retry and dead-letter topics are part of a group, and no topic to copy.
    """
    wanted = [re.compile(translate(pattern)) for pattern in patterns]
    return [
        name
        for name in every
        if not (names.is_retry(name) or names.is_dlq(name))
        and (not wanted or any(pattern.match(name) for pattern in wanted))
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

    Raises RoquetError when the target does not let us, or does not let the topic be written to.
    """
    mapped = await plan(source, target, topic)
    needed = queues_needed(list(mapped.values()))
    config = await _config(source, topic)
    calls = {}
    for broker, (has_read, has_write) in (await _sizes(target, topic, list(needed))).items():
        count = needed[broker]
        if min(has_read, has_write) >= count:
            continue
        if has_read or has_write:
            settings = topics.TopicSettings(
                read_queues=max(count, has_read), write_queues=max(count, has_write)
            )
            await topics.update(target, topic, settings, [broker])
            continue
        attributes = ",".join(f"+{key}={value}" for key, value in config.attributes.items())
        calls[broker] = CreateTopic(
            topic=topic,
            read_queue_nums=count,
            write_queue_nums=count,
            perm=READ_WRITE,
            topic_filter_type=config.topic_filter_type,
            order=config.order,
            attributes=attributes or None,
        )
    if calls:
        await target.change_each(calls, "created")
        await topics.wait_until_registered(target, calls)
    return mapped


async def _config(source: AdminClient, topic: str) -> TopicConfig:
    """The topic's settings at one of its brokers."""
    addresses = leader_addresses((await source.known_route(topic)).broker_datas)
    answers, failed = await source.ask_each(addresses, GetTopic(topic=topic))
    for reply in answers.values():
        return codec.loads(reply.body, TopicConfig)
    for error in failed.values():
        raise error
    raise RoquetError(f"no broker of topic {topic!r} is there")


async def _sizes(
    target: AdminClient, topic: str, brokers: Sequence[str]
) -> dict[str, tuple[int, int]]:
    """The numbers of queues to read and to write of a topic at brokers; zeros where it is not."""
    leaders = await target.leaders()
    for broker in brokers:
        known_leader(leaders, broker)
    route = await target.route(topic)
    sizes = dict.fromkeys(brokers, (0, 0))
    for data in route.queue_datas if route else ():
        if data.broker_name in sizes:
            sizes[data.broker_name] = data.read_queue_nums, data.write_queue_nums
    return sizes
