"""The route cache: where topics live, as the name servers say.

One name server is asked at a time, the next one when it fails. Known topics are asked for again
each 30 s, and at once when a call fails that a stale route may have caused.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from roquet.client.config import ClientConfig
from roquet.client.connection.background import ErrorLogThrottle, Wakeup
from roquet.model.errors import CallError, CallRefused, ConnectFailed, RoquetError
from roquet.model.names import AUTO_CREATE_TOPIC
from roquet.model.queue import MessageQueue
from roquet.model.route import BrokerData, TopicRoute
from roquet.net.pool import ChannelPool
from roquet.wire.call import Call, R
from roquet.wire.calls.route import GetRoute
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

REFRESH_PAUSE_MS: Final = 1_000
"""Between two rounds of questions, however many calls doubt their route."""

SEARCH_PAUSE_MS: Final = 200
"""Between two tries to find a topic that a caller waits for."""

_NOT_A_NAME_SERVER: Final = frozenset({ResponseCode.REQUEST_CODE_NOT_SUPPORTED})
"""Brokers know no request for routes."""

RouteListener = Callable[[str], object]
"""What is told the name of a topic whose route is new or has changed."""


class NameServers:
    """Several that know the same: one is asked at a time, the next when it fails."""

    def __init__(self, pool: ChannelPool, addresses: Sequence[str], config: ClientConfig) -> None:
        self.addresses = addresses
        self._pool = pool
        self._timeout_ms = config.timeout_ms
        # Not all clients at the first one.
        self._current = config.rng.randrange(len(addresses))

    async def ask(self, call: Call[R]) -> R:
        """The first answer; one that says that there is no such topic is an answer, too."""
        for _ in self.addresses:
            try:
                return await self._pool.call(self.addresses[self._current], call, self._timeout_ms)
            except CallError as error:
                if isinstance(error, CallRefused) and error.code == ResponseCode.TOPIC_NOT_EXIST:
                    raise
                reason = error
                self._current = (self._current + 1) % len(self.addresses)
        where = ", ".join(self.addresses)
        if isinstance(reason, CallRefused) and reason.code in _NOT_A_NAME_SERVER:
            raise ConnectFailed(
                f"{where} answered, but not as a name server does ({reason}): this looks like a "
                "broker's address; give that of a name server, which is usually at port 9876"
            )
        raise ConnectFailed(
            f"no name server answered at {where} ({reason}); is it running? `roquet dev` starts one"
        )


class Routes:
    """Where topics live."""

    def __init__(self, servers: NameServers, config: ClientConfig) -> None:
        self._servers = servers
        self._config = config
        self._routes: dict[str, TopicRoute] = {}
        self._borrowed: set[str] = set()
        self._writable: dict[str, list[MessageQueue]] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._asking: dict[str, asyncio.Task[TopicRoute | None]] = {}
        self._changed: list[RouteListener] = []
        self._invalidated = Wakeup()
        self._trouble = ErrorLogThrottle("routes")

    def on_change(self, callback: RouteListener) -> None:
        """Call back whenever the route of a topic is new or has changed."""
        self._changed.append(callback)

    @property
    def brokers(self) -> Sequence[BrokerData]:
        """The brokers of all topics known."""
        return list(self._brokers.values())

    def leader(self, broker_name: str) -> str:
        """The address of the broker that takes writes; ConnectFailed when it is not known."""
        broker = self._brokers.get(broker_name)
        if broker is None or broker.leader is None:
            raise ConnectFailed(f"no address of broker {broker_name} is known")
        return broker.leader

    def brokers_of(self, topic: str) -> Sequence[BrokerData]:
        """The brokers that hold a topic, as far as known."""
        route = self._routes.get(topic)
        return route.broker_datas if route else []

    def readable(self, topic: str) -> list[MessageQueue] | None:
        """The queues to read from; None while the topic is unknown."""
        route = self._routes.get(topic)
        return route.read_queues(topic) if route and topic not in self._borrowed else None

    def writable(self, topic: str) -> list[MessageQueue] | None:
        """The queues to write to; None while none is known."""
        return self._writable.get(topic)

    async def find_readable(self, topic: str) -> list[MessageQueue]:
        """The queues to read from, asked for when the topic is unknown; none if it stays so."""
        found = self.readable(topic)
        if found is None:
            await self.refresh(topic)
            found = self.readable(topic)
        return found or []

    async def find_writable(self, topic: str, new_queues: int, deadline_ms: int) -> None:
        """Return once there is a queue to write to; ConnectFailed when there is none in time.

        A topic that nobody knows borrows the route of the one that brokers make new topics after:
        the first send creates it, with so many queues on each broker.
        """
        clock = self._config.clock
        while topic not in self._writable:
            reason = f"topic {topic!r} does not exist, and no broker would create it"
            try:
                if await self.refresh(topic) is None:
                    await self._borrow(topic, new_queues)
                elif topic not in self._writable:
                    reason = f"topic {topic!r} has no queue that may be written to"
            except ConnectFailed as error:
                reason = str(error)
            if topic in self._writable:
                return
            if (left_ms := deadline_ms - clock.monotonic_ms()) <= 0:
                raise ConnectFailed(reason)
            await clock.sleep(min(SEARCH_PAUSE_MS, left_ms))

    async def is_sure_of(self, queue: MessageQueue) -> bool:
        """Whether name servers still say that this queue may be written to."""
        await self.refresh(queue.topic)
        return queue.topic not in self._borrowed and queue in self._writable.get(queue.topic, ())

    def invalidate(self) -> None:
        """A call failed that a stale route may have caused: ask again soon."""
        self._invalidated.ring()

    async def keep(self) -> None:
        """Ask again for every known topic, for ever."""
        while True:
            await self._invalidated.wait(self._config.route_period_ms)
            try:
                await self.refresh_all()
                self._trouble.over()
            except RoquetError as error:
                self._trouble.tell(error)
            await self._config.clock.sleep(REFRESH_PAUSE_MS)

    async def refresh_all(self) -> None:
        """Ask once for every known topic; an answer that cannot be read holds no other up."""
        fault: RoquetError | None = None
        for topic in list(self._routes):
            try:
                await self.refresh(topic)
            except CallError:  # nobody answers: the next topic would fare no better
                raise
            except RoquetError as error:
                fault = error
        if fault is not None:
            raise fault

    async def refresh(self, topic: str) -> TopicRoute | None:
        """Ask for one topic; None when nobody knows it: what was known before stays then."""
        # Everyone who asks for a topic at one time shares one question.
        if (task := self._asking.get(topic)) is None:
            task = self._asking[topic] = asyncio.create_task(self._ask(topic))
            task.add_done_callback(lambda done: self._asked(topic, done))
        return await asyncio.shield(task)

    def _asked(self, topic: str, task: asyncio.Task[TopicRoute | None]) -> None:
        del self._asking[topic]
        if not task.cancelled():
            task.exception()  # is told to those who wait; it need not be told to nobody

    async def _ask(self, topic: str) -> TopicRoute | None:
        route = await self._fetch(topic)
        if route is not None:
            self._borrowed.discard(topic)
            self._take(topic, route)
        return route

    async def _borrow(self, topic: str, new_queues: int) -> None:
        route = await self._fetch(AUTO_CREATE_TOPIC)
        if route is not None:
            self._borrowed.add(topic)
            self.invalidate()  # its own route is known a moment after the first send
            self._take(topic, _with_queues(route, new_queues))

    async def _fetch(self, topic: str) -> TopicRoute | None:
        try:
            reply = await self._servers.ask(GetRoute(topic=topic))
        except CallRefused:  # only "no such topic" comes through
            return None
        return _sorted(codec.loads(reply.body, TopicRoute))

    def _take(self, topic: str, route: TopicRoute) -> None:
        if self._routes.get(topic) == route:
            return
        self._routes[topic] = route
        if queues := route.write_queues(topic):
            self._writable[topic] = queues
        else:
            self._writable.pop(topic, None)
        self._brokers = {b.broker_name: b for r in self._routes.values() for b in r.broker_datas}
        for callback in self._changed:
            callback(topic)


def _sorted(route: TopicRoute) -> TopicRoute:
    """The same in an order that does not depend on who answered."""
    return msgspec.structs.replace(
        route,
        queue_datas=sorted(route.queue_datas, key=lambda data: data.broker_name),
        broker_datas=sorted(route.broker_datas, key=lambda data: data.broker_name),
    )


def _with_queues(route: TopicRoute, count_max: int) -> TopicRoute:
    """The route that a topic will have which is made after this one."""
    return msgspec.structs.replace(
        route,
        queue_datas=[
            msgspec.structs.replace(
                data,
                read_queue_nums=min(data.read_queue_nums, count_max),
                write_queue_nums=min(data.write_queue_nums, count_max),
            )
            for data in route.queue_datas
        ],
    )
