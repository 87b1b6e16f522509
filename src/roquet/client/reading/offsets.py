"""Where progress is kept: at the broker. And where a queue begins and ends."""

from typing import Final

from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.connection.session import Session
from roquet.model.errors import CallRefused
from roquet.model.names import is_retry
from roquet.model.queue import MessageQueue
from roquet.rules.topic_id import is_other_topic
from roquet.wire.call import Call, R
from roquet.wire.calls.offset import (
    MaxOffset,
    MinOffset,
    OffsetByTime,
    OffsetReply,
    QueryOffset,
    UpdateOffset,
)
from roquet.wire.codes import ResponseCode

HALF_AN_HOUR_MS: Final = 30 * 60_000
"""How far back TIMESTAMP begins when no time is given, as in Java."""


class GroupOffsets:
    """One group's progress, and the bounds of queues."""

    def __init__(self, session: Session, config: ConsumerConfig, group: str) -> None:
        self._session = session
        self._config = config
        self._group = group
        self.topic_ids: dict[MessageQueue, str] = {}
        """Which topic of its name each queue is read of, where that is known."""
        self._heard: dict[MessageQueue, str | None] = {}
        """What came with the latest offset of each queue."""
        since_ms = config.consume_timestamp_ms
        self._since_ms = config.clock.now_ms() - HALF_AN_HOUR_MS if since_ms is None else since_ms

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's progress as the broker holds it; None when there is none."""
        call = QueryOffset(consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id)
        try:
            return await self._offset(queue, call)
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
        return await self._offset(queue, MinOffset(topic=queue.topic, queue_id=queue.queue_id))

    async def end(self, queue: MessageQueue) -> int:
        """The offset that the next message of the queue will get."""
        return await self._offset(queue, MaxOffset(topic=queue.topic, queue_id=queue.queue_id))

    async def by_time(self, queue: MessageQueue, stored_ms: int) -> int:
        """The offset of the first message stored at a time or later."""
        call = OffsetByTime(topic=queue.topic, queue_id=queue.queue_id, timestamp=stored_ms)
        return await self._offset(queue, call)

    async def begin(self, queue: MessageQueue) -> int:
        """Where to read on: at the progress, else where a new group begins."""
        self._heard.pop(queue, None)
        offset = await self._begin(queue)
        self._know(queue)
        return offset

    async def recreated(self, queue: MessageQueue) -> int | None:
        """Where a queue begins whose topic was deleted and made anew; None when it was not."""
        known, first = self.topic_ids.get(queue), await self.first(queue)
        if not is_other_topic(known, self._heard[queue]):
            return None
        self._know(queue)
        return first

    def heard(self, queue: MessageQueue) -> str | None:
        """Which topic of its name told the latest offset of a queue; None while nobody has said."""
        return self._heard.get(queue)

    def _know(self, queue: MessageQueue) -> None:
        """What is read of a queue from now on is of the topic that was heard of last."""
        topic_id = self._heard.get(queue)
        if topic_id is None:
            self.topic_ids.pop(queue, None)
        else:
            self.topic_ids[queue] = topic_id

    async def _begin(self, queue: MessageQueue) -> int:
        """Where a group reads on.

        Java's rules. A retry topic holds nothing but this group's own messages, so LAST begins at
        its start; the broker, too, answers 0 for a young queue that it still holds from the start.
        """
        if (committed := await self.committed(queue)) is not None:
            return committed
        match self._config.consume_from:
            case ConsumeFrom.LAST:
                return 0 if is_retry(queue.topic) else await self.end(queue)
            case ConsumeFrom.FIRST:
                await self.first(queue)  # for the topic's id
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
            topic_id=self.topic_ids.get(queue) or self.heard(queue),
        )

    async def _offset(self, queue: MessageQueue, call: Call[OffsetReply]) -> int:
        reply = await self._ask(queue, call)
        self._heard[queue] = reply.topic_id
        return reply.offset

    async def _ask(self, queue: MessageQueue, call: Call[R]) -> R:
        address = self._session.routes.leader(queue.broker_name)
        return await self._session.pool.call(address, call, self._config.timeout_ms)
