"""Offsets: a group's committed offsets at the brokers, and the first and last offset of queues."""

from typing import Final

from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.connection.session import Session
from roquet.log_records import logger
from roquet.model.errors import CallError, CallRefused
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

log = logger(__name__)

HALF_AN_HOUR_MS: Final = 30 * 60_000
"""How far back TIMESTAMP starts by default, as in Java."""


class GroupOffsets:
    """One group's committed offsets, and the offset range of queues."""

    def __init__(self, session: Session, config: ConsumerConfig, group: str) -> None:
        self._session = session
        self._config = config
        self._group = group
        self.topic_ids: dict[MessageQueue, str] = {}
        """The topic id of each queue that is read, where it is known."""
        self._latest_topic_ids: dict[MessageQueue, str | None] = {}
        """The topic id in the latest reply about each queue."""
        since_ms = config.consume_timestamp_ms
        self._since_ms = config.clock.now_ms() - HALF_AN_HOUR_MS if since_ms is None else since_ms

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's offset as committed at the broker; None when there is none.

        While the master is away, that of a replica, which may be older. The master's failure when
        no replica knows one: the master may, and a start elsewhere would skip messages.
        """
        call = QueryOffset(consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id)
        try:
            return await self._offset(queue, call)
        except CallRefused as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        except CallError as failure:
            return self._noted(queue, await self._ask_follower(queue, call, failure))

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit an offset, and wait for the acknowledgement; at a replica without a master."""
        call = self._update(queue, offset)
        try:
            await self._ask(queue, call)
        except CallRefused:
            raise
        except CallError as failure:
            await self._ask_follower(queue, call, failure)

    async def commit_nowait(self, queue: MessageQueue, offset: int) -> None:
        """Commit an offset without waiting for an acknowledgement."""
        routes, call = self._session.routes, self._update(queue, offset)
        try:
            await self._session.pool.oneway(routes.leader(queue.broker_name), call)
        except CallError:
            if not (followers := routes.followers(queue.broker_name)):
                raise
            await self._session.pool.oneway(followers[0], call)

    def flush(self) -> None:
        """Do nothing: brokers write offsets to disk by themselves."""

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the queue's oldest message."""
        return await self._offset(queue, MinOffset(topic=queue.topic, queue_id=queue.queue_id))

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the queue's next message will get."""
        return await self._offset(queue, MaxOffset(topic=queue.topic, queue_id=queue.queue_id))

    async def by_time(self, queue: MessageQueue, stored_ms: int) -> int:
        """The offset of the first message stored at or after a time."""
        call = OffsetByTime(topic=queue.topic, queue_id=queue.queue_id, timestamp=stored_ms)
        return await self._offset(queue, call)

    async def start_offset(self, queue: MessageQueue) -> int:
        """Find the offset to start at: the committed one, else where a new group starts."""
        self._latest_topic_ids.pop(queue, None)
        offset = await self._find_start(queue)
        self._adopt_topic_id(queue)
        return offset

    async def restart_offset(self, queue: MessageQueue) -> int | None:
        """The first offset of a queue whose topic was deleted and created again, or None."""
        known, first = self.topic_ids.get(queue), await self.min_offset(queue)
        if not is_other_topic(known, self._latest_topic_ids[queue]):
            return None
        self._adopt_topic_id(queue)
        return first

    def latest_topic_id(self, queue: MessageQueue) -> str | None:
        """The topic id in the latest reply about a queue; None while unknown."""
        return self._latest_topic_ids.get(queue)

    def _adopt_topic_id(self, queue: MessageQueue) -> None:
        """Take the topic id of the latest reply as that of the queue's reads from now on."""
        topic_id = self._latest_topic_ids.get(queue)
        if topic_id is None:
            self.topic_ids.pop(queue, None)
        else:
            self.topic_ids[queue] = topic_id

    async def _find_start(self, queue: MessageQueue) -> int:
        """Find the offset to start at, by Java's rules.

        A retry topic has nothing but this group's own messages, so LAST starts at its beginning.
        Brokers do the same for a young queue that still has all its messages: they answer 0.
        """
        if (committed := await self.committed(queue)) is not None:
            return committed
        match self._config.consume_from:
            case ConsumeFrom.LAST:
                return 0 if is_retry(queue.topic) else await self.max_offset(queue)
            case ConsumeFrom.FIRST:
                await self.min_offset(queue)  # to learn the topic id
                return 0
            case ConsumeFrom.TIMESTAMP:
                if is_retry(queue.topic):
                    return await self.max_offset(queue)
                return await self.by_time(queue, self._since_ms)

    def _update(self, queue: MessageQueue, offset: int) -> UpdateOffset:
        return UpdateOffset(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            topic_id=self.topic_ids.get(queue) or self.latest_topic_id(queue),
        )

    async def _offset(self, queue: MessageQueue, call: Call[OffsetReply]) -> int:
        return self._noted(queue, await self._ask(queue, call))

    def _noted(self, queue: MessageQueue, reply: OffsetReply) -> int:
        """The offset of a reply whose topic id is noted."""
        self._latest_topic_ids[queue] = reply.topic_id
        return reply.offset

    async def _ask(self, queue: MessageQueue, call: Call[R]) -> R:
        address = self._session.routes.leader(queue.broker_name)
        return await self._session.pool.call(address, call, self._config.timeout_ms)

    async def _ask_follower(self, queue: MessageQueue, call: Call[R], failure: CallError) -> R:
        """The reply of a follower after the leader's failure, which is raised if none answers."""
        for address in self._session.routes.followers(queue.broker_name):
            try:
                return await self._session.pool.call(address, call, self._config.timeout_ms)
            except CallError as error:
                log.info("%s at %s: %s", queue, address, error)
        raise failure
