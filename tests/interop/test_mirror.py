"""`roquet mirror` between Apache RocketMQ 5.5.0 and ours, in both directions."""

from collections.abc import Sequence

import pytest
from tests.admin.mirror.mirrored import BACK, NAMES, messages, mirror

from harness import genuine
from roquet.admin import groups, topics
from roquet.admin.client import AdminClient
from roquet.admin.mirror.mirror import Mirror
from roquet.admin.mirror.queue_copier import MirrorNames
from roquet.admin.topics import TopicSettings
from roquet.client.config import ProducerConfig
from roquet.client.producer import Producer
from roquet.client.pull import PullConsumer
from roquet.model.message import Message

pytestmark = pytest.mark.interop


async def fill(namesrv: str, topic: str) -> None:
    """A topic with 200 messages: tags, keys, compressed and plain, and a group half through."""
    async with AdminClient(namesrv) as admin:
        await topics.create(admin, topic, TopicSettings(read_queues=3, write_queues=3))
        await groups.create(admin, f"{topic}-group", {})
    async with Producer(namesrv, config=ProducerConfig(compress_from=200)) as producer:
        for number in range(200):
            body = b"%d" % number * (200 if number % 3 == 0 else 1)
            await producer.send(
                Message(topic, body, tag="T", keys=(f"k{number}",), properties={"n": str(number)})
            )
    async with PullConsumer(namesrv, group=f"{topic}-group") as consumer:
        for queue in await consumer.queues(topic):
            await consumer.commit(queue, (await consumer.max_offset(queue)) // 2)


async def copy(
    source: str, target: str, topic: str, names: MirrorNames, groups: Sequence[str] = ()
) -> Mirror:
    async with mirror(source, target, names, topics=(topic,), groups=groups) as running:
        await running.once()
    assert running.faults == {}
    assert {one.fault for one in running.queues} == {None}
    return running


async def check(source: str, target: str, topic: str) -> None:
    """Copies are in the same queues and order, and the group goes on where it was."""
    before, after = await messages(source, topic), await messages(target, topic)
    assert sorted(q.queue_id for q in before) == sorted(q.queue_id for q in after) == [0, 1, 2]
    copies = {queue.queue_id: own for queue, own in after.items()}
    for queue, own in before.items():
        there = copies[queue.queue_id]
        assert [m.body for m in there] == [m.body for m in own]
        assert [m.message_id for m in there] == [m.message_id for m in own]
        assert [(m.tag, m.keys, m.properties["n"]) for m in there] == [
            (m.tag, m.keys, m.properties["n"]) for m in own
        ]
    async with PullConsumer(target, group=f"{topic}-group") as consumer:
        for queue in await consumer.queues(topic):
            assert await consumer.committed(queue) == len(copies[queue.queue_id]) // 2


async def test_a_topic_goes_from_apache_to_ours_and_a_second_run_finds_nothing(
    ours_shared: str, theirs: genuine.Genuine
) -> None:
    await fill(theirs.namesrv, "MirrorOut")
    running = await copy(theirs.namesrv, ours_shared, "MirrorOut", NAMES, ["MirrorOut-*"])
    assert sum(one.copied for one in running.queues) == 200
    await check(theirs.namesrv, ours_shared, "MirrorOut")
    again = await copy(theirs.namesrv, ours_shared, "MirrorOut", NAMES)
    assert sum(one.copied for one in again.queues) == 0


async def test_a_topic_goes_from_ours_to_apache_and_does_not_come_back(
    ours_shared: str, theirs: genuine.Genuine
) -> None:
    await fill(ours_shared, "MirrorIn")
    await copy(ours_shared, theirs.namesrv, "MirrorIn", BACK, ["MirrorIn-*"])
    await check(ours_shared, theirs.namesrv, "MirrorIn")
    again = await copy(ours_shared, theirs.namesrv, "MirrorIn", BACK)
    assert sum(one.copied for one in again.queues) == 0
    back = await copy(theirs.namesrv, ours_shared, "MirrorIn", NAMES)
    assert sum(one.copied for one in back.queues) == 0
    assert sum(one.skipped for one in back.queues) == 200
