"""Flush: stored messages become durable; everyone who waits is released by one flush.

    append ──▶ end ............ flushed ──▶ mark ──▶ those who wait for it
                     one flush, in a thread

With sync flush somebody waits for every message, and a flush begins as soon as one does; whoever
comes while it runs is served by the next one. Otherwise the log is flushed at intervals.

Once the disk has failed nobody waits any more: all are told, and what was not durable never is.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from roquet.broker.settings.config import BrokerConfig
from roquet.log_records import logger
from roquet.model.errors import StoreFailed
from roquet.net.async_watermark import AsyncWatermark
from roquet.net.clock import Clock
from roquet.store.store import Store

log = logger(__name__)

CHECKPOINT_MS: Final = 5_000
"""Between two flushes of everything: what is younger is read again after a crash."""

CHECKPOINT_MS_MAX: Final = 60_000
"""Between two flushes of everything at most, as in the genuine broker: reading the log of so long
again takes a few seconds."""

FILES_A_SECOND: Final = 400
"""Files that are flushed for each second between two checkpoints: with 40,000 queues in use, every
message would else cost a flush of its own, and that costs as much as the message."""

FILES_AT_ONCE: Final = 64
"""Files that are written to in one go: about a millisecond."""

PAUSE_MS: Final = 2
"""Between two times that some files are written to: those who wait are served."""

THREADS: Final = 2
"""A flush that somebody waits for must not queue behind that of a thousand queue files."""

FAILURE_PAUSE_MS: Final = 1_000
"""After a flush that failed: the disk is asked again, and not a thousand times a second."""


class Flush:
    """Carries the log to the disk."""

    def __init__(self, store: Store, config: BrokerConfig, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._timeout_ms = config.sync_flush_timeout
        self._mark = AsyncWatermark(store.flushed_position, clock=clock)
        self._asked = asyncio.Event()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="roquet-flush")
        self._checkpointing = asyncio.Lock()
        self._complete_position = store.end_position
        self._complete_ms = clock.monotonic_ms()

    def configure(self, config: BrokerConfig) -> None:
        """The broker's settings have changed."""
        self._timeout_ms = config.sync_flush_timeout

    async def durable(self, position: int) -> bool:
        """Wait until the log is durable up to a position; False when the time for it is over.

        Raises StoreFailed when it will never be: whether the message survives is unknown.
        """
        if self._mark.value >= position:
            return True
        self._check()
        self._asked.set()
        if await self._mark.reach(position, self._clock.monotonic_ms() + self._timeout_ms):
            return True
        self._check()
        return False

    def _check(self) -> None:
        if (failure := self._store.failure) is not None:
            raise StoreFailed(*failure.args)

    async def serve(self) -> None:
        """Flush whenever somebody waits, for ever."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                await self.step()
            except StoreFailed:  # the store has said so
                self._mark.release()
            except Exception:
                log.exception("the log could not be flushed; it is tried again")
                await self._clock.sleep(FAILURE_PAUSE_MS)
                self._asked.set()

    async def step(self, _now_ms: int = 0) -> None:
        """Flush the log, if it holds something new."""
        try:
            if self._store.flushed_position < self._store.end_position:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._threads, self._store.flush_log)
        finally:
            self._mark.advance(self._store.flushed_position)

    async def checkpoint(self, now_ms: int, *, at_once: bool = False) -> None:
        """Flush everything, and note how far: recovery begins there.

        Where very many files are to be flushed it waits for more, unless `at_once`. One is taken
        after the other: an older one must not replace a newer one that retention has gone by.
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
        self._mark.advance(self._store.flushed_position)

    def _is_too_soon(self) -> bool:
        """Whether so many files are to be flushed that it is worth waiting for more."""
        since_ms = self._clock.monotonic_ms() - self._complete_ms
        wanted_ms = self._store.dirty_files * 1_000 // FILES_A_SECOND
        return since_ms < min(wanted_ms, CHECKPOINT_MS_MAX)

    def close(self) -> None:
        """End the threads, when their last flush is done."""
        self._threads.shutdown()
