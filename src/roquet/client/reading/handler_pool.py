"""Handler pool: calls a user's function with messages, a limited number at a time.

An `async def` runs on the event loop. A plain `def` runs in threads, which get their messages in
advance and report results in bulk: a switch between threads for each message would cost more than
most handlers. Each call has the context variables of the caller of `run`, whatever others have set.
Workers are polled for handlers that hang, which costs the handlers nothing.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeAlias, cast

from roquet.client.arguments import is_coroutine_function
from roquet.client.config import ConsumerConfig
from roquet.client.connection.background import cancel_and_wait
from roquet.client.reading.handler_result import (
    ALREADY_SETTLED,
    SKIPPED,
    HandlerError,
    HandlerResults,
    fail_message,
)
from roquet.client.reading.inbox import Inbox
from roquet.client.reading.message import M, ReceivedMessage, retry_later, settle
from roquet.log_records import logger

log = logger(__name__)

YIELD_AFTER: Final = 64
"""Messages that one worker handles before it yields to others on the event loop."""

QUEUED_PER_THREAD: Final = 4
"""Messages that wait for each thread."""

HUNG_THREADS_MAX: Final = 64
"""Limit of hung threads that are replaced. Each costs memory, and a handler that hangs for so many
messages will hang for the next one too."""

TIMEOUT_DELAY_MS: Final = 10_000
"""Pause before a message whose handler timed out comes again: delay level 3, as in Java."""

CHECKS_PER_LIMIT: Final = 15
"""Polls within one time limit, which set its precision."""

AsyncMessageHandler: TypeAlias = Callable[[M], Awaitable[object]]
MessageHandler: TypeAlias = Callable[[M], object]
"""A user's function of a message, as `MessageHandler[ReceivedMessage]`: an `async def`, or a plain
`def`, which runs in threads. A return acknowledges the message, an exception fails it."""


class WorkerSlot:
    """One worker, and the message that it handles."""

    __slots__ = ("is_left", "message", "seen_ms", "seen_with", "task")

    def __init__(self) -> None:
        self.message: ReceivedMessage[Any] | None = None
        self.is_left = False
        """Whether its handler timed out and its message was failed."""
        self.seen_with: ReceivedMessage[Any] | None = None
        self.seen_ms = 0
        self.task: asyncio.Task[None] | None = None

    def age(self, now_ms: int) -> tuple[ReceivedMessage[Any] | None, int]:
        """Return the worker's message, and for how many ms it has been seen with it.

        Read once: a handler in a thread may end meanwhile and start with another message.
        """
        message = self.message
        if message is not self.seen_with:
            self.seen_with, self.seen_ms = message, now_ms
        return message, now_ms - self.seen_ms

    def late(self, now_ms: int, limit_ms: int) -> ReceivedMessage | None:
        """Return the message that the worker has handled for too long; None if there is none."""
        message, age_ms = self.age(now_ms)
        return message if age_ms >= limit_ms else None


Ages: TypeAlias = Sequence[tuple[ReceivedMessage | None, int]]
"""The message of each worker, None if it has none, and for how many ms it has been seen with it."""


async def watch_timeouts(
    slots: Sequence[WorkerSlot],
    late: Callable[[WorkerSlot, ReceivedMessage[Any]], None],
    config: ConsumerConfig,
) -> None:
    """Poll workers, and call `late` for messages that are handled for too long.

    Ordered handlers have no limit, as in Java: the next message would have to wait anyway.
    """
    limit_ms, clock = config.handler_limit_ms, config.clock
    while not config.ordered:
        await clock.sleep(max(limit_ms // CHECKS_PER_LIMIT, 1))
        now_ms = clock.monotonic_ms()
        for slot in list(slots):
            message = None if slot.is_left else slot.late(now_ms, limit_ms)
            if message is not None:
                log.warning(
                    "the handler is at work on %r for more than %d ms, which counts as a failure",
                    message,
                    limit_ms,
                )
                late(slot, message)


class CoroutinePool(Generic[M]):
    """A pool of coroutines that take messages from the inbox."""

    def __init__(
        self, handler: AsyncMessageHandler[M], inbox: Inbox[M], config: ConsumerConfig
    ) -> None:
        self._handler = handler
        self._inbox = inbox
        self._config = config
        self._slots = [WorkerSlot() for _ in range(config.concurrency)]
        self._results = HandlerResults(inbox.abort)
        self._context = copy_context()

    def ages(self, now_ms: int) -> Ages:
        """The messages that are handled now."""
        return [slot.age(now_ms) for slot in self._slots]

    async def run(self) -> None:
        """Work until the inbox is closed and the last handler has ended."""
        watching = asyncio.create_task(watch_timeouts(self._slots, self.time_out, self._config))
        tasks = [
            asyncio.create_task(self._keep_working(slot), name=f"handler {n}")
            for n, slot in enumerate(self._slots)
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            await cancel_and_wait(watching, *tasks)

    async def _keep_working(self, slot: WorkerSlot) -> None:
        """Work in a new context whenever a handler has changed its own."""
        create, name = asyncio.get_running_loop().create_task, f"worker of {self._handler!r:.100}"
        while await create(self._work(slot), name=name, context=self._context.copy()):
            pass

    async def _work(self, slot: WorkerSlot) -> bool:
        """Work until a handler has changed its context variables; False at the end."""
        handler, inbox, context = self._handler, self._inbox, self._context
        slot.task = asyncio.current_task()
        turn = YIELD_AFTER
        while (message := inbox.pop() or await self._take(slot)) is not None:
            slot.message = message
            try:
                result = await handler(message)
            except Exception as error:
                fail_message(message, error)
            except asyncio.CancelledError as error:
                if not self._survives_cancellation(slot, message, error):
                    raise
            else:
                settle(message) if result is None else self._results.settle(message, result)
            turn -= 1
            if not turn or slot.is_left:
                turn = YIELD_AFTER
                await _yield_to_others(slot)
            if copy_context() != context:
                return True
        return False

    async def _take(self, slot: WorkerSlot) -> M | None:
        slot.message = None  # only needed while idle: a busy worker overwrites it
        return await self._inbox.take()

    def time_out(self, slot: WorkerSlot, message: ReceivedMessage[Any]) -> None:
        """Cancel a timed-out handler, and let its message come again."""
        retry_later(message, TIMEOUT_DELAY_MS)
        slot.is_left = True
        if slot.task is not None:
            slot.task.cancel()

    def _survives_cancellation(self, slot: WorkerSlot, message: M, error: BaseException) -> bool:
        """Whether only the handler was cancelled, and its worker continues."""
        task = asyncio.current_task()
        cancellations = 0 if task is None else task.cancelling()
        if slot.is_left and cancellations == 1:
            return True
        if cancellations == 0:  # the handler awaited something that was cancelled
            fail_message(message, error)
            return True
        self._inbox.put_back([message])
        return False


async def _yield_to_others(slot: WorkerSlot) -> None:
    """Yield to others; reset a worker whose handler was cancelled."""
    slot.message = None
    if slot.is_left:
        slot.is_left = False
        if slot.task is not None:
            slot.task.uncancel()
    await asyncio.sleep(0)


class ThreadPool(Generic[M]):
    """A pool of threads, which get messages from the event loop and report results to it."""

    def __init__(
        self, handler: Callable[[M], object], inbox: Inbox[M], config: ConsumerConfig
    ) -> None:
        self._handler = handler
        self._inbox = inbox
        self._config = config
        self._count = config.concurrency
        self._slots: list[WorkerSlot] = []
        self._todo: SimpleQueue[M | None] = SimpleQueue()
        self._done: deque[tuple[M, object]] = deque()
        self._is_reported = False
        self._out = 0
        self._late: set[ReceivedMessage[Any]] = set()
        """Messages whose handlers hang, and for which nothing waits any more."""
        self._missing = 0
        """Hung threads that have not been replaced."""
        self._back = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._results = HandlerResults(inbox.abort)
        self._context = copy_context()

    def ages(self, now_ms: int) -> Ages:
        """The messages that are handled now."""
        return [slot.age(now_ms) for slot in self._slots]

    async def run(self) -> None:
        """Work until the inbox is closed and the last handler has ended."""
        watching = asyncio.create_task(watch_timeouts(self._slots, self.time_out, self._config))
        for _ in range(self._count):
            self._start_thread()
        try:
            while (message := self._inbox.pop() or await self._inbox.take()) is not None:
                self._out += 1
                self._todo.put(message)
                if self._out > len(self._slots) * QUEUED_PER_THREAD:
                    await self._wait_until_queued(QUEUED_PER_THREAD)
            self._withdraw()
            await self._wait_until_queued(0)
        finally:
            for _ in range(self._count):
                self._todo.put(None)
            await cancel_and_wait(watching)

    def _withdraw(self) -> None:
        """Take queued messages back from the threads: the inbox is closed."""
        with suppress(Empty):
            while (message := self._todo.get_nowait()) is not None:
                self._out -= 1
                self._inbox.put_first(message)

    def _start_thread(self) -> None:
        slot = WorkerSlot()
        self._slots.append(slot)
        threading.Thread(
            target=self._work, args=(slot,), name=f"roquet-handler-{len(self._slots)}", daemon=True
        ).start()

    async def _wait_until_queued(self, ahead: int) -> None:
        while self._out > len(self._slots) * ahead:
            self._back.clear()
            await self._back.wait()

    def time_out(self, slot: WorkerSlot, message: ReceivedMessage[Any]) -> None:
        """Replace the thread of a timed-out handler: a thread cannot be ended."""
        if slot.message is not message:  # the handler has just ended
            return
        retry_later(message, TIMEOUT_DELAY_MS)
        slot.is_left = True
        self._slots.remove(slot)
        self._late.add(message)
        self._out -= 1
        self._back.set()
        if len(self._late) <= HUNG_THREADS_MAX:
            self._start_thread()
            return
        if not self._missing:
            log.error("%d handlers hang: they are replaced when one of them ends", len(self._late))
        self._missing += 1

    def _work(self, slot: WorkerSlot) -> None:
        while not slot.is_left and (message := self._todo.get()) is not None:
            slot.message = message
            outcome = self._call_handler(message)
            slot.message = None
            if self._report(message, outcome):
                return

    def _call_handler(self, message: M) -> object:
        """Call the handler; return its result, or its exception as a HandlerError."""
        if not message.is_held:
            return SKIPPED
        try:
            return self._context.copy().run(self._handler, message)
        except BaseException as error:
            return HandlerError(error)

    def _report(self, message: M, outcome: object) -> bool:
        """Report a result to the event loop; True when the loop is closed."""
        self._done.append((message, outcome))
        if not self._is_reported:
            self._is_reported = True
            try:
                self._loop.call_soon_threadsafe(self._handle_results)
            except RuntimeError:
                return True
        return False

    def _handle_results(self) -> None:
        self._is_reported = False  # later results are reported again
        while self._done:
            message, outcome = self._done.popleft()
            if self._late and message in self._late:
                self._late.discard(message)
                if self._missing:
                    self._missing -= 1
                    self._start_thread()
                continue
            self._out -= 1
            if outcome is None:
                settle(message)
            elif isinstance(outcome, HandlerError):
                # What the handler has settled itself is on the way to the loop, and goes first.
                self._loop.call_soon(fail_message, message, outcome.error)
            elif outcome is ALREADY_SETTLED:
                self._loop.call_soon(settle, message)  # for the same reason
            elif outcome is SKIPPED:
                retry_later(message)  # of a lost queue: this only ends the try
            else:
                self._results.settle(message, outcome)
        self._back.set()


HandlerPool: TypeAlias = CoroutinePool[M] | ThreadPool[M]


def create_pool(
    handler: MessageHandler[M],
    inbox: Inbox[M],
    config: ConsumerConfig,
    *,
    is_async: bool | None = None,
) -> HandlerPool[M]:
    """Create the pool for this kind of handler; `is_async` None looks at it."""
    if is_coroutine_function(handler) if is_async is None else is_async:
        return CoroutinePool(cast("AsyncMessageHandler[M]", handler), inbox, config)
    return ThreadPool(handler, inbox, config)
