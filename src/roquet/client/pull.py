"""PullConsumer: you choose the queues and manage the offsets."""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from roquet.client.arguments import (
    INT32_MAX,
    INT64_MAX,
    TIMEOUT_MS_MAX,
    check_number,
    check_queue,
    check_queues,
    check_time,
    check_timeout,
)
from roquet.client.config import ConsumerConfig, config_or_default
from roquet.client.connection.routes import SEARCH_PAUSE_MS
from roquet.client.consumer import FETCH_TIMEOUT_MS, RebalancedConsumer
from roquet.client.metrics import RECEIVED
from roquet.client.reading.message import ReceivedMessage, settle
from roquet.client.reading.pull_request import SubscriptionFilter, check_filters
from roquet.client.spans.message_attributes import MessageRequest
from roquet.model.errors import CallError, RecordError, UsageError
from roquet.model.message import StoredMessage, V_co
from roquet.model.names import check_topic
from roquet.model.queue import MessageQueue
from roquet.model.results import PullResult, PullStatus
from roquet.model.subscription import ALL, ConsumeType
from roquet.rules.consumption.topic_patterns import TopicPattern
from roquet.wire.calls.pull import PullReply
from roquet.wire.codes import ResponseCode
from roquet.wire.records import record

STATUSES: Final = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCH,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}

PULL_COUNT: Final = 32
"""Default number of messages of one pull; Apache RocketMQ's brokers return no more."""

UNFOLDED_MAX: Final = 32 * 1024 * 1024
"""Bytes by which the bodies of one pull may grow when they are decompressed; the message that
passes the limit is the last one of the pull."""

AS_STORED: Final = "as it is stored: {}"
"""Note of a body that cannot be restored."""

POLL_COUNT: Final = 10
"""Default number of messages of one poll, that of Java's lite pull consumer."""

NEW_TOPIC_MS: Final = 1_000
"""Time for which name servers may not know a topic that its first message has just created."""


class PullConsumer(RebalancedConsumer[V_co]):
    """Reads the queues that you name, or its share of topics, from offsets that you choose.

        async with PullConsumer("127.0.0.1:9876", group="audit") as consumer:
            queue, *others = await consumer.queues("orders")
            result = await consumer.pull(queue, 0)

    `assign` reads the queues that you name, `subscribe` this member's share of a topic. Both work
    with the four reading methods of all consumers, and with `poll`. Offsets are committed by
    `commit`, or every 5 s if `auto_commit` is set. `decode` makes the `value` of messages that are
    not pulled by `pull`; that of a body which it cannot read raises BodyError.
    """

    _consume_type = ConsumeType.CONSUME_ACTIVELY
    _saves_progress = False
    _has_dead_letters = False
    _is_sharing = False
    _keeps_unreadable = False
    """Whether a body that cannot be restored is given as it is stored, with a note."""

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        config: ConsumerConfig | None = None,
        decode: Callable[[bytes], V_co] | None = None,
    ) -> None:
        config = config_or_default(ConsumerConfig, config)
        self._saves_progress = config.auto_commit
        super().__init__(namesrv, group, config, decode)
        self._polled: Sequence[ReceivedMessage[V_co]] = ()
        self._is_assigned = False

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues of a topic; empty when no name server knows it."""
        self._session.check()
        clock = self._config.clock
        deadline_ms = clock.monotonic_ms() + NEW_TOPIC_MS
        topic = self._full_name(topic)
        while not (queues := await self._session.routes.find_readable(check_topic(topic))):
            if clock.monotonic_ms() >= deadline_ms:
                break
            await clock.sleep(SEARCH_PAUSE_MS)
        return queues

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        count: int = PULL_COUNT,
        *,
        tags: str = ALL,
        sql: str | None = None,
        wait_ms: int = 0,
    ) -> PullResult:
        """Return messages from an offset on, and wait up to `wait_ms` for the first new one.

        Raises CallRefused when the topic was deleted and created again since this consumer asked
        for an offset of the queue: ask for its new first offset. Raises RecordError, with the
        offset, for a body that cannot be decompressed.
        """
        check_number(offset, "offset", -INT64_MAX)
        check_number(count, "count", 1, INT32_MAX)
        check_number(wait_ms, "wait_ms", 0, TIMEOUT_MS_MAX)
        await self._ensure_route(queue)
        message_filter = SubscriptionFilter.from_user(queue.topic, tags, sql, self._config)
        topic_id = self._offsets.latest_topic_id(queue)
        clock, spans = self._config.clock, self._session.spans
        request = MessageRequest(queue.topic, queue.broker_name, is_users=True)
        began_ms = clock.monotonic_ms()
        try:
            pulled = await self._puller.pull(
                queue, offset, message_filter, count=count, suspend_ms=wait_ms, topic_id=topic_id
            )
        except CallError as error:
            if spans is not None:
                spans.receive_failed(request, error, clock.monotonic_ms() - began_ms)
            raise
        reply = pulled.reply
        messages, next_offset = self._unfolded(reply, queue)
        if (metrics := self._config.metrics) is not None:
            metrics.add(RECEIVED, len(messages), queue.topic, self.group)
        if spans is not None:
            spans.received(request, messages, clock.monotonic_ms() - began_ms)
        wanted = message_filter.tags
        return PullResult(
            status=STATUSES[ResponseCode(reply.code)],
            next_offset=next_offset,
            min_offset=reply.min_offset,
            max_offset=reply.max_offset,
            messages=[message for message in messages if wanted is None or message.tag in wanted],
        )

    def _unfolded(self, reply: PullReply, queue: MessageQueue) -> tuple[list[StoredMessage], int]:
        """The messages of a reply, and the offset to go on from.

        Those behind the limit of `UNFOLDED_MAX` are left for the next pull: a reply of two
        megabytes may decompress to two gigabytes.
        """
        messages: list[StoredMessage] = []
        size = 0
        for each in record.decode_many(reply.body):
            if size > UNFOLDED_MAX:
                return messages, each.queue_offset
            messages.append(self._message(each, queue))
            size += len(messages[-1].body) - len(each.body)
        return messages, reply.next_begin_offset

    def _message(self, stored: record.Record, queue: MessageQueue) -> StoredMessage:
        try:
            return record.to_message(stored, broker=queue.broker_name)
        except RecordError as error:
            if not self._keeps_unreadable:
                raise type(error)(f"{queue} offset {stored.queue_offset}: {error}") from error
            message = record.to_message(stored, broker=queue.broker_name, decompress=False)
            return replace(message, body_note=AS_STORED.format(error))

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the queue's oldest message."""
        await self._ensure_route(queue)
        return await self._offsets.min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the queue's next message will get."""
        await self._ensure_route(queue)
        return await self._offsets.max_offset(queue)

    async def offset_by_time(self, queue: MessageQueue, stored: int | datetime) -> int:
        """The offset of the first message stored at or after a time.

        The time is a datetime with a time zone, or ms since 1970.
        """
        stored_ms = check_time(stored, "stored")
        await self._ensure_route(queue)
        return await self._offsets.by_time(queue, stored_ms)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's committed offset; None when there is none."""
        await self._ensure_route(queue)
        return await self._offsets.committed(queue)

    async def commit(self, queue: MessageQueue | None = None, offset: int | None = None) -> None:
        """Commit an offset of a queue for the group.

        Without an offset: the lowest offset that was handed out and is not acknowledged; the last
        poll's messages count as acknowledged now. Without a queue: all assigned queues.
        """
        self._session.check()
        if (spans := self._session.spans) is None:
            await self._commit(queue, offset)
            return
        topic, broker = ("", "") if queue is None else (queue.topic, queue.broker_name)
        with spans.commit(topic, broker):
            await self._commit(queue, offset)

    async def _commit(self, queue: MessageQueue | None, offset: int | None) -> None:
        if offset is None:
            self._settle_polled()
        else:
            check_number(offset, "offset")
        if queue is None:
            for assigned in self.assignment():
                await self._ensure_route(assigned)
                if (
                    reader := self._assigned_queues.readers.get(assigned)
                ) is not None:  # the queue may have moved meanwhile
                    await self._offsets.commit(assigned, reader.window.committable)
            return
        await self._ensure_route(queue)
        if offset is None:
            offset = self._assigned_queues.reader(queue).window.committable
        await self._offsets.commit(queue, offset)

    async def poll(
        self, count: int = POLL_COUNT, timeout_ms: int = FETCH_TIMEOUT_MS
    ) -> Sequence[ReceivedMessage[V_co]]:
        """Return up to `count` waiting messages, and wait only while there is none.

        They count as acknowledged at the next poll or `commit`, not at the close, unless they were
        settled by their own methods.
        """
        self._session.check()
        check_number(count, "count", 1)
        check_timeout(timeout_ms)
        self._settle_polled()
        messages: list[ReceivedMessage[V_co]] = []
        if (message := self._reads.pop() or await self.next(timeout_ms)) is not None:
            messages.append(message)
            while len(messages) < count and (message := self._reads.pop()) is not None:
                messages.append(message)
        self._polled = messages
        return messages

    async def assign(
        self, queues: Sequence[MessageQueue], *, tags: str = ALL, sql: str | None = None
    ) -> None:
        """Read exactly these queues, from the group's committed offsets on."""
        self._session.check()
        if self._rebalancing is not None:
            raise UsageError("this consumer has subscribed: its queues are assigned by the group")
        queues = check_queues(queues)
        filters = {
            queue.topic: SubscriptionFilter.from_user(queue.topic, tags, sql, self._config)
            for queue in queues
        }
        await check_filters(self._session, self.group, filters.values())
        self._is_assigned = True
        readers = self._assigned_queues.readers
        dropped = [held for held in readers if held not in queues]
        await self._assigned_queues.release(dropped, save=self._saves_progress)
        for queue in queues:
            await self._ensure_route(queue)
            if queue not in readers:
                self._filters[queue.topic] = message_filter = filters[queue.topic]
                self._assigned_queues.assign(
                    queue, await self._offsets.start_offset(queue), message_filter
                )
        self._session.membership.trigger()

    async def subscribe(
        self, topic: str | TopicPattern, tags: str = ALL, *, sql: str | None = None
    ) -> None:
        """Read this member's share of a topic: all messages, or those with one of some tags.

        `sql` filters by properties instead, and a compiled pattern subscribes to the topics that it
        matches in full, both as in PushConsumer.
        """
        self._session.check()
        if self._is_assigned:
            raise UsageError("this consumer has assigned queues: it cannot subscribe as well")
        if isinstance(topic, re.Pattern):
            self._subscribe(topic, tags, sql)
            await self._patterns.begin()
        else:
            message_filter = self._filter(topic, tags, sql)
            await check_filters(self._session, self.group, [message_filter])
            self._patterns.release(message_filter.topic)
            self._assigned_queues.change(message_filter)
            await self._rebalancer.subscribe(message_filter)
        if self._rebalancing is None:
            self._rebalancing = await self._rebalancer.start()
            self._is_sharing = True
        self._subscriptions_changed()

    def _has_queues(self) -> bool:
        return self._rebalancer.has_succeeded or not self._is_sharing

    def _settle_polled(self) -> None:
        polled, self._polled = self._polled, ()
        for message in polled:
            settle(message)

    async def _ensure_route(self, queue: MessageQueue) -> None:
        self._session.check()
        check_queue(queue)
        if self._session.routes.readable(queue.topic) is None:
            await self._session.routes.refresh(queue.topic)
