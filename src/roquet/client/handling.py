"""Handling: messages to a user's function, so many at one time, and the outcome back.

An `async def` runs on the event loop; a plain `def` in threads, which are handed their messages
and report the outcomes in bulk: a hop between threads for each message would cost more than most
handlers do.
"""

import asyncio
import inspect
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import Final, Protocol, TypeAlias, cast

from roquet.client.background import stop
from roquet.client.inbox import Inbox
from roquet.client.received import ReceivedMessage
from roquet.model.errors import UsageError

log = logging.getLogger(__name__)

TURN: Final = 64
"""Messages that one worker handles before others on the event loop have their turn."""

AHEAD: Final = 4
"""Messages for each thread that are handed over in advance."""

AsyncHandler: TypeAlias = Callable[[ReceivedMessage], Awaitable[object]]
Handler: TypeAlias = AsyncHandler | Callable[[ReceivedMessage], object]
"""What a user does with a message: returning means that it is handled, raising that it is not."""


class Workers(Protocol):
    """Those who call the handler."""

    async def run(self) -> None:
        """Work until the inbox is closed and the last handler has ended."""


def workers(handler: Handler, inbox: Inbox, count: int) -> Workers:
    """The right kind for this handler."""
    if not callable(handler):
        raise UsageError(f"a handler is a function, not {type(handler).__name__}")
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
        return Coroutines(cast("AsyncHandler", handler), inbox, count)
    return Threads(handler, inbox, count)


class Coroutines:
    """So many coroutines that take from the inbox."""

    def __init__(self, handler: AsyncHandler, inbox: Inbox, count: int) -> None:
        self._handler = handler
        self._inbox = inbox
        self._count = count

    async def run(self) -> None:
        """Work until the inbox is closed and the last handler has ended."""
        tasks = [asyncio.create_task(self._work(), name=f"handler {n}") for n in range(self._count)]
        try:
            await asyncio.gather(*tasks)
        finally:
            await stop(*tasks)

    async def _work(self) -> None:
        handler, inbox = self._handler, self._inbox
        turn = TURN
        while (message := inbox.pop() or await inbox.take()) is not None:
            try:
                await handler(message)
            except Exception as error:
                failed(message, error)
            except asyncio.CancelledError as error:
                if not _is_cancelled():  # something that the handler waited for was
                    failed(message, error)
                    continue
                inbox.put_first(message)
                raise
            else:
                message.settle()
            turn -= 1
            if not turn:
                turn = TURN
                await asyncio.sleep(0)


class Threads:
    """So many threads; the event loop hands messages to them and hears how it went."""

    def __init__(
        self, handler: Callable[[ReceivedMessage], object], inbox: Inbox, count: int
    ) -> None:
        self._handler = handler
        self._inbox = inbox
        self._count = count
        self._todo: SimpleQueue[ReceivedMessage | None] = SimpleQueue()
        self._done: deque[tuple[ReceivedMessage, BaseException | None]] = deque()
        self._is_reported = False
        self._out = 0
        self._back = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Work until the inbox is closed and the last handler has ended."""
        threads = [
            threading.Thread(target=self._work, name=f"roquet-handler-{n}", daemon=True)
            for n in range(self._count)
        ]
        for thread in threads:
            thread.start()
        try:
            while (message := self._inbox.pop() or await self._inbox.take()) is not None:
                self._out += 1
                self._todo.put(message)
                await self._until(self._count * AHEAD)
            await self._until(0)
        finally:
            for _ in threads:
                self._todo.put(None)

    async def _until(self, count: int) -> None:
        while self._out > count:
            self._back.clear()
            await self._back.wait()

    def _work(self) -> None:
        while (message := self._todo.get()) is not None:
            if self._report(message, self._outcome(message)):
                return

    def _outcome(self, message: ReceivedMessage) -> BaseException | None:
        """What went wrong, if anything did."""
        if not message.is_held:
            return None
        try:
            answer = self._handler(message)
        except BaseException as error:
            return error
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()
            return UsageError("the handler returned a coroutine: make it an `async def`")
        return None

    def _report(self, message: ReceivedMessage, error: BaseException | None) -> bool:
        """Tell the event loop; whether it has gone."""
        self._done.append((message, error))
        if not self._is_reported:
            self._is_reported = True
            try:
                self._loop.call_soon_threadsafe(self._hear)
            except RuntimeError:
                return True
        return False

    def _hear(self) -> None:
        self._is_reported = False  # before looking: what comes from now on is reported again
        while self._done:
            message, error = self._done.popleft()
            self._out -= 1
            if error is None:
                message.settle()
            else:
                failed(message, error)
        self._back.set()


def _is_cancelled() -> bool:
    """Whether it is us who shall end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def failed(message: ReceivedMessage, error: BaseException) -> None:
    """A handler raised: say so, and have the message come again."""
    log.warning(
        "the handler failed on %r (try %d), the message comes again: %r",
        message, message.tries + 1, error,
        exc_info=error if message.tries == 0 else None,
    )  # fmt: skip
    message.fail()
