"""Flush: makes stored messages durable, and shows them then; one completes all waiting sends.

    append ──▶ end ............ flushed ──▶ watermark ──▶ waiting sends
                     one flush, in a thread

With sync flush every send waits, and a flush begins as soon as one does; sends that come while it
runs are completed by the next flush. Otherwise the log is flushed at intervals.

Once the disk has failed all waiting sends fail, and what was not durable never becomes so.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from roquet.broker.log.long_polling import LongPolling
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.log_records import logger
from roquet.metrics.counts import Histogram
from roquet.metrics.roquet_metrics import SHORT_S
from roquet.model.errors import StoreFailed
from roquet.net.async_watermark import AsyncWatermark
from roquet.net.clock import Clock
from roquet.store.store import Store

log = logger(__name__)

CHECKPOINT_MS: Final = 5_000
"""Ms between two checkpoints (flushes of everything); recovery reads the log after the last one."""

CHECKPOINT_MS_MAX: Final = 60_000
"""Longest time between two checkpoints in ms, as in the genuine broker: reading the log of that
time again takes a few seconds."""

FILES_A_SECOND: Final = 400
"""Files that a checkpoint may flush for each second since the last one: with 40,000 queues in use,
every message would otherwise cost a flush, which costs as much as the message."""

FILES_AT_ONCE: Final = 64
"""Files that are written before others have their turn: about a millisecond."""

PAUSE_MS: Final = 2
"""Ms of pause between two such groups of files."""

THREADS: Final = 2
"""Threads: a flush that a send waits for must not queue behind that of a thousand queue files."""

FAILURE_PAUSE_MS: Final = 1_000
"""Ms of pause after a failed flush."""


class Flush:
    """Flushes the log, on demand and at intervals."""

    def __init__(self, store: Store, settings: RuntimeSettings, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._mark = AsyncWatermark(store.flushed_position, clock=clock)
        self._requested = asyncio.Event()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="roquet-flush")
        self._checkpointing = asyncio.Lock()
        self._complete_position = store.end_position
        self._complete_ms = clock.monotonic_ms()
        self.times_s = Histogram(SHORT_S)
        """Seconds of flushes of the log, for metrics."""
        self.on_flushed: list[Callable[[], object]] = []
        """Called after each flush of the log."""

    def request(self) -> None:
        """Let a flush begin soon."""
        self._requested.set()

    async def durable(self, position: int, deadline_ms: int | None = None) -> bool:
        """Wait until the log is durable up to a position; False when the deadline came first.

        The deadline is a monotonic time; None allows `sync_flush_timeout` from now on. Raises
        StoreFailed once the disk has failed: whether the message survives is unknown.
        """
        if self._mark.value >= position:
            return True
        self._check()
        self._requested.set()
        if deadline_ms is None:
            deadline_ms = self._clock.monotonic_ms() + self._settings.config.sync_flush_timeout
        if await self._mark.reach(position, deadline_ms):
            return True
        self._check()
        return False

    def _check(self) -> None:
        if (failure := self._store.failure) is not None:
            raise StoreFailed(*failure.args)

    async def serve(self) -> None:
        """Flush whenever a send waits, forever."""
        while True:
            await self._requested.wait()
            self._requested.clear()
            try:
                await self.step()
            except StoreFailed:  # the store has logged it
                self._mark.release()
            except Exception:
                log.exception("the log could not be flushed; it is tried again")
                await self._clock.sleep(FAILURE_PAUSE_MS)
                self._requested.set()

    async def step(self, _now_ms: int = 0) -> None:
        """Flush the log, if it has grown."""
        try:
            if self._store.flushed_position < self._store.end_position:
                loop, begun_ms = asyncio.get_running_loop(), self._clock.monotonic_ms()
                await loop.run_in_executor(self._threads, self._store.flush_log)
                self.times_s.observe((self._clock.monotonic_ms() - begun_ms) / 1000)
        finally:
            self._advance()

    def _advance(self) -> None:
        self._mark.advance(self._store.flushed_position)
        for listener in self.on_flushed:
            listener()

    async def checkpoint(self, now_ms: int, *, at_once: bool = False) -> None:
        """Flush everything and write a checkpoint, at which recovery begins.

        With very many files to flush it is postponed, unless `at_once`. Checkpoints are taken one
        after the other: an older one must not replace a newer one that retention has relied on.
        """
        async with self._checkpointing:
            await self._take_checkpoint(now_ms, at_once=at_once)

    async def _take_checkpoint(self, now_ms: int, *, at_once: bool) -> None:
        end, run = self._store.end_position, asyncio.get_running_loop().run_in_executor
        if end == self._complete_position:
            return
        if not at_once and self._is_too_soon():
            await run(self._threads, self._store.release_task())
            return
        self._complete_ms = self._clock.monotonic_ms()
        flush_task = self._store.flush_task(now_ms)
        while flush_task.write(FILES_AT_ONCE):
            await self._clock.sleep(PAUSE_MS)
        await run(self._threads, flush_task)
        self._complete_position = end
        self._advance()

    def _is_too_soon(self) -> bool:
        """Whether so many files are to be flushed that the checkpoint is postponed."""
        since_ms = self._clock.monotonic_ms() - self._complete_ms
        wanted_ms = self._store.dirty_files * 1_000 // FILES_A_SECOND
        return since_ms < min(wanted_ms, CHECKPOINT_MS_MAX)

    def follow_cut(self) -> None:
        """Go back to where the log is durable now, after a cut: it may have been further."""
        self._mark.release()
        self._mark = AsyncWatermark(self._store.flushed_position, clock=self._clock)

    def close(self) -> None:
        """End the threads after their last flush."""
        self._threads.shutdown()


class ConfirmedView:
    """View of a log for consumers, by what is confirmed; it also wakes those who wait for messages.

    Under a controller it hides what is not on the disk, and what other members of the set lack.
    """

    def __init__(self, store: Store, arrivals: LongPolling) -> None:
        self._store = store
        self._arrivals = arrivals
        self.position: int | None = None
        """Consumers see messages that end before it; None: all."""

    def show(self, position: int | None) -> None:
        """Show the messages that end before a position, or all of them."""
        if position is not None:
            self._arrivals.hold(self._dispatched)
        self.position = position
        self._store.set_confirmed(position)
        self._arrivals.show(position)

    def _dispatched(self) -> int:
        return self._store.raw.dispatched

    def cut(self) -> None:
        """Wake those who wait: the log was cut, and queues may end before what they wait for."""
        self._arrivals.forget_hidden()
        self._arrivals.look_again(self._store.topics())


class FlushedView(ConfirmedView):
    """View of a log for consumers, by the setting `sync_flush`, where roles are fixed.

        append ──▶ hidden, and a flush is asked for ──▶ on the disk ──▶ shown: waiting pulls wake

    A message that is read before it is on the disk may go with the power of the machine, and
    another one gets its offset. Source: Apache RocketMQ 5.5.0, where dispatch stops at the flushed
    position with SYNC_FLUSH, on a replica as well.
    """

    def __init__(
        self, store: Store, arrivals: LongPolling, flush: Flush, config: BrokerConfig
    ) -> None:
        """Show what is stored already, which is brought to the disk before. Raises StoreFailed.

        A process that was killed leaves messages that are in memory alone.
        """
        super().__init__(store, arrivals)
        self._flush = flush
        self._shown: int | None = None
        """Consumers have seen messages in front of it: they stay visible. None: they see all."""
        if config.sync_flush:
            self._store.flush_log()
        self.configure(config)

    def configure(self, config: BrokerConfig) -> None:
        """Hide what is stored from now on until it is on the disk, or show all."""
        if not config.sync_flush and self._shown is not None:
            self._shown = None
            self.show(None)
        elif config.sync_flush and self._shown is None:
            self._shown = self._dispatched()
            self._flush.request()
            self.show_flushed()

    def show_flushed(self) -> None:
        """Show what is on the disk by now; to be called after each flush."""
        if self._shown is not None:
            self.show(max(self._shown, self._store.flushed_position))
