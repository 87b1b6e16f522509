"""GracefulStop: lets a consumer's handlers end on a signal or a close."""

import asyncio
import signal
from collections.abc import Callable

from roquet.client.config import ConsumerConfig
from roquet.client.connection.background import cancel_and_wait
from roquet.client.connection.loop_thread import LoopThread
from roquet.client.connection.stop_signals import PROCESS, StopSignals, is_main_task
from roquet.log_records import logger

log = logger(__name__)


class GracefulStop:
    """One consumer's running calls of `run`, and the signals that end them."""

    def __init__(self, config: ConsumerConfig, stop_reading: Callable[[], object]) -> None:
        self._config = config
        self._stop_reading = stop_reading
        self.signals = StopSignals(
            self._signalled, is_main_task, self._end_program, config.close_timeout_ms
        )
        self._running: set[asyncio.Task[None]] = set()
        self._late: set[asyncio.Task[None]] = set()
        """Tasks that were abandoned because their handlers took too long."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._finishing: asyncio.Task[None] | None = None
        self._program_end: asyncio.Task[None] | None = None
        self.is_closing = False
        """Whether a close has begun, which no signal may interrupt."""
        self._closed = asyncio.Event()

    def open(self) -> None:
        """Start to handle signals, in the running event loop."""
        self._loop = asyncio.get_running_loop()
        if not LoopThread.is_here():  # the blocking consumer has signals of its own
            self.signals.open()

    def close(self) -> None:
        """Note that the consumer is closed."""
        self._closed.set()
        is_interrupted = self.signals.number == signal.SIGINT and self.signals.is_in_main_thread
        if is_interrupted and not self.signals.is_read_here:
            self.signals.finish()
        self.signals.close()

    async def wait_for(self, task: asyncio.Task[None]) -> None:
        """Wait until handlers have ended, or are abandoned after a signal."""
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        self.signals.note_reader()
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await cancel_and_wait(task)
            if not self._was_left_behind(task):
                raise
        self.signals.raise_if_interrupted()

    def _was_left_behind(self, task: asyncio.Task[None]) -> bool:
        """Whether a signal ended the handlers, and the waiting task was not cancelled itself."""
        current = asyncio.current_task()
        is_cancelled = current is not None and current.cancelling() > 0
        return self._finishing is not None and task in self._late and not is_cancelled

    def finish(self) -> None:
        """Stop reading, and give handlers `close_timeout_ms` to end."""
        if self._finishing is None:
            self._stop_reading()
            self._finishing = asyncio.create_task(self.finish_running(), name="end of handlers")

    async def finish_running(self) -> None:
        """Wait for running handlers, and abandon those that take too long."""
        running = self._running - {asyncio.current_task()}
        if running:
            _, late = await asyncio.wait(running, timeout=self._config.close_timeout_ms / 1000)
            if late:
                log.warning("handlers still at work after %d ms", self._config.close_timeout_ms)
            self._late |= late
            await cancel_and_wait(*late)

    def _signalled(self) -> None:
        """Handle a signal; called between any two bytecodes of the main thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.finish)

    def _end_program(self) -> None:
        """End the main task after the handlers, or the main thread while other threads go on.

        No read in them would notice the signal.
        """
        assert self._loop is not None
        if not self.signals.is_in_main_thread:
            PROCESS.end_main_thread()
            return
        self._loop.call_soon_threadsafe(self._start_program_end)

    def _start_program_end(self) -> None:
        self._program_end = asyncio.create_task(self._end_main_task(), name="end of program")

    async def _end_main_task(self) -> None:
        if self._finishing is not None:
            await self._finishing
        if self.signals.number == signal.SIGTERM:  # most programs end by themselves then
            await asyncio.sleep(self._config.close_timeout_ms / 1000)
        if self.is_closing:
            await self._closed.wait()
        self.signals.finish()
