"""Rebalancer: keeps a consumer reading its share of its topics' queues.

It rebalances at the start, after a broker's notice, when a route changes and every 20 s, and sooner
after a failure. While the queues of a topic cannot be determined, its assignment stays.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from roquet.client.config import ConsumerConfig
from roquet.client.connection.background import ErrorLogThrottle, Wakeup
from roquet.client.connection.session import Session
from roquet.client.metrics import REBALANCES
from roquet.client.reading.offsets import GroupOffsets
from roquet.client.reading.ordered_reader import OrderedReader
from roquet.client.reading.pull_request import SubscriptionFilter, subscribed_ms
from roquet.client.rebalance.allocation import QueueAllocator
from roquet.client.rebalance.assigned_queues import AssignedQueues
from roquet.client.rebalance.listeners import RebalanceListeners
from roquet.client.rebalance.queue_locks import QueueLocks
from roquet.log_records import logger
from roquet.model.errors import RoquetError
from roquet.model.names import is_retry
from roquet.model.queue import MessageQueue, short_text
from roquet.model.subscription import MessageModel
from roquet.net.router import Peer
from roquet.rules.balance.rebalance import (
    PULL_SILENCE_MS,
    AssignmentDiff,
    difference,
    next_rebalance_ms,
)
from roquet.wire.calls.heartbeat import ConsumersChanged

log = logger(__name__)

QUIET_FAILURES: Final = 3
"""Failed rebalances of a topic that are not logged: a new topic's route may not be known yet."""

RETRY_TOPIC_LOOKUPS: Final = 8
"""Quick rebalances while a retry topic is missing; brokers create it at a first heartbeat."""


class Rebalancer:
    """Assigns and revokes queues, for ever."""

    def __init__(
        self,
        session: Session,
        config: ConsumerConfig,
        group: str,
        assigned_queues: AssignedQueues,
        offsets: GroupOffsets,
        filters: dict[str, SubscriptionFilter],
        *,
        commits: bool,
    ) -> None:
        self.group = group
        self.listeners = RebalanceListeners()
        self.on_members_changed: Callable[[], object] = lambda: None
        """Called when a broker says that members have come, gone or subscribed."""
        self._session = session
        self._config = config
        self._assigned_queues = assigned_queues
        self._offsets = offsets
        self._filters = filters
        self._commits = commits
        self.allocator = QueueAllocator(session, config, group)
        self.has_succeeded = False
        """Whether all topics were shared out since the start; a retry topic may be missing."""
        self._wakeup = Wakeup()
        self._rebalance_lock = asyncio.Lock()
        self._rebalancing: asyncio.Task[Any] | None = None
        """The task that rebalances now."""
        self._throttles: dict[str, ErrorLogThrottle] = {}
        self._retry_looks = 0
        self._is_begun = False
        self._is_locked_out = False
        self._locks: QueueLocks | None = None
        self._leaving: dict[MessageQueue, tuple[OrderedReader, asyncio.Task[None]]] = {}
        """Revoked ordered queues whose last message is still being handled."""
        if config.ordered and config.message_model is MessageModel.CLUSTERING:
            self._locks = QueueLocks(session, group, self._drop_lost)
        session.router.add(ConsumersChanged, self.members_changed)

    def trigger(self) -> None:
        """Rebalance now."""
        self._wakeup.set()

    async def start(self) -> asyncio.Task[None]:
        """Start rebalancing; ConfigError when the brokers do not support the strategy.

        What is sent after this returns reaches the group, as far as brokers answer.
        """
        await self.allocator.check(list(self._filters))
        await self._take_start_offsets(is_start=True)
        self._session.routes.on_change(lambda _: self._wakeup.set())
        self._is_begun = True
        if self._locks is not None:
            self._locks.start()
        return self._session.background.start(self._run(), f"rebalance of {self.group}")

    async def subscribe(self, message_filter: SubscriptionFilter) -> None:
        """Subscribe to a topic: what is sent after this returns reaches the group."""
        if self._rebalancing is asyncio.current_task():  # a listener does so
            self._filters[message_filter.topic] = message_filter
            return
        async with self._rebalance_lock:  # a rebalance would start where the subscription did
            self._filters[message_filter.topic] = message_filter
            await self._take_start_offsets(is_start=True)

    async def _take_start_offsets(self, *, is_start: bool = False) -> None:
        await self._offsets.take_start_offsets(subscribed_ms(self._filters), is_start=is_start)

    async def release_all(self, queues: Sequence[MessageQueue]) -> None:
        """Release all locks, and tell listeners that the queues held to the end are revoked."""
        await self._unlock_all()
        if not self._is_begun:
            return
        limit_ms = self._config.close_timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                await self.listeners.notify(self.listeners.revoked, queues)
        except TimeoutError:
            log.warning("a listener of revoked queues is still running after %d ms", limit_ms)

    async def _unlock_all(self) -> None:
        if self._locks is None:
            return
        ending = [task for reader, task in self._leaving.values() if reader.is_idle]
        if ending:  # they commit offsets, then unlock
            await asyncio.wait(ending, timeout=self._config.timeout_ms / 1000)
        if held := self._locks.held:
            await self._locks.unlock(held)

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at other offsets in assigned queues; no rebalance runs meanwhile."""
        async with self._rebalance_lock:
            await self._assigned_queues.reset(offsets, self._filters, self._is_ours)

    def _is_ours(self, queue: MessageQueue) -> bool:
        """Whether a queue may be read: ordered queues need their lock."""
        return self._session.is_open and (self._locks is None or queue in self._locks.held)

    def members_changed(self, call: ConsumersChanged, peer: Peer) -> None:
        """Handle a broker's notice that a member came or went."""
        del peer
        if call.consumer_group == self.group:
            self._wakeup.set()
            self.on_members_changed()

    async def _run(self) -> None:
        failures, is_said = 0, False
        while True:
            try:
                failures = 0 if await self.rebalance() else failures + 1
                if (metrics := self._config.metrics) is not None:
                    metrics.add(REBALANCES, 1, self.group, "failed" if failures else "ok")
                is_said = is_said and failures > 0
            except Exception:
                failures += 1
                if not is_said:
                    log.exception("rebalance of %s failed, all queues are kept", self.group)
                is_said = True
            period_ms = self._config.rebalance_period_ms
            await self._wakeup.wait(
                next_rebalance_ms(failures, period_ms, is_locked_out=self._is_locked_out)
            )

    async def rebalance(self) -> bool:
        """Rebalance all topics once; return whether that succeeded.

        Only one runs at a time: two would both assign a queue. A listener that calls this is part
        of a rebalance, so it gets False, and another rebalance follows this one.
        """
        if self._rebalancing is asyncio.current_task():
            self._wakeup.set()
            return False
        async with self._rebalance_lock:
            self._rebalancing = asyncio.current_task()
            try:
                return await self._rebalance_all()
            finally:
                self._rebalancing = None

    async def _rebalance_all(self) -> bool:
        self._is_locked_out = False
        held = list(self._assigned_queues.readers)
        unsubscribed = [queue for queue in held if queue.topic not in self._filters]
        await self._apply(AssignmentDiff(tuple(unsubscribed), ()))
        await self._drop_silent()
        await self._take_start_offsets()
        done = {topic: await self._rebalance_topic(topic) for topic in list(self._filters)}
        self.has_succeeded |= all(is_done for t, is_done in done.items() if not is_retry(t))
        return all(done.values())

    async def _drop_silent(self) -> None:
        now_ms = self._config.clock.monotonic_ms()
        readers = self._assigned_queues.readers.items()
        silent = tuple(q for q, reader in readers if reader.is_silent(now_ms, PULL_SILENCE_MS))
        if silent:
            log.warning(
                "pulls of %s got no answer for too long: restarted", ", ".join(map(str, silent))
            )
            await self._apply(AssignmentDiff(silent, ()))

    async def _rebalance_topic(self, topic: str) -> bool:
        if is_retry(topic) and await self._is_missing(topic):
            return self._retry_looks > RETRY_TOPIC_LOOKUPS
        throttle = self._throttles.setdefault(
            topic, ErrorLogThrottle(f"share of {topic}", QUIET_FAILURES)
        )
        try:
            assigned = await self.allocator.queues_of(topic)
        except RoquetError as error:
            throttle.report(error)
            return False
        throttle.clear()
        held = [queue for queue in self._assigned_queues.readers if queue.topic == topic]
        return await self._apply(difference(held, assigned))

    async def _is_missing(self, topic: str) -> bool:
        """Whether a retry topic does not exist: a group may have none."""
        if not self._session.routes.brokers:
            return True
        try:
            await self._session.routes.find_readable(topic)
        except RoquetError:
            return True
        missing = self._session.routes.readable(topic) is None
        self._retry_looks = self._retry_looks + 1 if missing else 0
        return missing

    async def _apply(self, change: AssignmentDiff) -> bool:
        """Revoke and assign queues; return whether all were assigned."""
        if change.drop:
            await self._revoke(change.drop)
        if not change.start:
            return True
        free = [queue for queue in change.start if queue not in self._leaving]
        locked = await self._lock_if_ordered(free)
        try:
            return await self._assign(locked) == len(change.start)
        finally:
            await self._unlock_unread(locked)

    async def _assign(self, queues: Sequence[MessageQueue]) -> int:
        """Start reading queues whose start offset is known; return their number."""
        begins = await asyncio.gather(*map(self._start_offset, queues))
        taken = {q: offset for q, offset in zip(queues, begins, strict=True) if offset >= 0}
        await self.listeners.notify(self.listeners.assigned, taken)
        for queue, offset in taken.items():
            # The topic may have been unsubscribed meanwhile.
            if (message_filter := self._filters.get(queue.topic)) is not None:
                self._assigned_queues.assign(queue, offset, message_filter)
        self._log("has gained", taken)
        return len(taken)

    def _log(self, change: str, queues: Collection[MessageQueue]) -> None:
        if queues:
            held = len(self._assigned_queues.readers)
            log.info(
                "group %s: this member %s %s; it has %d now",
                self.group, change, short_text(queues), held,
            )  # fmt: skip

    async def _unlock_unread(self, queues: Sequence[MessageQueue]) -> None:
        """Release locks of unread queues, which would be renewed and keep other members out."""
        if self._locks is not None:
            unread = (
                set(self._locks.held).intersection(queues).difference(self._assigned_queues.readers)
            )
            await self._locks.unlock(sorted(unread))

    async def _lock_if_ordered(self, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        """Lock queues if they are ordered; return those that may be read."""
        if self._locks is None:
            return queues
        granted = await self._locks.lock(queues) if queues else set()
        locked = [queue for queue in queues if queue in granted]
        self._is_locked_out |= len(locked) < len(queues)
        return locked

    async def _start_offset(self, queue: MessageQueue) -> int:
        """The offset to start at; -1 when the broker does not answer."""
        try:
            return await self._offsets.start_offset(queue)
        except RoquetError as error:
            log.info("%s cannot be read yet: %s", queue, error)
            return -1

    async def _revoke(self, queues: Sequence[MessageQueue]) -> None:
        """Revoke queues: commit their offsets, then call the listeners."""
        dropped = self._assigned_queues.drop(queues)
        self._log("has given away", [reader.queue for reader in dropped])
        if self._locks is not None:
            for reader in dropped:
                assert isinstance(reader, OrderedReader)
                self._start_release(reader, is_ours=True)
        elif self._commits:
            await self._assigned_queues.hand_over(dropped)
        await self.listeners.notify(self.listeners.revoked, queues)

    def _drop_lost(self, queues: Sequence[MessageQueue]) -> None:
        """Stop reading queues with lost locks, without a commit: others may read them already."""
        lost = self._assigned_queues.drop(queues)
        for reader in lost:
            log.warning("the lock of %s is lost", reader.queue)
            if isinstance(reader, OrderedReader):
                self._start_release(reader, is_ours=False)
        notified = self.listeners.notify(self.listeners.lost, [reader.queue for reader in lost])
        self._session.background.start(notified, "listeners of lost queues")
        self._wakeup.set()

    def _start_release(self, reader: OrderedReader, *, is_ours: bool) -> None:
        """Release an ordered queue once its last message has ended."""
        seeing_off = self._session.background.start(
            self._release_when_idle(reader, is_ours=is_ours), f"end of {reader.queue}"
        )
        self._leaving[reader.queue] = reader, seeing_off

    async def _release_when_idle(self, reader: OrderedReader, *, is_ours: bool) -> None:
        assert self._locks is not None
        try:
            await reader.wait_until_idle()
            if is_ours and reader.queue in self._locks.held:
                if self._commits:
                    await self._assigned_queues.save_last([reader])
                await self._locks.unlock([reader.queue])
        finally:
            self._leaving.pop(reader.queue, None)
            self._wakeup.set()
