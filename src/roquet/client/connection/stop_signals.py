"""Signals: SIGTERM and Ctrl-C end consumers in good order, where nobody else handles them.

The first signal stops every open consumer: handlers at work may end, nothing new is begun. Then
SIGTERM leaves the program to its own end, and Ctrl-C raises KeyboardInterrupt where messages are
read, which ends a program that does not catch it with 130 and without a traceback. A second signal
ends the process at once.
"""

import asyncio
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType, TracebackType
from typing import Any, Final

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

INTERRUPTED: Final = 130
"""What shells call the end by Ctrl-C."""


class StopSignals:
    """The signal that a consumer is told of between `open` and `close`, if any.

    `stop` is called in the main thread, between any two of its steps. `end` is called after it when
    the main thread, or the main task, reads no messages by itself, and so would not notice.
    """

    def __init__(
        self, stop: Callable[[], object], is_main: Callable[[], bool], end: Callable[[], object]
    ) -> None:
        self.number: int | None = None
        """The signal that came; None while none has."""
        self.is_read_here = False
        """Whether the main thread, or the main task, is where messages are read."""
        self.is_finished = False
        self._stop = stop
        self._is_main = is_main
        self._end = end
        self._was_empty = False

    def open(self) -> None:
        """Hear of signals from now on."""
        _PROCESS.add(self)

    def close(self) -> None:
        """Hear of no more signals."""
        _PROCESS.remove(self)

    def receive(self, number: int) -> None:
        """Stop; RuntimeError when the consumer's event loop has gone."""
        self.number = number
        self._stop()

    def end(self) -> None:
        """End the program where no read does it."""
        if not self.is_read_here:
            self._end()

    def reading(self) -> None:
        """Note where messages are read."""
        self.is_read_here = self.is_read_here or self._is_main()

    def ended(self) -> None:
        """Raise KeyboardInterrupt when the messages have ended because of Ctrl-C."""
        if self.number == signal.SIGINT and self._is_main():
            raise KeyboardInterrupt

    def empty(self) -> None:
        """End a program that reads again and again, when a signal is why a read gave nothing.

        After SIGTERM one read gives nothing, as from a closed consumer, and the next one raises.
        """
        if self.number is None:
            return
        self.ended()
        if self._was_empty:
            raise SystemExit(0) if self._is_main() else asyncio.CancelledError
        self._was_empty = True

    def finish(self) -> None:
        """Say that no handler is at work any more; the last consumer's word ends the main task."""
        self.is_finished = True
        _PROCESS.finish()


class _Process:
    """The signal handlers of this process, which are ours while a consumer is open."""

    def __init__(self) -> None:
        self._open: list[StopSignals] = []
        self._before: dict[int, Any] = {}
        self._received: int | None = None
        self._interrupt: Any = None
        """Does what Ctrl-C did before."""

    def add(self, watch: StopSignals) -> None:
        """One more to tell; handlers that others have set stay."""
        if threading.current_thread() is not threading.main_thread() or is_interactive():
            return
        if not self._open or self._received is None:  # a consumer may be left that nobody closed
            for number in STOP_SIGNALS:
                if _is_default(before := signal.getsignal(number)):
                    self._before[number] = before
                    signal.signal(number, self._handle)
        self._open.append(watch)

    def remove(self, watch: StopSignals) -> None:
        """One fewer; after the last one all is as it was before."""
        if watch not in self._open:
            return
        self._open.remove(watch)
        if not self._open and threading.current_thread() is threading.main_thread():
            self._give_back()

    def main_task(self) -> "asyncio.Task[Any] | None":
        """The task that `asyncio.run` was given; None where that is not how the loop runs."""
        before = self._before.get(signal.SIGINT)
        return before.keywords.get("main_task") if isinstance(before, partial) else None

    def finish(self) -> None:
        """Interrupt the main task once no consumer's handlers are at work."""
        if self._interrupt is not None and all(one.is_finished for one in self._open):
            interrupt, self._interrupt = self._interrupt, None
            interrupt(signal.SIGINT, None)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        told: list[StopSignals] = []
        for watch in tuple(self._open):
            with suppress(RuntimeError):  # its loop has gone, and nobody has closed it
                watch.receive(number)
                told.append(watch)
        if not told:
            self._give_back()
            signal.raise_signal(number)
            return
        for taken in self._before:
            signal.signal(taken, signal.SIG_DFL)
        self._received = number
        self._interrupt = self._before.get(signal.SIGINT)
        if sys.excepthook != self._show:
            self._show_others, sys.excepthook = sys.excepthook, self._show
        for watch in told:
            watch.end()

    def _show(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """Show an error that ends the program; that of a signal is not worth a traceback."""
        if isinstance(error, KeyboardInterrupt):
            raise SystemExit(0 if self._received == signal.SIGTERM else INTERRUPTED)
        self._show_others(kind, error, trace)

    def _give_back(self) -> None:
        for number, before in self._before.items():
            if signal.getsignal(number) in {self._handle, signal.SIG_DFL}:
                signal.signal(number, before)
        self._before.clear()


_PROCESS: Final = _Process()
"""Signals are the whole process's, and so is what handles them."""


def is_main_task() -> bool:
    """Whether this is the task that `asyncio.run` was given, as far as that is known."""
    main = _PROCESS.main_task()
    return main is None or asyncio.current_task() is main


def is_main_thread() -> bool:
    """Whether this is the thread in which signals are handled."""
    return threading.current_thread() is threading.main_thread()


def is_interactive() -> bool:
    """Whether somebody types: there Ctrl-C ends a statement, not the process."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def _is_default(handler: object) -> bool:
    """Whether nobody but Python, or `asyncio.run`, has said what a signal does."""
    if isinstance(handler, partial):
        return isinstance(getattr(handler.func, "__self__", None), asyncio.Runner)
    return handler in {signal.SIG_DFL, signal.default_int_handler}
