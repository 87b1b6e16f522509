"""Topic patterns of a consumer: which topics of the name server match, join and leave."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from roquet.client.connection.background import ErrorLogThrottle, Wakeup, cancel_and_wait
from roquet.client.connection.session import Session
from roquet.client.reading.offsets import GroupOffsets
from roquet.client.reading.pull_request import SubscriptionFilter, check_filters
from roquet.log_records import logger
from roquet.model.errors import CallRefused, ConnectFailed, RoquetError
from roquet.rules.consumption.topic_patterns import TopicPattern, absences_after, match_topics
from roquet.wire.calls.admin.namesrv import SystemTopics
from roquet.wire.calls.route import GetAllTopics

log = logger(__name__)

LISTING_PAUSE_MS: Final = 1_000
"""Shortest pause between two lists of all topics."""

PROBES_MAX: Final = 32
"""Topics that are asked about at the same time, whether this group may read them."""


class TopicPatterns:
    """The subscribed patterns of one consumer, and the topics that it reads because of them."""

    def __init__(
        self,
        session: Session,
        offsets: GroupOffsets,
        group: str,
        subscribed: Mapping[str, SubscriptionFilter],
        use: Callable[[SubscriptionFilter], object],
        drop: Callable[[str], object],
    ) -> None:
        """`use` subscribes to a topic, or changes its filter; `drop` ends a subscription."""
        self.wakeup = Wakeup()
        """Set when topics should be listed sooner than usual."""
        self._session = session
        self._offsets = offsets
        self._group = group
        self._subscribed, self._use, self._drop = subscribed, use, drop
        self._filters: dict[TopicPattern, SubscriptionFilter] = {}
        self._joined: dict[str, TopicPattern] = {}
        self._absent_since_ms: dict[str, int | None] = {}
        """Since when each joined topic is not listed; None if it is."""
        self._refused: dict[str, str] = {}
        """Topics that match and may not be read, with the reason."""
        self._lock = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None

    def __bool__(self) -> bool:
        return bool(self._filters)

    def add(self, pattern: TopicPattern, message_filter: SubscriptionFilter) -> None:
        """Add a pattern with the filter of its topics, or change the filter."""
        self._filters[pattern] = message_filter
        self._refused.clear()
        for topic in self._topics_of(pattern):
            self._use(message_filter.for_topic(topic))
        self.wakeup.set()

    def remove(self, pattern: TopicPattern) -> None:
        """Remove a pattern, and end its subscriptions; another pattern may take them over."""
        self._filters.pop(pattern, None)
        for topic in self._topics_of(pattern):
            self._leave(topic)
        self.wakeup.set()

    def release(self, topic: str) -> None:
        """Forget a topic, which is subscribed by its name from now on."""
        self._joined.pop(topic, None)
        self._absent_since_ms.pop(topic, None)

    def has_joined(self, topic: str) -> bool:
        """Whether a topic is subscribed because it matches a pattern."""
        return topic in self._joined

    def _leave(self, topic: str) -> None:
        self.release(topic)
        self._drop(topic)

    def _topics_of(self, pattern: TopicPattern) -> Sequence[str]:
        return [topic for topic, joined_by in self._joined.items() if joined_by == pattern]

    async def begin(self) -> None:
        """Subscribe to the topics that match; without a name server, as soon as there is one.

        Raises CallRefused when the name server refuses to list topics.
        """
        if self._filters:
            try:
                await self.match()
            except ConnectFailed as error:
                log.warning("group %s: topic patterns match nothing yet: %s", self._group, error)
                self.wakeup.set()
            self.follow()

    def follow(self) -> None:
        """List topics as often as routes are refreshed, and soon after members have changed."""
        if self._following is None:
            name = f"topic patterns of {self._group}"
            clock = self._session.config.clock
            self._following = self._session.background.supervise(self._match_forever, name, clock)

    async def stop(self) -> None:
        """Let no topic join or leave any more."""
        if self._following is not None:
            await cancel_and_wait(self._following)

    async def _match_forever(self) -> None:
        config, throttle = self._session.config, ErrorLogThrottle(f"topics of {self._group}")
        while True:
            await self.wakeup.wait(config.route_period_ms)
            try:
                await self.match()
                throttle.clear()
            except RoquetError as error:
                throttle.report(error)
                if not isinstance(error, CallRefused):
                    self.wakeup.set()
            await config.clock.sleep(LISTING_PAUSE_MS)

    async def match(self) -> None:
        """List the topics, and subscribe to those that match now.

        Raises CallRefused when the name server refuses the list, and ConnectFailed without one.
        """
        async with self._lock:
            if listed := await self._list():  # else no broker has registered yet: each has topics
                now_ms = self._session.config.clock.monotonic_ms()
                self._absent_since_ms = absences_after(self._absent_since_ms, listed, now_ms)
                for topic in self._joined.keys() - self._absent_since_ms.keys():
                    log.info("group %s: topic %s is gone", self._group, topic)
                    self._leave(topic)
                    self._session.routes.forget(topic)  # topics may come and go for ever
                await self._join({t: p for t, p in listed.items() if t not in self._subscribed})

    async def _list(self) -> Mapping[str, TopicPattern] | None:
        """The topics that match; None when the name server knows no topic at all."""
        servers = self._session.routes.servers
        if not (listed := await servers.list_topics(GetAllTopics())):
            return None
        hidden: Sequence[str] = ()
        with suppress(CallRefused):  # those that brokers name after themselves and clusters
            hidden = await servers.list_topics(SystemTopics())
        return match_topics(self._filters, listed, hidden, self._session.config.namespace)

    async def _join(self, new: Mapping[str, TopicPattern]) -> None:
        self._refused = {t: reason for t, reason in self._refused.items() if t in new}
        limit = asyncio.Semaphore(PROBES_MAX)
        filters = {topic: self._filters[pattern].for_topic(topic) for topic, pattern in new.items()}
        allowed = await asyncio.gather(*(self._may_read(f, limit) for f in filters.values()))
        for topic, is_allowed in zip(filters, allowed, strict=True):
            message_filter = self._filters.get(new[topic])  # it may have changed meanwhile
            if is_allowed and message_filter is not None and topic not in self._subscribed:
                log.info("group %s: topic %s matches a pattern", self._group, topic)
                self._joined[topic], self._absent_since_ms[topic] = new[topic], None
                self._use(message_filter.for_topic(topic))

    async def _may_read(self, message_filter: SubscriptionFilter, limit: asyncio.Semaphore) -> bool:
        """Whether brokers let this group read a topic: they refuse heartbeats with another one."""
        topic = message_filter.topic
        async with limit:
            try:
                await check_filters(self._session, self._group, [message_filter])
                for queue in (await self._session.routes.find_readable(topic))[:1]:
                    await self._offsets.committed(queue)
            except CallRefused as error:
                if self._refused.get(topic) != str(error):
                    log.warning(
                        "group %s: topic %s matches a pattern and is left out, its broker refuses:"
                        " %s", self._group, topic, error,
                    )  # fmt: skip
                self._refused[topic] = str(error)
                return False
            except RoquetError as error:  # a topic that is subscribed by its name waits as well
                log.info(
                    "group %s: topic %s is read once it answers: %s", self._group, topic, error
                )
        return True
