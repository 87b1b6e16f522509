"""Stop signals: SIGTERM and Ctrl-C stop consumers in good order, unless the program handles them.

The first signal stops every open consumer: running handlers may end, no new one starts. After
SIGTERM the program continues to its own end. Ctrl-C raises KeyboardInterrupt where messages are
read, which ends a program that does not catch it with status 130 and without a traceback. A second
signal ends the process at once.

Consumers may be open in any thread. A main thread that reads no messages is ended as the signal
would have done by default, once the consumers of other threads are closed.
"""

import asyncio
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import sleep
from types import FrameType, TracebackType
from typing import Any, Final

from roquet.log_records import logger
from roquet.net.clock import SYSTEM_CLOCK

log = logger(__name__)

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

CLOSED_POLL_S: Final = 0.01
"""Pause between two looks whether the consumers of other threads are closed."""

INTERRUPTED: Final = 130
"""Exit status after Ctrl-C, by the shells' convention."""


class MainThread:
    """Runs functions in the main thread, the only one that may install signal handlers.

    A thread that waits, as in `join`, runs nothing but signal handlers. So there is one for SIGURG,
    which is ignored by default.
    """

    def __init__(self) -> None:
        self._todo: deque[Callable[[], object]] = deque()
        self._wakeup: signal.Signals | None = None
        """None where a signal cannot wake the main thread."""
        if (wakeup := getattr(signal, "SIGURG", None)) is not None and is_main_thread():
            with suppress(ValueError):  # a subinterpreter has no signals
                if signal.getsignal(wakeup) is signal.SIG_DFL:
                    signal.signal(wakeup, self._work)
                    self._wakeup = wakeup

    @property
    def is_reachable(self) -> bool:
        """Whether a function that this thread passes to `run` will run."""
        return self._wakeup is not None or is_main_thread()

    def run(self, function: Callable[[], object]) -> None:
        """Run a function in the main thread, now or soon; never where no signal can wake it."""
        if is_main_thread():
            function()
        elif self._wakeup is not None and (main := threading.main_thread().ident) is not None:
            self._todo.append(function)
            signal.pthread_kill(main, self._wakeup)

    def forget(self) -> None:
        """Drop what is left to do: a forked child is not to do it."""
        self._todo.clear()

    def _work(self, _number: int, _frame: FrameType | None) -> None:
        while self._todo:
            self._todo.popleft()()


class StopSignals:
    """One consumer's signal handling, between `open` and `close`.

    `stop` is called in the main thread, between any two bytecodes. `end` is called after it if the
    main thread, or the main task, does not read messages and so would not notice.
    """

    def __init__(
        self,
        stop: Callable[[], object],
        is_main: Callable[[], bool],
        end: Callable[[], object],
        close_timeout_ms: int = 0,
    ) -> None:
        self.number: int | None = None
        """The signal received; None so far."""
        self.is_read_here = False
        """Whether messages are read in the main thread or the main task."""
        self.is_finished = False
        self.is_in_main_thread = True
        self.close_timeout_ms = close_timeout_ms
        self._stop = stop
        self._is_main = is_main
        self._end = end
        self._was_empty = False

    def open(self) -> None:
        """Start to handle signals."""
        self.is_in_main_thread = is_main_thread()
        PROCESS.add(self)

    def close(self) -> None:
        """Stop handling signals."""
        PROCESS.remove(self)

    def receive(self, number: int) -> None:
        """Stop the consumer; RuntimeError when its event loop is closed."""
        self.number = number
        self._stop()

    def end(self) -> None:
        """End the program, unless a read will do so."""
        if not self.is_read_here:
            self._end()

    def note_reader(self) -> None:
        """Note that messages are read here."""
        self.is_read_here = self.is_read_here or self._is_main()

    def raise_if_interrupted(self) -> None:
        """Raise KeyboardInterrupt when Ctrl-C was the reason that the messages ended."""
        if self.number == signal.SIGINT and self._is_main():
            raise KeyboardInterrupt

    def note_empty_read(self) -> None:
        """End a program that reads in a loop, when a signal is why a read returned nothing.

        After SIGTERM the first read returns nothing, as from a closed consumer, and the next one
        raises.
        """
        if self.number is None:
            return
        self.raise_if_interrupted()
        if self._was_empty:
            raise SystemExit(0) if self._is_main() else asyncio.CancelledError
        self._was_empty = True

    def finish(self) -> None:
        """Note that no handler runs any more; the last consumer to do so ends the main task."""
        self.is_finished = True
        PROCESS.finish()


class ProcessSignals:
    """The signal handlers of this process, installed while a consumer is open."""

    def __init__(self) -> None:
        self._open: list[StopSignals] = []
        self._before: dict[int, Any] = {}
        self._received: int | None = None
        self._interrupt: Any = None
        """The former handler of Ctrl-C."""
        self._is_waiting = False
        """Whether the main thread waits for the others, to end then."""

    def add(self, watch: StopSignals) -> None:
        """Add a consumer; handlers that the program has installed stay.

        A signal that is about to end the program stops a consumer that a thread opens now, too.
        """
        if is_interactive():
            return
        self._open.append(watch)
        is_ending = self._is_waiting or not threading.main_thread().is_alive()
        if is_ending and (number := self._received) is not None:
            watch.receive(number)
        if not MAIN_THREAD.is_reachable:
            log.warning(
                "SIGTERM and Ctrl-C will not stop this consumer in good order: import roquet.client"
                " in the main thread, before anything else handles SIGURG, or close it yourself"
            )
        MAIN_THREAD.run(self._install)

    def _install(self) -> None:
        if not self._open:  # it was closed before the main thread came here
            return
        if len(self._open) > 1 and self._received is not None:  # one may have been dropped unclosed
            return
        self._received = None
        for number in STOP_SIGNALS:
            if _is_default(before := signal.getsignal(number)):
                self._before[number] = before
                signal.signal(number, self._handle)

    def remove(self, watch: StopSignals) -> None:
        """Remove a consumer; the last one restores the former handlers."""
        if watch in self._open:
            self._open.remove(watch)
            if not self._open:
                MAIN_THREAD.run(self._restore_if_unused)

    def _restore_if_unused(self) -> None:
        if not self._open:
            self._restore()

    def forget(self) -> None:
        """Remove all consumers: in a forked child signals have their former effect."""
        self._open.clear()
        MAIN_THREAD.forget()

    def main_task(self) -> "asyncio.Task[Any] | None":
        """The task that `asyncio.run` runs; None under other runners."""
        before = self._before.get(signal.SIGINT)
        return before.keywords.get("main_task") if isinstance(before, partial) else None

    def finish(self) -> None:
        """Interrupt the main task once no consumer has running handlers."""
        if self._interrupt is not None and all(
            consumer.is_finished or not consumer.is_in_main_thread for consumer in self._open
        ):
            interrupt, self._interrupt = self._interrupt, None
            interrupt(signal.SIGINT, None)

    def end_main_thread(self) -> None:
        """End the main thread, unless it reads messages or has ended; called in it."""
        is_over = not threading.main_thread().is_alive()  # it waits for the other threads
        if is_over or any(consumer.is_read_here for consumer in self._open):
            return
        if isinstance(interrupt := self._interrupt, partial):  # cancels the main task
            self._interrupt = None
            interrupt(signal.SIGINT, None)
            return
        self._wait_for_threads()
        if self._received == signal.SIGTERM:
            raise SystemExit(0)
        raise KeyboardInterrupt

    def _wait_for_threads(self) -> None:
        """Wait until the consumers of other threads are closed.

        At its end Python 3.11 does not wait for a thread whose `join` was ended by an exception.
        """
        began_ms = SYSTEM_CLOCK.monotonic_ms()
        self._is_waiting = True
        try:
            while any(
                not consumer.is_in_main_thread
                and SYSTEM_CLOCK.monotonic_ms() - began_ms < consumer.close_timeout_ms
                for consumer in self._open
            ):
                sleep(CLOSED_POLL_S)
        finally:
            self._is_waiting = False

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        stopped: list[StopSignals] = []
        for watch in tuple(self._open):
            with suppress(RuntimeError):  # its loop is closed, but the consumer is not
                watch.receive(number)
                stopped.append(watch)
        if not stopped:
            self._restore()
            signal.raise_signal(number)
            return
        for handled_number in self._before:
            signal.signal(handled_number, signal.SIG_DFL)
        self._received = number
        self._interrupt = self._before.get(signal.SIGINT)
        if sys.excepthook != self._show:
            self._show_others, sys.excepthook = sys.excepthook, self._show
        for watch in stopped:
            watch.end()

    def _show(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """Show an uncaught error; that of a stop signal needs no traceback."""
        if isinstance(error, KeyboardInterrupt):
            raise SystemExit(0 if self._received == signal.SIGTERM else INTERRUPTED)
        self._show_others(kind, error, trace)

    def _restore(self) -> None:
        for number, before in self._before.items():
            if signal.getsignal(number) in {self._handle, signal.SIG_DFL}:
                signal.signal(number, before)
        self._before.clear()


PROCESS: Final = ProcessSignals()
"""Signal handlers are global to the process."""


def is_main_task() -> bool:
    """Whether this is the task that `asyncio.run` runs in the main thread, or that is unknown."""
    main = PROCESS.main_task()
    return is_main_thread() and (main is None or asyncio.current_task() is main)


def is_main_thread() -> bool:
    """Whether this is the main thread, where signals are handled."""
    return threading.current_thread() is threading.main_thread()


def is_interactive() -> bool:
    """Whether this is an interactive interpreter, where Ctrl-C ends only a statement."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def _is_default(handler: object) -> bool:
    """Whether the handler is that of Python or of `asyncio.run`."""
    if isinstance(handler, partial):
        return isinstance(getattr(handler.func, "__self__", None), asyncio.Runner)
    return handler in {signal.SIG_DFL, signal.default_int_handler}


MAIN_THREAD: Final = MainThread()

if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=PROCESS.forget)
