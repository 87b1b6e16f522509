"""PeerBrokers: the locations of topics on other brokers, and the lag there.

Name servers and brokers are asked on demand. Concurrent requests share one call, and answers are
cached for some seconds.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Generic, TypeVar

import msgspec

from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.broker.tables.topics import Topics
from roquet.log_records import logger
from roquet.model.errors import CallError, CallRefused, FieldError
from roquet.model.queue import MessageQueue
from roquet.model.route import TopicRoute
from roquet.model.topic import TopicConfig
from roquet.net.clock import Clock
from roquet.net.pool import ChannelPool
from roquet.rules.bounded_cache import BoundedCache
from roquet.wire.calls.admin.group import GetConsumeStats
from roquet.wire.calls.bodies import ConsumeStats
from roquet.wire.calls.route import GetRoute
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

log = logger(__name__)

T = TypeVar("T")
K = TypeVar("K")

FRESH_MS: Final = 3_000
"""Ms for which an answer is cached: members ask every 20 s, and all at once after a change."""

ROUTE_TIMEOUT_MS: Final = 1_000
LAG_TIMEOUT_MS: Final = 500
"""A member waits meanwhile, for 3 s at most."""

REMEMBERED_MAX: Final = 1_024
"""Cached answers, by topic or by group and topic."""


class TopicLocation(msgspec.Struct, frozen=True, kw_only=True):
    """The readable queues of a topic and the addresses of their brokers."""

    queues: tuple[MessageQueue, ...]
    """Sorted."""
    addresses: Mapping[str, str] = {}
    """By broker name, as far as known."""

    @property
    def first(self) -> str | None:
        """The broker that divides the queues: the first by name."""
        return min((queue.broker_name for queue in self.queues), default=None)


class PeerBrokers:
    """Asks name servers for routes, and other brokers for lag."""

    def __init__(self, settings: RuntimeSettings, clock: Clock, topics: Topics) -> None:
        self._settings = settings
        self.own_name = settings.config.broker_name
        self._topics = topics
        self._pool = ChannelPool(clock=clock, security=settings.config.calls())
        self._homes: BoundedCache[
            str, tuple[TopicRoute | None, TopicConfig | None, TopicLocation]
        ] = BoundedCache(REMEMBERED_MAX)
        """Cached locations, and what they were computed from: topics may have thousands of
        queues."""
        self._routes: _SingleFlightCache[str, TopicRoute | None] = _SingleFlightCache(clock)
        self._lags: _SingleFlightCache[tuple[str, str, str], Mapping[MessageQueue, int]] = (
            _SingleFlightCache(clock)
        )

    async def home(self, topic: str) -> TopicLocation | None:
        """The location of a topic; None when it is unknown.

        Our own queues are those of our tables, the others those of the name servers. Their last
        answer counts while none of them answers.
        """
        route = None
        if self._settings.config.name_servers:
            try:
                route = await self._routes.ask(topic, lambda: self._route(topic))
            except CallError as error:
                log.info("where %s lives is not known: %s", topic, error)
                return None
        own = self._topics.get(topic)
        if route is None and own is None:
            return None
        known = self._homes.get(topic)
        if known is None or known[:2] != (route, own):
            known = (route, own, self._home(topic, route, own))
            self._homes.put(topic, known)
        return known[2]

    def _home(self, topic: str, route: TopicRoute | None, own: TopicConfig | None) -> TopicLocation:
        mine = self.own_name
        count = own.read_queue_nums if own is not None and own.readable else 0
        queues = [MessageQueue(topic, mine, number) for number in range(count)]
        if route is None:
            return TopicLocation(queues=tuple(queues))
        queues += [queue for queue in route.read_queues(topic) if queue.broker_name != mine]
        addresses = {b.broker_name: b.any_address for b in route.broker_datas}
        return TopicLocation(
            queues=tuple(sorted(queues)),
            addresses={name: address for name, address in addresses.items() if address},
        )

    async def lag(self, group: str, topic: str, home: TopicLocation) -> dict[MessageQueue, int]:
        """The lag of the queues of other brokers, without those of brokers that do not answer."""
        addresses = {n: a for n, a in home.addresses.items() if n != self.own_name}
        broker_lags = await asyncio.gather(
            *(self._lag(a, group, topic) for a in addresses.values())
        )
        return {queue: count for lags in broker_lags for queue, count in lags.items()}

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.close()

    async def _route(self, topic: str) -> TopicRoute | None:
        """The route from the first name server that answers; None if it knows no such topic."""
        reason: CallError | FieldError | None = None
        for server in self._settings.config.name_servers:
            try:
                reply = await self._pool.call(server, GetRoute(topic=topic), ROUTE_TIMEOUT_MS)
                return codec.loads(reply.body, TopicRoute)
            except (CallError, FieldError) as error:
                if isinstance(error, CallRefused) and error.code == ResponseCode.TOPIC_NOT_EXIST:
                    return None
                reason = error
        raise reason if isinstance(reason, CallError) else CallError(str(reason), definite=True)

    async def _lag(self, address: str, group: str, topic: str) -> Mapping[MessageQueue, int]:
        try:
            return await self._lags.ask(
                (address, group, topic), lambda: self._stats(address, group, topic)
            )
        except (CallError, FieldError) as error:
            log.info("what waits for %s at %s is not known: %s", group, address, error)
            return {}

    async def _stats(self, address: str, group: str, topic: str) -> Mapping[MessageQueue, int]:
        call = GetConsumeStats(consumer_group=group, topic=topic)
        reply = await self._pool.call(address, call, LAG_TIMEOUT_MS)
        table = codec.loads(reply.body, ConsumeStats).offset_table
        return {queue: offsets.lag for queue, offsets in table.items()}


class _SingleFlightCache(Generic[K, T]):
    """A cache of answers for FRESH_MS; concurrent requests for a key share one call."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answers: BoundedCache[K, tuple[T, int]] = BoundedCache(REMEMBERED_MAX)
        self._calls: dict[K, asyncio.Task[T]] = {}

    async def ask(self, key: K, question: Callable[[], Awaitable[T]]) -> T:
        """A fresh answer; the last one when the call fails."""
        known = self._answers.get(key)
        if known is not None and self._clock.monotonic_ms() - known[1] < FRESH_MS:
            return known[0]
        if (task := self._calls.get(key)) is None:
            task = self._calls[key] = asyncio.create_task(self._ask(key, question))
            task.add_done_callback(lambda done: self._finish(key, done))
        try:
            return await asyncio.shield(task)
        except CallError:
            if known is None:
                raise
            return known[0]

    async def _ask(self, key: K, question: Callable[[], Awaitable[T]]) -> T:
        answer = await question()
        self._answers.put(key, (answer, self._clock.monotonic_ms()))
        return answer

    def _finish(self, key: K, task: asyncio.Task[T]) -> None:
        del self._calls[key]
        if not task.cancelled():
            task.exception()  # those who wait raise it; asyncio must not log it
