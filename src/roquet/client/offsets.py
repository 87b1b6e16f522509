"""Where progress is kept: at the broker. And where a queue begins and ends."""

from typing import Final

from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.session import Session
from roquet.model.errors import CallRefused
from roquet.model.names import is_retry
from roquet.model.queue import MessageQueue
from roquet.wire.call import Call, R
from roquet.wire.calls.offset import (
    MaxOffset,
    MinOffset,
    OffsetByTime,
    QueryOffset,
    UpdateOffset,
)
from roquet.wire.codes import ResponseCode

HALF_AN_HOUR_MS: Final = 30 * 60_000
"""How far back TIMESTAMP begins when no time is given, as in Java."""


class Offsets:
    """One group's progress, and the bounds of queues."""

    def __init__(self, session: Session, config: ConsumerConfig, group: str) -> None:
        self._session = session
        self._config = config
        self._group = group
        since_ms = config.consume_timestamp_ms
        self._since_ms = config.clock.now_ms() - HALF_AN_HOUR_MS if since_ms is None else since_ms

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's progress as the broker holds it; None when there is none."""
        call = QueryOffset(consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id)
        try:
            return (await self._ask(queue, call)).offset
        except CallRefused as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Save progress, and return when the broker has it."""
        await self._ask(queue, self._update(queue, offset))

    async def tell(self, queue: MessageQueue, offset: int) -> None:
        """Save progress without waiting for an answer."""
        address = self._session.routes.leader(queue.broker_name)
        await self._session.pool.oneway(address, self._update(queue, offset))

    def flush(self) -> None:
        """What was told is kept now: brokers see to that by themselves."""

    async def first(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that the queue holds."""
        call = MinOffset(topic=queue.topic, queue_id=queue.queue_id)
        return (await self._ask(queue, call)).offset

    async def end(self, queue: MessageQueue) -> int:
        """The offset that the next message of the queue will get."""
        call = MaxOffset(topic=queue.topic, queue_id=queue.queue_id)
        return (await self._ask(queue, call)).offset

    async def by_time(self, queue: MessageQueue, stored_ms: int) -> int:
        """The offset of the first message stored at a time or later."""
        call = OffsetByTime(topic=queue.topic, queue_id=queue.queue_id, timestamp=stored_ms)
        return (await self._ask(queue, call)).offset

    async def begin(self, queue: MessageQueue) -> int:
        """Where to read on: at the progress, else where a new group begins.

        Java's rules. A retry topic holds nothing but this group's own messages, so LAST begins at
        its start; the broker, too, answers 0 for a young queue that it still holds from the start.
        """
        if (committed := await self.committed(queue)) is not None:
            return committed
        match self._config.consume_from:
            case ConsumeFrom.LAST:
                return 0 if is_retry(queue.topic) else await self.end(queue)
            case ConsumeFrom.FIRST:
                return 0
            case ConsumeFrom.TIMESTAMP:
                if is_retry(queue.topic):
                    return await self.end(queue)
                return await self.by_time(queue, self._since_ms)

    def _update(self, queue: MessageQueue, offset: int) -> UpdateOffset:
        return UpdateOffset(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
        )

    async def _ask(self, queue: MessageQueue, call: Call[R]) -> R:
        address = self._session.routes.leader(queue.broker_name)
        return await self._session.pool.call(address, call, self._config.timeout_ms)
