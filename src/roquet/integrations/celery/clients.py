"""Clients: the producer, consumers and admin calls of one connection, on the shared loop thread."""

import asyncio
import atexit
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar
from weakref import WeakSet, WeakValueDictionary

from roquet.admin import groups, messages, topics
from roquet.admin.client import AdminClient
from roquet.admin.offset_reset import is_online
from roquet.client.blocking import Producer
from roquet.client.config import ClientConfig, ConsumeFrom, ConsumerConfig, ProducerConfig
from roquet.client.connection.loop_thread import LoopThread
from roquet.client.pop import PopConsumer
from roquet.client.popping.pop_batch import PoppedMessage
from roquet.client.popping.prefetch_buffer import PrefetchBuffer
from roquet.client.pull import PullConsumer
from roquet.integrations.celery.topics import DEFAULT_EXCHANGE, exchange_topic, queue_topic
from roquet.model.errors import NotFound, UsageError
from roquet.model.namespaces import wrap
from roquet.model.subscription import ALL, HeartbeatData

T = TypeVar("T")
MessagesListener = Callable[[Iterable[PoppedMessage]], None]

GROUP: Final = "kombu"
"""Group of producers and of temporary queues' readers, which commit nothing."""

_OPEN: Final["WeakSet[ClusterClients]"] = WeakSet()
_TEMPORARY: Final[dict[tuple[tuple[int, str], str], PullConsumer]] = {}
"""Readers of temporary queues by process and cluster, and queue."""


_FOLLOWING: Final["WeakValueDictionary[tuple[int, str], asyncio.Lock]"] = WeakValueDictionary()
"""By process and cluster: one temporary queue at a time is declared or bound."""


class DemandBuffer(PrefetchBuffer):
    """Asks for as many messages as there is room for, and hands them on at once."""

    def __init__(
        self, config: ConsumerConfig, room: Callable[[], int], listener: MessagesListener
    ) -> None:
        super().__init__(config.clock, config.pop_count)
        self._room = room
        self._listener = listener

    def put(self, messages: Iterable[PoppedMessage]) -> None:
        """Hand messages on."""
        self._listener(messages)

    async def wait_for_demand(self) -> int:
        """Wait until there is room; `resume` says that there may be some."""
        while True:
            await self._has_demand.wait()
            if (room := self._room()) > 0:
                return min(room, self._count_max)
            self._has_demand.clear()


class TaskQueueReader(PopConsumer):
    """A member of a task queue's group that never takes more than a channel has room for."""

    def read_into(self, room: Callable[[], int], listener: MessagesListener) -> None:
        """Hand messages to a listener; before the start."""
        self._buffer = self._inbox = DemandBuffer(self._config, room, listener)


class OutsideReader(PullConsumer):
    """Reads without being a member of its group, to whose members it would be a stranger."""

    def _data(self) -> HeartbeatData:
        return HeartbeatData(client_id=self.client_id)


class ClusterClients:
    """The clients of one connection, in the process that made it."""

    def __init__(self, addresses: Sequence[str], settings: Mapping[str, Any]) -> None:
        self.pid = os.getpid()
        self.thread = LoopThread.shared()
        self.addresses = addresses
        self.settings = settings
        self.producer = Producer(addresses, group=GROUP, config=ProducerConfig(**settings))
        self.producer.start()
        self.cluster = (self.pid, self.full_name(";".join(addresses)))
        self._following = _FOLLOWING.setdefault(self.cluster, asyncio.Lock())
        _OPEN.add(self)
        self._admin: AdminClient | None = None
        self._known: set[str] = set()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run one of the coroutines below, and wait for it."""
        return self.thread.wait(work)

    def close(self) -> None:
        """Close all but the channels' consumers; temporary queues with the last of the process."""
        _OPEN.discard(self)
        if self.pid == os.getpid():
            self.producer.close()
            self.run(self._close())

    async def _close(self) -> None:
        if self._admin is not None:
            await self._admin.__aexit__(None, None, None)
        if self.cluster not in {clients.cluster for clients in _OPEN}:
            for key in [key for key in _TEMPORARY if key[0] == self.cluster]:
                await _TEMPORARY.pop(key).close()

    @property
    def admin(self) -> AdminClient:
        """The client for admin calls."""
        if self._admin is None:
            self._admin = AdminClient(self.addresses, ClientConfig(**self.settings))
        return self._admin

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

    def temporary(self, queue: str) -> PullConsumer | None:
        """The reader of a temporary queue that this process has declared."""
        return _TEMPORARY.get((self.cluster, queue))

    async def follow(self, queue: str, exchange: str = "") -> None:
        """Let a temporary queue read an exchange from now on; declares the queue."""
        for topic in (DEFAULT_EXCHANGE, exchange_topic(exchange)):
            await self.create_topic(topic, 1)
        async with self._following:
            if (reader := self.temporary(queue)) is None:
                config = self.consumer_config(consume_from=ConsumeFrom.LAST)
                reader = OutsideReader(self.addresses, group=GROUP, config=config)
                await reader.start()
                _TEMPORARY[self.cluster, queue] = reader
                await _read_on(reader, DEFAULT_EXCHANGE, queue_topic(queue))
            if exchange:
                await _read_on(reader, exchange_topic(exchange), ALL)

    async def size(self, queue: str) -> int:
        """Messages of a queue that nobody has acknowledged; 0 for a temporary one."""
        if self.temporary(queue) is not None:
            return 0
        name = self.full_name(queue_topic(queue))
        try:
            return (await groups.show(self.admin, name)).lag or 0
        except NotFound:  # nobody has read it yet
            return (await topics.show(self.admin, name)).messages or 0

    def note(self, body: bytes, **fields: Any) -> None:
        """Send a note about a task."""
        if not self.has_topic(DEFAULT_EXCHANGE):
            self.run(self.create_topic(DEFAULT_EXCHANGE, 1))
        self.producer.send(DEFAULT_EXCHANGE, body, **fields)

    async def notes(self, key: str, tag: str) -> list[str]:
        """Texts of the notes about a task."""
        topic = self.full_name(DEFAULT_EXCHANGE)
        try:
            found = await messages.by_key(self.admin, topic, key)
        except NotFound:  # the first note makes the topic
            return []
        return [message.body.decode("ascii", "replace") for message in found if message.tag == tag]

    async def delete(self, queue: str, *, if_unused: bool = False) -> None:
        """Delete a queue, with its messages and its group's progress."""
        name = self.full_name(queue_topic(queue))
        if (reader := _TEMPORARY.pop((self.cluster, queue), None)) is not None:
            await reader.close()
        elif await self.look_up(queue_topic(queue)):
            if if_unused and await is_online(self.admin, name):
                return
            self._known.discard(queue_topic(queue))
            await topics.delete(self.admin, name)
            await groups.delete(self.admin, name)


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
    for clients in list(_OPEN):
        clients.close()
