"""Sender: parcels of one task to brokers, several at a time; what an order key binds in its order.

    put ──▶ any queue      ▣ ▣ ▣      as many at a time as there is room for
        ──▶ lane of queue  ▣▣▣▣ ──▶   one at a time, the next when a broker has it

The task's thread makes parcels while an event loop in another one sends them.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from roquet.client.config import ClientConfig
from roquet.client.connection.loop_thread import LoopThread
from roquet.client.connection.routes import NameServers, Routes
from roquet.client.connection.security import connection_security
from roquet.model.queue import MessageQueue
from roquet.net.clock import SYSTEM_CLOCK
from roquet.net.pool import ChannelPool
from roquet.spark.sink.delivery import DeliveredRequest, RequestDelivery
from roquet.spark.sink.options import SinkOptions
from roquet.spark.sink.send_requests import SendRequest

T = TypeVar("T")

BATCHES_MAX: Final = 2
"""Of a task under way for each broker: one that is stored and one that comes."""

SINGLES_MAX: Final = 256
"""Messages of a task under way that go alone."""

HANDOVER_COUNT: Final = 64
"""Messages that go alone, handed to the loop at one time."""


class Sender:
    """Sends the parcels of one task; `with` it."""

    def __init__(
        self,
        options: SinkOptions,
        turn: int = 0,
        taken: Callable[[DeliveredRequest], object] = lambda _: None,
    ) -> None:
        """`taken` is told of each parcel that a broker has, on the loop's thread."""
        self._options = options
        self._taken = taken
        self._turn = turn
        self._thread = LoopThread.shared()
        self._work: _LoopSender | None = None

    def __enter__(self) -> Self:
        self._work = self._thread.wait(self._opened())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._do(self._open.close())

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues of a topic: the same for as long as this one lives."""
        known = self._open.pinned.get(topic)
        if known is None:
            known = self._open.pinned[topic] = self._do(self._open.delivery.queues(topic))
        return known

    def put(self, parcels: Iterable[SendRequest]) -> None:
        """Begin to send; returns when there is room for more, raises what failed before."""
        some: list[SendRequest] = []
        for parcel in parcels:
            some.append(parcel)
            if parcel.properties is None or len(some) >= HANDOVER_COUNT:
                self._do(self._open.put(some))
                some = []
        if some:
            self._do(self._open.put(some))

    def finish(self) -> None:
        """Return when brokers have everything."""
        self._do(self._open.finish())

    @property
    def _open(self) -> "_LoopSender":
        assert self._work is not None, "use `with`"
        return self._work

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.wait(work)

    async def _opened(self) -> "_LoopSender":
        return _LoopSender(self._options, self._turn, self._taken)


class _LoopSender:
    """What lives on the loop."""

    def __init__(
        self, options: SinkOptions, turn: int, taken: Callable[[DeliveredRequest], object]
    ) -> None:
        self.pool, routes = open_connections(options)
        self.delivery = RequestDelivery(routes, self.pool, options, SYSTEM_CLOCK, turn)
        self.pinned: dict[str, Sequence[MessageQueue]] = {}
        self._routes = routes
        self._taken = taken
        # Half messages are seen in the order of their commits, not in that of their coming.
        self._any_order = options.transactional
        self._lanes: dict[MessageQueue, deque[SendRequest]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._batches = self._singles = 0
        self._error: BaseException | None = None
        self._moved = asyncio.Event()

    async def put(self, parcels: Iterable[SendRequest]) -> None:
        for parcel in parcels:
            await self._room(parcel)
            if parcel.properties is None:
                self._batches += 1
            else:
                self._singles += 1
            if parcel.queue is None or self._any_order:
                self._start(self._one(parcel))
                continue
            lane = self._lanes.get(parcel.queue)
            if lane is None:
                lane = self._lanes[parcel.queue] = deque()
                self._start(self._lane(parcel.queue, lane))
            lane.append(parcel)

    async def finish(self) -> None:
        while self._tasks and self._error is None:
            await self._wait()
        self._check()

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.pool.close()

    async def _room(self, parcel: SendRequest) -> None:
        brokers = max(len(self._routes.brokers), 1)
        most = SINGLES_MAX if parcel.properties is not None else BATCHES_MAX * brokers
        if parcel.queue is not None and parcel.properties is None:
            most += len(self._lanes)  # each lane sends one at a time
        while self._error is None and self._under_way(parcel) >= most:
            await self._wait()
        self._check()

    def _under_way(self, parcel: SendRequest) -> int:
        return self._batches if parcel.properties is None else self._singles

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def _lane(self, queue: MessageQueue, lane: deque[SendRequest]) -> None:
        while lane:
            await self._one(lane.popleft())
        del self._lanes[queue]

    async def _one(self, parcel: SendRequest) -> None:
        self._taken(await self.delivery.send(parcel))
        if parcel.properties is None:
            self._batches -= 1
        else:
            self._singles -= 1
        self._moved.set()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._error:
            self._error = error
        self._moved.set()

    async def _wait(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error


def open_connections(options: SinkOptions) -> tuple[ChannelPool, Routes]:
    """Connections and routes of a cluster, signed and encrypted as the environment says."""
    config = ClientConfig()
    pool = ChannelPool(security=connection_security(config, os.environ))
    return pool, Routes(NameServers(pool, options.namesrv, config), config)
