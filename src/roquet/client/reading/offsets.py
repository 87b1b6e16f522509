"""Offsets: a group's committed offsets at the brokers, and the first and last offset of queues.

A group without committed offsets gets them from its first member: before its `start` returns, it
finds where the group starts in every queue of its topics, not only in its own share, and commits
that. Whatever is sent from then on is read, whoever reads it, and however soon that member ends.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from roquet.client.arguments import INT64_MAX, check_number
from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.connection.background import cancel_and_wait
from roquet.client.connection.session import Session
from roquet.log_records import logger
from roquet.model.errors import CallError, CallRefused, RoquetError
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


OTHERS_START_MS: Final = 1_000
"""Pause for another member that is committing the group's start offsets, which takes it moments."""

T = TypeVar("T")


class GroupOffsets:
    """One group's committed offsets, and the offset range of queues."""

    def __init__(
        self, session: Session, config: ConsumerConfig, group: str, *, commits_starts: bool = False
    ) -> None:
        self._commits_starts = commits_starts
        self._began_ms: dict[str, int] = {}
        """When each topic was subscribed, at the earliest when the member started."""
        self._started: dict[str, frozenset[MessageQueue]] = {}
        """The queues of each topic in which the group has an offset to start at."""
        self._starts: dict[MessageQueue, int] = {}
        """Start offsets that this member has found."""
        self._session = session
        self._config = config
        self._group = group
        self.topic_ids: dict[MessageQueue, str] = {}
        """The topic id of each queue that is read, where it is known."""
        self._latest_topic_ids: dict[MessageQueue, str | None] = {}
        """The topic id in the latest reply about each queue."""
        since_ms = config.consume_timestamp_ms
        self._since_ms = config.clock.now_ms() - HALF_AN_HOUR_MS if since_ms is None else since_ms

    def open(self) -> None:
        """Prepare for reads and commits; brokers, who keep a group's offsets, need nothing."""

    def close(self) -> None:
        """Release what `open` took."""

    async def committed(
        self, queue: MessageQueue, *, zero_if_young: bool | None = None
    ) -> int | None:
        """The group's offset as committed at the broker; None when there is none.

        With `zero_if_young` False also where brokers else say 0 for a young queue. While the master
        is away, that of a replica, which may be older. The master's failure when no replica knows
        one: the master may, and a start elsewhere would skip messages.
        """
        call = QueryOffset(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=zero_if_young,
        )
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
            await self._session.call(queue.broker_name, call)
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
        check_number(stored_ms, "stored_ms", -INT64_MAX)
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

    async def take_start_offsets(
        self, subscribed_ms: Mapping[str, int], *, is_start: bool = False
    ) -> None:
        """Find where a new group starts in all queues of some topics, and commit that.

        At a start, LAST is the queues' present ends. Later, when a topic is subscribed or a broker
        answers at last, it is the first message stored since the subscription; and in queues that
        have appeared, the very first one. What does not answer is left to the next call.
        """
        if self._config.consume_from is ConsumeFrom.FIRST:
            return
        for topic in self._began_ms.keys() - subscribed_ms.keys():
            del self._began_ms[topic]
            self._started.pop(topic, None)
        for topic, at_ms in subscribed_ms.items():
            self._began_ms.setdefault(topic, max(at_ms, self._session.started_ms))
        pending = [t for t in subscribed_ms if not is_retry(t) and self._has_new_queues(t)]
        await asyncio.gather(*(self._start_topic(t, is_start=is_start) for t in pending))
        self.flush()

    def is_new_first(self, topic: str) -> bool:
        """Whether queues without an offset are read from their first message: all are new ones."""
        return self._config.consume_from is ConsumeFrom.FIRST or topic in self._started

    def _has_new_queues(self, topic: str) -> bool:
        started = self._started.get(topic)
        return started is None or not started.issuperset(self._session.routes.readable(topic) or ())

    async def _start_topic(self, topic: str, *, is_start: bool) -> None:
        try:
            queues = await self._session.routes.find_readable(topic)
        except RoquetError as error:
            log.info("group %s starts in topic %s once it is found: %s", self._group, topic, error)
            return
        stored_at = partial(self.committed, zero_if_young=False)
        stored = await self._ask_each(queues, stored_at)
        absent = [queue for queue, offset in stored.items() if offset is None]
        is_known = is_start and len(absent) < len(stored)
        if is_known and absent:
            await self._config.clock.sleep(OTHERS_START_MS)
            stored |= await self._ask_each(absent, stored_at)
            absent = [queue for queue, offset in stored.items() if offset is None]
        if absent and self._commits_starts:
            await self._session.membership.ensure_known(topic)

        async def take(queue: MessageQueue) -> None:
            # A group with offsets in other queues was there before these appeared.
            since_ms = 0 if is_known else None if is_start else self._messages_since_ms(queue)
            await self._take_start(queue, since_ms)

        begun = await self._ask_each(absent, take)
        if len(stored) == len(queues) and len(begun) == len(absent):
            self._started[topic] = frozenset(queues)
        elif is_start:
            log.warning(
                "group %s: not all brokers of topic %s answered; where the group is new there, it"
                " starts with what is stored from now on, by their clocks", self._group, topic,
            )  # fmt: skip

    async def _ask_each(
        self, queues: Sequence[MessageQueue], ask: Callable[[MessageQueue], Coroutine[Any, Any, T]]
    ) -> dict[MessageQueue, T]:
        """The answers about queues; without those that are not answered soon."""
        tasks = {queue: asyncio.create_task(ask(queue)) for queue in queues}
        try:
            if tasks:
                await asyncio.wait(tasks.values(), timeout=self._config.timeout_ms / 2_000)
        finally:
            await cancel_and_wait(*(task for task in tasks.values() if not task.done()))
        answers: dict[MessageQueue, T] = {}
        for queue, task in tasks.items():
            try:
                answers[queue] = task.result()
            except (RoquetError, asyncio.CancelledError) as error:
                reason = error if isinstance(error, RoquetError) else "no answer"
                log.info("group %s starts in %s later: %s", self._group, queue, reason)
        return answers

    async def _take_start(self, queue: MessageQueue, since_ms: int | None) -> None:
        """Find and commit the start offset of a queue.

        The committed offset is asked for last: while there is none, no member's `start` has
        returned, and so nothing that was sent after one lies before the queue's end.
        """
        offset = await self._new_start(queue, since_ms)
        committed = await self.committed(queue)
        self._starts[queue] = offset if committed is None else committed
        if self._commits_starts and not committed:
            await self._commit_start(queue, self._starts[queue])

    async def _commit_start(self, queue: MessageQueue, offset: int) -> None:
        await self.commit(queue, offset)

    async def _find_start(self, queue: MessageQueue) -> int:
        """Find the offset to start at.

        Brokers answer 0 for a group without offsets while a young queue has all its messages.
        """
        if (committed := await self.committed(queue)) is not None:
            return committed
        if (start := self._starts.pop(queue, None)) is not None:  # its commit failed, or waits
            return start
        return await self._new_start(queue, self._messages_since_ms(queue))

    def _messages_since_ms(self, queue: MessageQueue) -> int | None:
        """When the messages of a queue begin to count for LAST; None is now."""
        started = self._started.get(queue.topic)
        is_new = started is not None and queue not in started
        return 0 if is_new else self._began_ms.get(queue.topic)

    async def _new_start(self, queue: MessageQueue, since_ms: int | None) -> int:
        """Where the settings let a group start, by Java's rules.

        LAST is the first message stored since a time; None is the queue's end. A retry topic has
        nothing but this group's own messages, so LAST starts at its beginning.
        """
        match self._config.consume_from:
            case ConsumeFrom.LAST if is_retry(queue.topic):
                return 0
            case ConsumeFrom.LAST if since_ms is not None:
                return await self.by_time(queue, since_ms)
            case ConsumeFrom.FIRST:
                await self.min_offset(queue)  # to learn the topic id
                return 0
            case ConsumeFrom.TIMESTAMP if not is_retry(queue.topic):
                return await self.by_time(queue, self._since_ms)
            case _:
                return await self.max_offset(queue)

    def _update(self, queue: MessageQueue, offset: int) -> UpdateOffset:
        return UpdateOffset(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            topic_id=self.topic_ids.get(queue) or self.latest_topic_id(queue),
        )

    async def _offset(self, queue: MessageQueue, call: Call[OffsetReply]) -> int:
        return self._noted(queue, await self._session.call(queue.broker_name, call))

    def _noted(self, queue: MessageQueue, reply: OffsetReply) -> int:
        """The offset of a reply whose topic id is noted."""
        self._latest_topic_ids[queue] = reply.topic_id
        return reply.offset

    async def _ask_follower(self, queue: MessageQueue, call: Call[R], failure: CallError) -> R:
        """The reply of a follower after the leader's failure, which is raised if none answers."""
        for address in self._session.routes.followers(queue.broker_name):
            try:
                return await self._session.pool.call(address, call, self._config.timeout_ms)
            except CallError as error:
                log.info("%s at %s: %s", queue, address, error)
        raise failure
