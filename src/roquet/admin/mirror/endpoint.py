"""Endpoint: one cluster as a mirror reads it and sends to it, with records as they are stored."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from roquet.client.config import ConsumerConfig
from roquet.client.pull import PullConsumer
from roquet.client.reading.pull_request import SubscriptionFilter
from roquet.client.rebalance.queue_locks import QueueLocks
from roquet.model.errors import CallError, ConnectFailed
from roquet.model.queue import MessageQueue
from roquet.model.subscription import ALL
from roquet.net.channel import Channel
from roquet.wire.calls.pull import PullReply
from roquet.wire.calls.send import Send, SendReply
from roquet.wire.records import record
from roquet.wire.records.record import Record

PULL_COUNT: Final = 1_000
"""Messages of one pull; Apache's brokers return 32 at most."""

LOCKED: Final = (
    "another mirror copies this queue, or one that ended less than a minute ago: stop it, or wait"
)

SETTINGS: Final = ConsumerConfig(pull_bytes=512 * 1024)


class MirrorEndpoint(PullConsumer):
    """A member of a mirror's group at one cluster: reads, sends, commits and locks its queues."""

    def __init__(self, namesrv: str | Sequence[str] | None, *, group: str) -> None:
        super().__init__(namesrv, group=group, config=SETTINGS)
        self._locks = QueueLocks(self._session, self.group, lambda _: None)

    async def start(self) -> None:
        """Open connections; `async with` does this."""
        await super().start()
        self._locks.start()

    async def close(self) -> None:
        """Unlock the queues, leave the group and close the connections."""
        if self._session.is_open:
            await self._locks.unlock(self._locks.held)
        await super().close()

    async def lock(self, queue: MessageQueue) -> None:
        """Lock a queue against other mirrors of the group. Raises CallError if it is not free."""
        if queue not in self._locks.held:
            await self._ensure_route(queue)
            if queue not in await self._locks.lock([queue]):
                raise CallError(LOCKED, definite=True)

    async def records(
        self, queue: MessageQueue, offset: int, count: int = PULL_COUNT, wait_ms: int = 0
    ) -> tuple[list[Record], PullReply]:
        """Records from an offset on, with bodies as they are stored, and the whole reply.

        Waits up to `wait_ms` for the first new one.
        """
        await self._ensure_route(queue)
        every = SubscriptionFilter.by_tags(queue.topic, ALL, 0)
        pulled = await self._puller.pull(queue, offset, every, count=count, suspend_ms=wait_ms)
        return list(record.decode_many(pulled.reply.body)), pulled.reply

    async def records_between(
        self, queue: MessageQueue, begin: int, end: int, count: int = PULL_COUNT
    ) -> AsyncIterator[Record]:
        """The records of a queue in the half-open offset range [begin, end), `count` a pull."""
        while begin < end:
            records, reply = await self.records(queue, begin, count)
            for one in records:
                if begin <= one.queue_offset < end:
                    yield one
            if reply.next_begin_offset <= begin:
                raise ConnectFailed(f"{queue} cannot be read at offset {begin}")
            begin = reply.next_begin_offset

    async def channel(self, queue: MessageQueue) -> Channel:
        """The connection to a queue's leader; another one after a failure, or for a new leader."""
        await self._ensure_route(queue)
        return await self._session.pool.get(self._session.routes.leader(queue.broker_name))

    async def send(self, queue: MessageQueue, call: Send, channel: Channel | None) -> SendReply:
        """Send one request to a queue's leader, once; asks for a new route after a failure.

        Raises ConnectFailed if its connection is not `channel`: a new leader may lack messages.
        """
        try:
            if await self.channel(queue) is not channel:
                raise ConnectFailed(
                    f"{queue.broker_name} was connected anew: its copies come first"
                )
            return await self._session.call(queue.broker_name, call)
        except CallError:
            self._session.routes.invalidate()
            raise
