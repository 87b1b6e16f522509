"""Clients: producer, consumers and admin calls of a process, shared by its connections."""

import asyncio
import atexit
import os
from collections.abc import Coroutine, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from roquet.admin import groups, messages, topics
from roquet.admin.client import AdminClient
from roquet.admin.offset_reset import is_online
from roquet.client.config import (
    ClientConfig,
    ConsumeFrom,
    ConsumerConfig,
    ProducerConfig,
    Selector,
)
from roquet.client.connection.loop_thread import LoopThread
from roquet.client.pop import PopConsumer
from roquet.client.popping.pop_batch import PoppedMessage
from roquet.client.popping.prefetch_buffer import PrefetchBuffer
from roquet.client.producer import Producer
from roquet.client.pull import PullConsumer
from roquet.integrations.celery.topics import DEFAULT_EXCHANGE, exchange_topic, queue_topic
from roquet.model.errors import CallRefused, FieldError, NotFound, RoquetError, UsageError
from roquet.model.message import Message
from roquet.model.namespaces import wrap
from roquet.model.subscription import ALL, HeartbeatData
from roquet.wire.receipt_handle import decode_recall_handle

T = TypeVar("T")

GROUP: Final = "kombu"
"""Group of producers and of temporary queues' readers, which commit nothing."""

RECALL: Final = "recall"
"""Tag of a note that has the handle by which `revoke` cancels a task that waits."""

_SHARED: Final[dict[tuple[Hashable, ...], "ClusterClients"]] = {}
"""By process, addresses and settings; changed on the loop's thread alone."""


class TaskInbox(PrefetchBuffer):
    """Asks for as many messages of a queue as a channel has room for, and hands them to it."""

    def __init__(self, queue: str, channel: Any, config: ConsumerConfig) -> None:
        super().__init__(config.clock, config.pop_count)
        self._queue = queue
        self._channel = channel

    def put(self, messages: Iterable[PoppedMessage]) -> None:
        """Hand messages on."""
        self._channel.arrived(self._queue, messages)

    def fail(self, error: Exception) -> None:
        """Hand on the error that ends the reading."""
        self._channel.connection.fail(error)

    async def wait_for_demand(self) -> int:
        """Wait until there is room; `resume` says that there may be some."""
        while True:
            await self._has_demand.wait()
            room: int = self._channel.room()
            if room > 0:
                return min(room, self._count_max)
            self._has_demand.clear()


class OutsideReader(PullConsumer):
    """Reads without being a member of its group, to whose members it would be a stranger."""

    def _data(self) -> HeartbeatData:
        return HeartbeatData(client_id=self.client_id)


class ClusterClients:
    """The clients of a process for one cluster, on the shared loop's thread."""

    def __init__(self, addresses: Sequence[str], settings: Mapping[str, Any]) -> None:
        self.pid = os.getpid()
        self.thread = LoopThread.shared()
        self.addresses = addresses
        self.settings = settings
        self.producer = Producer(addresses, group=GROUP, config=ProducerConfig(**settings))
        self.admin = AdminClient(addresses, ClientConfig(**settings))
        self.temporary: dict[str, PullConsumer] = {}
        """Readers of the temporary queues that this process has declared."""
        self._declaring = asyncio.Lock()
        """One temporary queue at a time is declared or bound."""
        self._known: set[str] = set()
        self.users = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run one of the coroutines below, and wait for it."""
        return self.thread.wait(work)

    def close(self) -> None:
        """Close all but the channels' consumers, once no connection of this process uses them."""
        if self.pid == os.getpid():
            self.run(self._close())

    async def _close(self) -> None:
        self.users -= 1
        if self.users <= 0:
            for key in [key for key, clients in _SHARED.items() if clients is self]:
                del _SHARED[key]
            await self.producer.close()
            await self.admin.__aexit__(None, None, None)
            while self.temporary:
                await self.temporary.popitem()[1].close()

    def full_name(self, name: str) -> str:
        """Name of a topic or group with the namespace."""
        return wrap(self.settings["namespace"], name)

    def consumer_config(self, **settings: Any) -> ConsumerConfig:
        """Settings of a consumer of this cluster."""
        return ConsumerConfig(**self.settings, **settings)

    def has_topic(self, topic: str) -> bool:
        """Whether a topic exists; one that did is not looked up again."""
        return topic in self._known or self.run(self.look_up(topic))

    async def look_up(self, topic: str) -> bool:
        """Ask for a topic, as `has_topic` does, on the loop's thread."""
        if topic not in self._known and await self.admin.route(self.full_name(topic)) is not None:
            self._known.add(topic)
        return topic in self._known

    async def create_topic(self, topic: str, queues: int | None, kind: str | None = None) -> None:
        """Create a topic unless there is one."""
        if await self.look_up(topic):
            return
        settings = topics.TopicSettings(read_queues=queues, write_queues=queues, attributes=kind)
        try:
            await topics.create(self.admin, self.full_name(topic), settings)
        except UsageError:
            if not await self.look_up(topic):  # else another process was faster
                raise

    async def bind(self, queue: str, exchange: str) -> None:
        """Let a task queue's group read an exchange's topic from its end on, unless it does."""
        topic = exchange_topic(exchange)
        await self.create_topic(topic, 1)
        config = self.consumer_config()
        async with OutsideReader(self.addresses, group=queue_topic(queue), config=config) as reader:
            for each in await reader.queues(topic):
                if await reader.committed(each) is None:
                    await reader.commit(each, await reader.max_offset(each))

    async def follow(self, queue: str, exchange: str = "") -> None:
        """Let a temporary queue read an exchange from now on; declares the queue."""
        for topic in (DEFAULT_EXCHANGE, exchange_topic(exchange)):
            await self.create_topic(topic, 1)
        async with self._declaring:
            if (reader := self.temporary.get(queue)) is None:
                config = self.consumer_config(consume_from=ConsumeFrom.LAST)
                reader = OutsideReader(self.addresses, group=GROUP, config=config)
                await reader.start()
                self.temporary[queue] = reader
                await _read_on(reader, DEFAULT_EXCHANGE, queue_topic(queue))
            if exchange:
                await _read_on(reader, exchange_topic(exchange), ALL)

    async def size(self, queue: str) -> int:
        """Messages of a queue that nobody has acknowledged; 0 for a temporary one."""
        if queue in self.temporary:
            return 0
        name = self.full_name(queue_topic(queue))
        try:
            return (await groups.show(self.admin, name)).lag or 0
        except NotFound:  # nobody has read it yet
            return (await topics.show(self.admin, name)).messages or 0

    async def send(self, message: Message, selector: Selector | None, *, notes: bool) -> None:
        """Send a message; with `notes` also a note by which `recall` finds one that waits."""
        receipt = await self.producer.send(message, selector=selector)
        if notes and receipt.recall_handle and message.keys:
            handle = receipt.recall_handle.encode()
            with suppress(RoquetError):  # the task itself is stored
                await self.create_topic(DEFAULT_EXCHANGE, 1)
                await self.producer.send(DEFAULT_EXCHANGE, handle, keys=message.keys, tag=RECALL)

    async def recall(self, task_id: str) -> bool:
        """Cancel a task that waits for its time; whether there was one."""
        topic, is_recalled = self.full_name(DEFAULT_EXCHANGE), False
        try:
            notes = await messages.by_key(self.admin, topic, task_id)
        except NotFound:  # the first note makes the topic
            return False
        for handle in [n.body.decode("ascii", "replace") for n in notes if n.tag == RECALL]:
            with suppress(CallRefused, FieldError):  # it is due, or was recalled
                await self.producer.recall(decode_recall_handle(handle).topic, handle)
                is_recalled = True
        return is_recalled

    async def delete(self, queue: str, *, if_unused: bool = False) -> None:
        """Delete a queue, with its messages and its group's progress."""
        name = self.full_name(queue_topic(queue))
        if (reader := self.temporary.pop(queue, None)) is not None:
            await reader.close()
        elif await self.look_up(queue_topic(queue)):
            if if_unused and await is_online(self.admin, name):
                return
            self._known.discard(queue_topic(queue))
            await topics.delete(self.admin, name)
            await groups.delete(self.admin, name)


class TaskQueueReader(PopConsumer):
    """A member of a task queue's group that never takes more than a channel has room for."""

    def __init__(self, queue: str, channel: Any) -> None:
        clients: ClusterClients = channel.clients
        config = clients.consumer_config(
            consume_from=ConsumeFrom.FIRST, invisible_ms=channel.invisible_ms
        )
        topic = queue_topic(queue)
        super().__init__(clients.addresses, group=topic, topic=topic, config=config)
        self._buffer = self._inbox = TaskInbox(queue, channel, config)


async def shared_clients(addresses: Sequence[str], settings: Mapping[str, Any]) -> ClusterClients:
    """The clients of this process, on the loop's thread; each caller closes them once."""
    key = (os.getpid(), *addresses, *settings.values())
    if (clients := _SHARED.get(key)) is None:
        clients = ClusterClients(addresses, settings)
        await clients.producer.start()
        _SHARED[key] = clients
    clients.users += 1
    return clients


async def _read_on(reader: PullConsumer, topic: str, tags: str) -> None:
    """Read a topic from its end on, besides what is read already."""
    held = reader.assignment()
    if new := set(await reader.queues(topic)).difference(held):
        await reader.assign([*held, *new], tags=tags)
        for each in new:
            await reader.seek_to_end(each)


@atexit.register
def _close_all() -> None:
    """Close what pools of connections leave open at the end of a program."""
    for clients in list(_SHARED.values()):
        clients.users = 0
        clients.close()
