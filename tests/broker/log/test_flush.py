import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from roquet.broker.log.flush import FILES_AT_ONCE, Flush
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.model.errors import StoreError, StoreFailed
from roquet.net.clock import SYSTEM_CLOCK
from roquet.store.filesystem.mapped_file import MappedFile, MapPool
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.flush import FlushTask
from roquet.store.store import Store
from roquet.testing.clock import in_virtual_time, this_loop


class FakeStore(Store):
    """A store without files, which counts flushes and checkpoints."""

    end_position = 0
    flushed_position = 0
    broken: StoreFailed | None = None

    @property
    def failure(self) -> StoreFailed | None:
        return self.broken

    def break_down(self) -> None:
        """The disk loses what it is given, as Flusher.fail has it."""
        self.broken = StoreFailed("the disk is broken: look at it, then restart")

    def __init__(self) -> None:
        self.flushes = 0
        self.checkpoints = 0
        self.may_finish = Event()
        self.may_finish.set()
        self.failures = 0
        self.dirty = 0
        self.let_go = 0
        self.waiting: list[MappedFile] = []
        self.written: list[MappedFile] = []

    @property
    def dirty_files(self) -> int:
        return self.dirty

    def release_task(self) -> Callable[[], None]:
        def work() -> None:
            self.let_go += 1

        return work

    def flush_log(self) -> int:
        self.flushes += 1
        end = self.end_position
        assert self.may_finish.wait(5)
        if self.broken:
            raise StoreFailed(*self.broken.args)
        if self.failures:
            self.failures -= 1
            raise StoreError("the disk is broken")
        self.flushed_position = end
        return end

    def flush_task(self, now_ms: int) -> FlushTask:
        return FlushTask(self.waiting.copy(), self.written.append, self.note_checkpoint)

    def note_checkpoint(self) -> None:
        self.checkpoints += 1
        self.flushed_position = self.end_position


@pytest.fixture
def disk() -> FakeStore:
    return FakeStore()


@pytest.fixture
def settings() -> RuntimeSettings:
    return RuntimeSettings(BrokerConfig(sync_flush_timeout=2_000))


@pytest.fixture
def flush(disk: FakeStore, settings: RuntimeSettings) -> Iterator[Flush]:
    flush = Flush(disk, settings, SYSTEM_CLOCK)
    yield flush
    flush.close()


async def test_one_flush_releases_everyone_who_waits(disk: FakeStore, flush: Flush) -> None:
    serving = asyncio.create_task(flush.serve())
    disk.end_position = 100
    assert all(await asyncio.gather(*(flush.durable(position) for position in range(1, 101))))
    assert disk.flushes == 1
    serving.cancel()


async def test_a_message_appended_during_a_flush_waits_for_the_next(
    disk: FakeStore, flush: Flush
) -> None:
    serving = asyncio.create_task(flush.serve())
    disk.may_finish.clear()
    disk.end_position = 10
    first = asyncio.create_task(flush.durable(10))
    await asyncio.sleep(0.02)
    disk.end_position = 20
    second = asyncio.create_task(flush.durable(20))
    await asyncio.sleep(0.02)
    assert disk.flushes == 1
    disk.may_finish.set()
    assert await first
    assert await second
    assert disk.flushes == 2
    serving.cancel()


async def test_a_durable_position_does_not_wait(disk: FakeStore, flush: Flush) -> None:
    disk.end_position = 10
    await flush.step()
    assert await flush.durable(10)
    assert disk.flushes == 1


async def test_waiting_for_a_slow_disk_ends_with_the_timeout(disk: FakeStore) -> None:
    flush = Flush(disk, RuntimeSettings(BrokerConfig(sync_flush_timeout=10)), SYSTEM_CLOCK)
    disk.end_position = 10
    assert not await flush.durable(10)
    flush.close()


async def test_nothing_is_flushed_without_new_messages(disk: FakeStore, flush: Flush) -> None:
    await flush.step(0)
    await flush.checkpoint(0)
    assert (disk.flushes, disk.checkpoints) == (0, 0)


async def test_a_checkpoint_flushes_everything_once(disk: FakeStore, flush: Flush) -> None:
    disk.end_position = 10
    await flush.checkpoint(0)
    await flush.checkpoint(0)
    assert disk.checkpoints == 1
    assert await flush.durable(10)


async def test_a_checkpoint_is_taken_once_the_one_before_is_saved(
    disk: FakeStore, flush: Flush, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention may have gone by the newer one: an older one in its place would be refused."""
    steps: list[str] = []

    def slow() -> None:
        steps.append("begun")
        assert disk.may_finish.wait(5)
        steps.append("saved")

    monkeypatch.setattr(disk, "note_checkpoint", slow)
    disk.may_finish.clear()
    disk.end_position = 100
    first = asyncio.create_task(flush.checkpoint(0))
    await asyncio.sleep(0.05)
    disk.end_position = 200
    second = asyncio.create_task(flush.checkpoint(1, at_once=True))
    await asyncio.sleep(0.05)
    disk.may_finish.set()
    await asyncio.gather(first, second)
    assert steps == ["begun", "saved"] * 2


async def test_a_failed_flush_is_said_and_tried_again(
    disk: FakeStore, flush: Flush, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.broker.log.flush.FAILURE_PAUSE_MS", 10)
    serving = asyncio.create_task(flush.serve())
    disk.failures = 1
    disk.end_position = 10
    with caplog.at_level(logging.ERROR):
        assert await flush.durable(10)
    assert "the log could not be flushed" in caplog.text
    serving.cancel()


async def test_a_changed_timeout_counts_from_the_next_message_on(
    disk: FakeStore, flush: Flush, settings: RuntimeSettings
) -> None:
    disk.end_position = 100
    settings.change({"sync_flush_timeout": "1ms"}, 0)
    async with asyncio.timeout(1):
        assert not await flush.durable(100)


@in_virtual_time
async def test_very_many_files_are_flushed_less_often_but_within_a_minute(disk: FakeStore) -> None:
    clock = this_loop().clock
    flush = Flush(disk, RuntimeSettings(BrokerConfig()), clock)
    flushed: list[int] = []
    for second in range(0, 140, 5):
        disk.end_position = second
        disk.dirty = 8_000 if second < 70 else 40_000
        await flush.checkpoint(0)
        if disk.checkpoints > len(flushed):
            flushed.append(second)
        await clock.sleep(5_000)
    assert flushed == [20, 40, 60, 120]
    assert disk.let_go == 140 // 5 - 1 - len(flushed)
    flush.close()


@in_virtual_time
async def test_other_tasks_run_while_many_files_are_written(disk: FakeStore) -> None:
    clock = this_loop().clock
    flush = Flush(disk, RuntimeSettings(BrokerConfig()), clock)
    pool = MapPool(MemoryFiles(), 1)
    disk.waiting = [MappedFile(pool, Path(f"/{n}"), 0, 1) for n in range(FILES_AT_ONCE * 3)]
    disk.end_position = 10
    task = asyncio.create_task(flush.checkpoint(0))
    await asyncio.sleep(0)
    assert (len(disk.written), disk.checkpoints) == (FILES_AT_ONCE, 0)
    await task
    assert (len(disk.written), disk.checkpoints) == (FILES_AT_ONCE * 3, 1)
    flush.close()


async def test_waiting_sends_fail_at_once_when_the_disk_fails(
    disk: FakeStore, flush: Flush
) -> None:
    serving = asyncio.create_task(flush.serve())
    disk.may_finish.clear()
    disk.end_position = 10
    waiting = [asyncio.create_task(flush.durable(position)) for position in (5, 10)]
    await asyncio.sleep(0.02)
    disk.break_down()
    disk.may_finish.set()
    async with asyncio.timeout(1):
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreFailed, StoreFailed]
    serving.cancel()


async def test_nothing_waits_or_becomes_durable_after_the_disk_has_failed(
    disk: FakeStore, flush: Flush
) -> None:
    disk.end_position = 10
    await flush.step()
    disk.end_position = 20
    disk.break_down()
    with pytest.raises(StoreFailed, match="then restart"):
        await flush.step()
    with pytest.raises(StoreFailed, match="then restart"):
        await flush.durable(20)
    assert await flush.durable(10), "what was on the disk before is there"


async def test_a_position_made_durable_by_another_thread_is_acknowledged(
    disk: FakeStore, flush: Flush
) -> None:
    serving = asyncio.create_task(flush.serve())
    disk.end_position = 20
    disk.flushed_position = 10
    disk.break_down()
    with pytest.raises(StoreFailed):
        await flush.step()
    assert await flush.durable(10)
    serving.cancel()
