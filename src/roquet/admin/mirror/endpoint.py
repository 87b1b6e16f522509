"""Endpoint: one cluster as a mirror reads it and sends to it, with records as they are stored."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from roquet.client.config import ConsumerConfig
from roquet.client.pull import PullConsumer
from roquet.client.reading.pull_request import SubscriptionFilter
from roquet.client.rebalance.queue_locks import QueueLocks
from roquet.model.errors import CallError, ConnectFailed
from roquet.model.queue import MessageQueue
from roquet.model.subscription import ALL
from roquet.wire.calls.send import Send, SendReply
from roquet.wire.codes import ResponseCode
from roquet.wire.records import record
from roquet.wire.records.record import Record

PULL_COUNT: Final = 1_000
"""Messages of one pull; Apache's brokers return 32 at most."""

PULL_BYTES: Final = 512 * 1024
"""Bytes of one pull from brokers of ours."""

SETTINGS: Final = ConsumerConfig(pull_bytes=PULL_BYTES)


class PulledRecords(msgspec.Struct, frozen=True):
    """The answer to a pull: records with their bodies as they are stored."""

    records: Sequence[Record]
    next_offset: int
    min_offset: int
    max_offset: int
    is_moved: bool
    """Whether the queue has no message at the offset that was asked for, and it is not its end."""


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

    async def lock(self, queue: MessageQueue) -> bool:
        """Lock a queue against other mirrors of the group; whether it is locked for this one."""
        if queue in self._locks.held:
            return True
        await self._ensure_route(queue)
        return queue in await self._locks.lock([queue])

    async def records(
        self, queue: MessageQueue, offset: int, count: int = PULL_COUNT, wait_ms: int = 0
    ) -> PulledRecords:
        """Records from an offset on; waits up to `wait_ms` for the first new one."""
        await self._ensure_route(queue)
        every = SubscriptionFilter.by_tags(queue.topic, ALL, 0)
        pulled = await self._puller.pull(queue, offset, every, count=count, suspend_ms=wait_ms)
        reply = pulled.reply
        return PulledRecords(
            list(record.decode_many(reply.body)),
            reply.next_begin_offset,
            reply.min_offset,
            reply.max_offset,
            reply.code == ResponseCode.PULL_OFFSET_MOVED,
        )

    async def records_between(
        self, queue: MessageQueue, begin: int, end: int
    ) -> AsyncIterator[Record]:
        """The records of a queue in the half-open offset range [begin, end)."""
        while begin < end:
            pulled = await self.records(queue, begin)
            for one in pulled.records:
                if begin <= one.queue_offset < end:
                    yield one
            if pulled.next_offset <= begin:
                raise ConnectFailed(f"{queue} cannot be read at offset {begin}")
            begin = pulled.next_offset

    async def own_committed(self, queue: MessageQueue) -> int | None:
        """The group's committed offset; None where none was committed."""
        await self._ensure_route(queue)
        return await self._offsets.committed(queue, zero_if_young=False)

    async def send(self, queue: MessageQueue, call: Send) -> SendReply:
        """Send one request to a queue's leader, once; asks for a new route after a failure."""
        await self._ensure_route(queue)
        try:
            return await self._session.call(queue.broker_name, call)
        except CallError:
            self._session.routes.invalidate()
            raise
