"""Routes: a cache of the brokers and queues of topics, refreshed from the name servers.

One name server is asked, the next one when it fails or does not answer soon. Known topics are
refreshed each 30 s, and soon after a call failed that a stale route may have caused.
"""

import asyncio
from asyncio import FIRST_COMPLETED
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from roquet.client.config import ClientConfig
from roquet.client.connection.background import ErrorLogThrottle, Wakeup, cancel_and_wait
from roquet.model.errors import CallError, CallRefused, ConnectFailed, NotFound, RoquetError
from roquet.model.names import AUTO_CREATE_TOPIC
from roquet.model.queue import MessageQueue
from roquet.model.route import MASTER_ID, BrokerData, TopicRoute
from roquet.net.pool import ChannelPool
from roquet.wire.call import Call, R, Reply
from roquet.wire.calls.route import GetAllTopics, GetRoute
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

REFRESH_PAUSE_MS: Final = 1_000
"""Pause between two refreshes of all topics, however many calls invalidate the routes."""

SEARCH_PAUSE_MS: Final = 200
"""Pause between two searches for a topic that a caller waits for."""

HEAD_START_MS: Final = 300
"""Time for which one name server is asked alone: most answer in a few milliseconds."""

_NOT_A_NAME_SERVER: Final = frozenset({ResponseCode.REQUEST_CODE_NOT_SUPPORTED})
"""Brokers refuse route requests with this code."""

RouteListener = Callable[[str], object]
"""Called with the name of a topic whose route is new or has changed."""


def topic_missing(topic: str) -> NotFound:
    """Make the error of a consumer whose topic is in no route: it looks for it again."""
    return NotFound(f"topic {topic} does not exist yet: waiting for it")


class NameServers:
    """Equivalent name servers: one is asked, the next one too when it fails or is slow."""

    def __init__(self, pool: ChannelPool, addresses: Sequence[str], config: ClientConfig) -> None:
        self.addresses = addresses
        self._pool = pool
        self._timeout_ms = config.timeout_ms
        # Clients start at different servers.
        self._current = config.rng.randrange(len(addresses))

    async def ask(self, call: Call[R]) -> R:
        """Return the first answer; TOPIC_NOT_EXIST is an answer too, and raises CallRefused.

        The server that answered first is asked first the next time.
        """
        count = len(self.addresses)
        left = deque((self._current + number) % count for number in range(count))
        asked: dict[asyncio.Task[R], int] = {}
        try:
            while left or asked:
                if left:
                    index = left.popleft()
                    work = self._pool.call(self.addresses[index], call, self._timeout_ms)
                    asked[asyncio.create_task(work)] = index
                limit_s = HEAD_START_MS / 1000 if left else None
                done, _ = await asyncio.wait(asked, timeout=limit_s, return_when=FIRST_COMPLETED)
                for task in done:
                    index = asked.pop(task)
                    if (reason := task.exception()) is None or not _is_fault(reason):
                        self._current = index
                        return task.result()
        finally:
            await cancel_and_wait(*asked)
        assert isinstance(reason, CallError)
        where = ", ".join(self.addresses)
        if isinstance(reason, CallRefused) and reason.code in _NOT_A_NAME_SERVER:
            raise ConnectFailed(
                f"{where} answered, but not as a name server does ({reason}): this looks like a "
                "broker's address; give that of a name server, which is usually at port 9876"
            )
        if isinstance(reason, CallRefused):
            raise ConnectFailed(f"the name server at {where} refuses: {reason}") from reason
        raise ConnectFailed(
            f"no name server answered at {where} ({reason}); is it running? `roquet dev` starts one"
        )

    async def list_topics(self, call: Call[Reply]) -> Sequence[str]:
        """Names of topics; CallRefused, with advice, when the name server does not list them."""
        from roquet.wire.calls.bodies import TopicList  # here: few clients need one of its types

        try:
            reply = await self.ask(call)
        except ConnectFailed as error:
            if isinstance(refusal := error.__cause__, CallRefused):
                raise CallRefused(
                    refusal.code,
                    f"{error}; a topic pattern needs the list of topics: let this user Get the "
                    "cluster, or name the topics",
                ) from error
            raise
        return [*codec.loads(bytes(reply.body), TopicList).topic_list]


def _is_fault(error: BaseException) -> bool:
    """Whether another name server may do better: this one did not answer the question."""
    if isinstance(error, CallRefused):
        return error.code != ResponseCode.TOPIC_NOT_EXIST
    return isinstance(error, CallError)


class Routes:
    """Routes by topic."""

    def __init__(self, servers: NameServers, config: ClientConfig) -> None:
        self.servers = servers
        self._config = config
        self._routes: dict[str, TopicRoute] = {}
        self._borrowed: set[str] = set()
        self._writable: dict[str, list[MessageQueue]] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._asking: dict[str, asyncio.Task[TopicRoute | None]] = {}
        self._changed: list[RouteListener] = []
        self._invalidated = Wakeup()
        self._throttle = ErrorLogThrottle("routes")

    def on_change(self, callback: RouteListener) -> None:
        """Add a callback for each new or changed route."""
        self._changed.append(callback)

    @property
    def failure(self) -> str | None:
        """The error while refreshes fail."""
        return self._throttle.failure

    @property
    def brokers(self) -> Sequence[BrokerData]:
        """The brokers of all known topics."""
        return list(self._brokers.values())

    def leader(self, broker_name: str) -> str:
        """The address of a broker's leader, which takes writes; ConnectFailed if unknown."""
        broker = self._brokers.get(broker_name)
        if broker is None or broker.leader is None:
            raise ConnectFailed(f"no address of broker {broker_name} is known")
        return broker.leader

    def addresses(self, broker_name: str) -> Mapping[int, str]:
        """The addresses of a broker name by id: the leader has id 0; empty if none is known."""
        broker = self._brokers.get(broker_name)
        return broker.broker_addrs if broker else {}

    def any_member(self, broker_name: str) -> str:
        """The leader's address, else that of the lowest id; ConnectFailed if none is known."""
        if not (addresses := self.addresses(broker_name)):
            raise ConnectFailed(f"no address of broker {broker_name} is known")
        return addresses[min(addresses)]

    def followers(self, broker_name: str) -> Sequence[str]:
        """The addresses of a broker's followers, by their ids."""
        members = sorted(self.addresses(broker_name).items())
        return [address for broker_id, address in members if broker_id != MASTER_ID]

    def brokers_of(self, topic: str) -> Sequence[BrokerData]:
        """The known brokers of a topic."""
        route = self._routes.get(topic)
        return route.broker_datas if route else []

    def readable(self, topic: str) -> list[MessageQueue] | None:
        """The queues to read from; None while the topic is unknown."""
        route = self._routes.get(topic)
        return route.read_queues(topic) if route and topic not in self._borrowed else None

    def writable(self, topic: str) -> list[MessageQueue] | None:
        """The queues to write to; None while no writable queue is known."""
        return self._writable.get(topic)

    async def find_readable(self, topic: str) -> list[MessageQueue]:
        """The queues to read from, refreshed if the topic is unknown; empty if it stays unknown."""
        queues = self.readable(topic)
        if queues is None:
            await self.refresh(topic)
            queues = self.readable(topic)
        return queues or []

    async def find_writable(self, topic: str, new_queues: int, deadline_ms: int) -> None:
        """Wait until there is a queue to write to; ConnectFailed after the deadline.

        An unknown topic borrows the route of AUTO_CREATE_TOPIC: the first send creates it, with up
        to `new_queues` queues on each broker.
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

    async def known_topics(self) -> Sequence[str]:
        """The names of all topics that a name server knows; none when it refuses to list them."""
        try:
            return await self.servers.list_topics(GetAllTopics())
        except CallError:
            return ()

    async def is_still_writable(self, queue: MessageQueue) -> bool:
        """Refresh the route; return whether it still has this queue for writing."""
        await self.refresh(queue.topic)
        return queue.topic not in self._borrowed and queue in self._writable.get(queue.topic, ())

    def forget(self, topic: str) -> None:
        """Refresh the route of a topic no more, until somebody asks for it again."""
        self._routes.pop(topic, None)
        self._writable.pop(topic, None)
        self._borrowed.discard(topic)

    def invalidate(self) -> None:
        """Refresh all routes soon: a call failed that a stale route may have caused."""
        self._invalidated.set()

    async def refresh_forever(self) -> None:
        """Refresh all known topics periodically, for ever."""
        while True:
            await self._invalidated.wait(self._config.route_period_ms)
            try:
                await self.refresh_all()
                self._throttle.clear()
            except RoquetError as error:
                self._throttle.report(error)
            await self._config.clock.sleep(REFRESH_PAUSE_MS)

    async def refresh_all(self) -> None:
        """Refresh all known topics once; an unreadable answer for one does not stop the others."""
        fault: RoquetError | None = None
        for topic in list(self._routes):
            try:
                await self.refresh(topic)
            except CallError:  # no name server answers: the next topic would fail as well
                raise
            except RoquetError as error:
                fault = error
        if fault is not None:
            raise fault

    async def refresh(self, topic: str) -> TopicRoute | None:
        """Refresh one topic; None when no server knows it, and then the old route stays."""
        # Concurrent callers share one request.
        if (task := self._asking.get(topic)) is None:
            task = self._asking[topic] = asyncio.create_task(self._refresh(topic))
            task.add_done_callback(lambda done: self._forget_request(topic, done))
        return await asyncio.shield(task)

    def _forget_request(self, topic: str, task: asyncio.Task[TopicRoute | None]) -> None:
        del self._asking[topic]
        if not task.cancelled():
            task.exception()  # marks the error as retrieved: the callers get it from their shields

    async def _refresh(self, topic: str) -> TopicRoute | None:
        route = await self._fetch(topic)
        if route is not None:
            self._borrowed.discard(topic)
            self._store(topic, route)
        return route

    async def _borrow(self, topic: str, new_queues: int) -> None:
        route = await self._fetch(AUTO_CREATE_TOPIC)
        if route is not None:
            self._borrowed.add(topic)
            self.invalidate()  # the topic's own route exists soon after the first send
            self._store(topic, _with_queues(route, new_queues))

    async def _fetch(self, topic: str) -> TopicRoute | None:
        try:
            reply = await self.servers.ask(GetRoute(topic=topic))
        except CallRefused:  # NameServers.ask raises CallRefused only for TOPIC_NOT_EXIST
            return None
        return _sorted(codec.loads(reply.body, TopicRoute))

    def _store(self, topic: str, route: TopicRoute) -> None:
        # Routes of other topics may be older: what this one says of its brokers counts.
        self._brokers |= {broker.broker_name: broker for broker in route.broker_datas}
        if self._routes.get(topic) == route:
            return
        self._routes[topic] = route
        if queues := route.write_queues(topic):
            self._writable[topic] = queues
        else:
            self._writable.pop(topic, None)
        named = {b.broker_name for r in self._routes.values() for b in r.broker_datas}
        self._brokers = {name: b for name, b in self._brokers.items() if name in named}
        for callback in self._changed:
            callback(topic)


def _sorted(route: TopicRoute) -> TopicRoute:
    """The route in an order that does not depend on the server that answered."""
    return msgspec.structs.replace(
        route,
        queue_datas=sorted(route.queue_datas, key=lambda data: data.broker_name),
        broker_datas=sorted(route.broker_datas, key=lambda data: data.broker_name),
    )


def _with_queues(route: TopicRoute, count_max: int) -> TopicRoute:
    """The route of a topic that is created with this route as its template."""
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
