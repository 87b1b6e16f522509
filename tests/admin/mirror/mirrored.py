"""Two clusters in this process, and mirrors between them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from roquet.admin.client import AdminClient
from roquet.admin.mirror.endpoint import MirrorEndpoint
from roquet.admin.mirror.mirror import Mirror, open_mirror
from roquet.admin.mirror.queue_copier import MirrorNames
from roquet.client.config import ProducerConfig
from roquet.client.producer import Producer
from roquet.client.pull import PullConsumer
from roquet.model.message import StoredMessage
from roquet.model.queue import MessageQueue
from roquet.testing.cluster import Cluster, cluster

NAMES = MirrorNames("A", "B")
BACK = MirrorNames("B", "A")


@asynccontextmanager
async def two_clusters(**settings: Any) -> AsyncIterator[tuple[Cluster, Cluster]]:
    """Source and target."""
    async with cluster(**settings) as source, cluster(**settings) as target:
        yield source, target


@asynccontextmanager
async def mirror(
    source: str, target: str, names: MirrorNames = NAMES, **choice: Any
) -> AsyncIterator[Mirror]:
    """A mirror between name servers."""
    async with AdminClient(source) as from_, AdminClient(target) as to:
        ends = (
            MirrorEndpoint(source, group=names.source_group),
            MirrorEndpoint(target, group=names.target_group),
        )
        async with open_mirror((from_, to), ends, names, **choice) as one:
            yield one


async def run_once(source: Cluster, target: Cluster, **choice: Any) -> Mirror:
    """Copy all that is there now."""
    async with mirror(source.namesrv_addr, target.namesrv_addr, **choice) as running:
        await running.once()
    return running


async def messages(namesrv: str, topic: str) -> dict[MessageQueue, list[StoredMessage]]:
    """All messages of a topic by queue, in order."""
    async with PullConsumer(namesrv, group="look") as reader:
        found: dict[MessageQueue, list[StoredMessage]] = {}
        for queue in await reader.queues(topic):
            offset, end = await reader.min_offset(queue), await reader.max_offset(queue)
            own = found.setdefault(queue, [])
            while offset < end:
                result = await reader.pull(queue, offset, 1_000)
                own += result.messages
                offset = result.next_offset
        return found


async def bodies(namesrv: str, topic: str) -> dict[int, list[bytes]]:
    """The bodies of a topic by queue id; of one broker."""
    found = await messages(namesrv, topic)
    return {queue.queue_id: [message.body for message in own] for queue, own in found.items()}


async def until_copied(target: Cluster, count: int) -> None:
    """Wait until a topic has this many messages."""
    found = 0
    async with asyncio.timeout(20):
        while found < count:
            found = sum(map(len, (await bodies(target.namesrv_addr, "orders")).values()))
            await asyncio.sleep(0.1)


async def send(namesrv: str, count: int, topic: str = "orders", start: int = 0) -> None:
    """Messages with consecutive numbers as bodies, to a topic of two queues if it is new."""
    async with Producer(namesrv, config=ProducerConfig(new_topic_queues=2)) as producer:
        for number in range(start, start + count):
            await producer.send(
                topic, b"%d" % number, tag="T", keys=(f"k{number}",), properties={"n": str(number)}
            )
    async with AdminClient(namesrv) as admin, asyncio.timeout(5):
        while topic not in await admin.topics():  # noqa: ASYNC110 - brokers register it soon
            await asyncio.sleep(0.01)
