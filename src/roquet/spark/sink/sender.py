"""Sender: sends the requests of one task concurrently; those of an order key's queue in order.

    put ──▶ any queue      ▣ ▣ ▣      concurrently, up to the limits below
        ──▶ ordered queue  ▣▣▣▣ ──▶   one at a time, the next when the broker has stored it

The task's thread makes requests while an event loop in another thread sends them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, Self, TypeVar

from roquet.client.config import ClientConfig
from roquet.client.connection.loop_thread import LoopThread
from roquet.client.connection.routes import NameServers, Routes
from roquet.model.queue import MessageQueue
from roquet.net.clock import SYSTEM_CLOCK
from roquet.net.pool import ChannelPool
from roquet.spark.sink.delivery import DeliveredRequest, RequestDelivery
from roquet.spark.sink.options import SinkOptions
from roquet.spark.sink.send_requests import SendRequest

T = TypeVar("T")

BATCHES_MAX: Final = 2
"""Most batches of a task in flight for each broker: one being stored, and the next."""

SINGLES_MAX: Final = 256
"""Most single messages of a task in flight."""

HANDOVER_COUNT: Final = 64
"""Single messages handed to the event loop at a time."""


class Sender:
    """Sends the requests of one task; a context manager."""

    def __init__(
        self,
        options: SinkOptions,
        turn: int = 0,
        on_stored: Callable[[DeliveredRequest], object] = lambda _: None,
    ) -> None:
        """`on_stored` is called on the loop's thread for each stored request."""
        self._options, self._turn, self._on_stored = options, turn, on_stored
        self._thread = LoopThread.shared()
        self._pinned: dict[str, Sequence[MessageQueue]] = {}
        # Half messages become visible in the order of their commits, not of their sends.
        self._any_order = options.transactional
        self._ordered: dict[MessageQueue, deque[SendRequest]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._batches = self._singles = 0
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.wait(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.wait(self._close())

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues of a topic; fixed for the life of the sender."""
        if topic not in self._pinned:
            self._pinned[topic] = self._thread.wait(self._delivery.queues(topic))
        return self._pinned[topic]

    def put(self, requests: Iterable[SendRequest]) -> None:
        """Start sending; returns when within the limits, and raises an earlier failure."""
        pending: list[SendRequest] = []
        for request in requests:
            pending.append(request)
            if request.properties is None or len(pending) >= HANDOVER_COUNT:
                self._thread.wait(self._put(pending))
                pending = []
        if pending:
            self._thread.wait(self._put(pending))

    def finish(self) -> None:
        """Return when everything is stored; raises an earlier failure."""
        self._thread.wait(self._finish())

    # -- on the event loop -------------------------------------------------------------------

    async def _open(self) -> None:
        self._pool, self._routes = open_connections(self._options)
        self._delivery = RequestDelivery(
            self._routes, self._pool, self._options, SYSTEM_CLOCK, self._turn
        )
        self._changed = asyncio.Event()

    async def _put(self, requests: Iterable[SendRequest]) -> None:
        for request in requests:
            await self._wait_for_capacity(request)
            if request.properties is None:
                self._batches += 1
            else:
                self._singles += 1
            if request.queue is None or self._any_order:
                self._start(self._send(request))
                continue
            waiting = self._ordered.get(request.queue)
            if waiting is None:
                waiting = self._ordered[request.queue] = deque()
                self._start(self._send_in_order(request.queue, waiting))
            waiting.append(request)

    async def _finish(self) -> None:
        while self._tasks and self._error is None:
            await self._wait()
        self._check()

    async def _close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._pool.close()

    async def _wait_for_capacity(self, request: SendRequest) -> None:
        brokers = max(len(self._routes.brokers), 1)
        is_batch = request.properties is None
        most = BATCHES_MAX * brokers if is_batch else SINGLES_MAX
        if request.queue is not None and is_batch:
            most += len(self._ordered)  # each ordered queue sends one at a time
        while self._error is None and (self._batches if is_batch else self._singles) >= most:
            await self._wait()
        self._check()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def _send_in_order(self, queue: MessageQueue, waiting: deque[SendRequest]) -> None:
        while waiting:
            await self._send(waiting.popleft())
        del self._ordered[queue]

    async def _send(self, request: SendRequest) -> None:
        self._on_stored(await self._delivery.send(request))
        if request.properties is None:
            self._batches -= 1
        else:
            self._singles -= 1
        self._changed.set()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._error:
            self._error = error
        self._changed.set()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error


def open_connections(options: SinkOptions) -> tuple[ChannelPool, Routes]:
    """Connections to a cluster and its routes."""
    config = ClientConfig()
    pool = ChannelPool(security=options.access.security())
    return pool, Routes(NameServers(pool, options.namesrv, config), config)
