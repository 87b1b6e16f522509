"""Group lag: how far groups are behind, for how long, and how soon they fall off retention.

A group is behind by what it has not committed. Apache's metrics have groups with a member online
alone, ours all with progress: a group whose members are all dead is the one to look at.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Final

import msgspec

from roquet.broker.broker import Broker
from roquet.broker.metrics.traffic import SystemNames, add_consumers, flag
from roquet.metrics import rocketmq_metrics as rocketmq
from roquet.metrics import roquet_metrics as roquet
from roquet.metrics.counts import OTHER, SERIES_MAX
from roquet.metrics.text_format import MetricsPage
from roquet.model.names import is_retry, is_system_group

SLICE_COST: Final = 200
"""Queues that are looked at before others have their turn: about a millisecond."""

READ_COST: Final = 10
"""Cost of the age of a message, in queues: it is read from the log, perhaps from the disk."""

GROUPS_COUNT: Final = 200
"""Groups, for the same reason."""


class GroupTopic(msgspec.Struct, frozen=True):
    """A topic of which a group has progress."""

    group: str
    topic: str


class GroupTopicLag(msgspec.Struct):
    """How far a group is behind in a topic: the sums and maxima of its queues."""

    lag: int = 0
    """Messages that are not committed."""
    ready: int = 0
    """Messages that were not got, either."""
    committed: int = 0
    """Sum of the committed offsets: it changes when the group makes progress."""
    lag_ms: int = 0
    """Age of the first message that is not committed; 0 without one."""
    ready_ms: int = 0
    """Age of the first message that was not got; 0 without one."""

    def add(self, other: "GroupTopicLag") -> None:
        """Add another queue, or another topic."""
        self.lag += other.lag
        self.ready += other.ready
        self.committed += other.committed
        self.lag_ms = max(self.lag_ms, other.lag_ms)
        self.ready_ms = max(self.ready_ms, other.ready_ms)


class _Progress(msgspec.Struct):
    """Progress of a group in a topic when a page was last made."""

    committed: int
    changed_ms: int
    """Monotonic ms when it was first seen."""


class GroupLagSource:
    """Adds the lag of all groups to pages, and remembers when each made progress."""

    def __init__(self, broker: Broker, series_max: int = SERIES_MAX) -> None:
        self._broker = broker
        self._series_max = series_max
        self._progress: dict[GroupTopic, _Progress] = {}
        self._cost = 0
        """Work since others had their turn."""
        self.overflow = 0
        """How often a group and topic had no place of its own in a page."""

    async def add(self, page: MetricsPage) -> None:
        """Add the lag of all groups."""
        system = SystemNames(self._broker)
        await self._add_groups(page)
        seen: dict[GroupTopic, _Progress] = {}
        others: GroupTopicLag | None = None
        async for group_topic, lag in self._lags():
            if len(seen) >= self._series_max:
                others = others or GroupTopicLag()
                others.add(lag)
                self.overflow += 1
                continue
            seen[group_topic] = progress = self._noted(group_topic, lag)
            idle_ms = self._broker.control.clock.monotonic_ms() - progress.changed_ms
            page.add(roquet.GROUP_IDLE, idle_ms / 1000, group_topic.group, group_topic.topic)
            self._add_lag(page, group_topic, lag, system)
        if others is not None:
            page.add(roquet.GROUP_LAG, others.lag, OTHER, OTHER)
            page.add(roquet.GROUP_LAG_TIME, others.lag_ms / 1000, OTHER, OTHER)
        self._progress = seen

    async def _add_groups(self, page: MetricsPage) -> None:
        """Add whether groups have members online, and their connections."""
        clients = self._broker.tables.clients
        for number, config in enumerate(list(self._broker.tables.groups), 1):
            name = config.group_name
            if number <= self._series_max and not is_system_group(name):
                page.add(roquet.GROUP_ONLINE, int(clients.consumers(name) is not None), name)
                add_consumers(self._broker, page, name)
            if number % GROUPS_COUNT == 0:
                await asyncio.sleep(0)

    async def _lags(self) -> AsyncIterator[tuple[GroupTopic, GroupTopicLag]]:
        """The lag of each group in each topic, with pauses."""
        tables = self._broker.tables
        for group_topic in list(self._places()):
            topic = tables.topics.get(group_topic.topic)
            if topic is None:
                continue
            whole = GroupTopicLag()
            offsets = tables.offsets.queues(group_topic.group, group_topic.topic)
            for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
                whole.add(self._queue_lag(group_topic, queue_id, offsets))
                self._cost += 1
                if self._cost >= SLICE_COST:
                    self._cost = 0
                    await asyncio.sleep(0)
            yield group_topic, whole

    def _places(self) -> Iterator[GroupTopic]:
        """The topics of groups that users have."""
        for group, topics in self._broker.tables.offsets.by_group().items():
            if not is_system_group(group):
                yield from (GroupTopic(group, topic) for topic in topics)

    def _queue_lag(
        self, group_topic: GroupTopic, queue_id: int, offsets: Mapping[int, int]
    ) -> GroupTopicLag:
        """The lag of a group in one queue. A queue without progress counts from its beginning."""
        broker = self._broker
        least, end = broker.log.store.bounds(group_topic.topic, queue_id)
        committed = min(max(offsets.get(queue_id, least), least), end)
        pulled = broker.control.statistics.pulled(group_topic.topic, group_topic.group, queue_id)
        reached = min(max(committed, pulled), end)
        return GroupTopicLag(
            lag=end - committed,
            ready=end - reached,
            committed=committed,
            lag_ms=self._age_ms(group_topic.topic, queue_id, committed, end),
            ready_ms=self._age_ms(group_topic.topic, queue_id, reached, end),
        )

    def _age_ms(self, topic: str, queue_id: int, offset: int, end: int) -> int:
        """Age of the message at an offset; 0 at the end of the queue."""
        if offset >= end:
            return 0
        self._cost += READ_COST
        stored_ms = self._broker.log.store.store_time_at(topic, queue_id, offset)
        return max(0, self._broker.control.clock.now_ms() - stored_ms) if stored_ms > 0 else 0

    def _noted(self, group_topic: GroupTopic, lag: GroupTopicLag) -> _Progress:
        """When the progress of a group last changed, as far as pages were made."""
        known = self._progress.get(group_topic)
        if known is not None and known.committed == lag.committed:
            return known
        return _Progress(lag.committed, self._broker.control.clock.monotonic_ms())

    def _add_lag(
        self, page: MetricsPage, group_topic: GroupTopic, lag: GroupTopicLag, system: SystemNames
    ) -> None:
        group, topic, broker = group_topic.group, group_topic.topic, self._broker
        page.add(roquet.GROUP_LAG, lag.lag, group, topic)
        page.add(roquet.GROUP_LAG_TIME, lag.lag_ms / 1000, group, topic)
        if lag.lag:
            left_ms = broker.control.settings.config.retention - lag.lag_ms
            page.add(roquet.GROUP_RETENTION, max(0, left_ms) / 1000, group, topic)
        if broker.tables.clients.consumers(group) is None:
            return
        labels = (group, topic, flag(is_retry(topic)), system.label(topic, group))
        page.add(rocketmq.LAG_MESSAGES, lag.lag, *labels)
        page.add(rocketmq.LAG_LATENCY, lag.lag_ms, *labels)
        page.add(rocketmq.INFLIGHT_MESSAGES, lag.lag - lag.ready, *labels)
        page.add(rocketmq.QUEUEING_LATENCY, lag.ready_ms, *labels)
        page.add(rocketmq.READY_MESSAGES, lag.ready, *labels)
