import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from threading import Event
from typing import Any, cast

import pytest
from tests.broker.conftest import FakePeer, background
from tests.broker.handlers.messages.test_pull import ask
from tests.broker.replication.conftest import ReplicationParts

from roquet.broker.app import BrokerServer
from roquet.broker.handlers.messages.pull import PullHandler
from roquet.broker.handlers.messages.send import SendHandler
from roquet.broker.log.flush import FILES_AT_ONCE, ConfirmedView, Flush, FlushedView
from roquet.broker.log.long_polling import LongPolling
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.model.errors import StoreError, StoreFailed
from roquet.model.flags import PullFlag
from roquet.net.clock import SYSTEM_CLOCK
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.store.filesystem.mapped_file import MappedFile, MapPool
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.flush import FlushTask
from roquet.store.store import Draft, Store
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.testing.power_loss_files import PowerLossFiles
from roquet.wire.calls.send import Send, SendReply
from roquet.wire.codes import ResponseCode
from roquet.wire.records.record import decode_many

SMALL: dict[str, Any] = {
    "host": "127.0.0.1",
    "port": 0,
    "vip_port": False,
    "advertise": "127.0.0.1",
    "log_file_size": 65_536,
    "queue_file_entries": 100,
    "index_slots": 100,
    "index_entries": 400,
    "flush_interval": 3_600_000,
}


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
    async with background(flush.serve()):
        disk.end_position = 100
        assert all(await asyncio.gather(*(flush.durable(position) for position in range(1, 101))))
        assert disk.flushes == 1


async def test_a_message_appended_during_a_flush_waits_for_the_next(
    disk: FakeStore, flush: Flush
) -> None:
    async with background(flush.serve()):
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
    async with background(flush.serve()):
        disk.failures = 1
        disk.end_position = 10
        with caplog.at_level(logging.ERROR):
            assert await flush.durable(10)
        assert "the log could not be flushed" in caplog.text


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
    async with background(flush.serve()):
        disk.may_finish.clear()
        disk.end_position = 10
        waiting = [asyncio.create_task(flush.durable(position)) for position in (5, 10)]
        await asyncio.sleep(0.02)
        disk.break_down()
        disk.may_finish.set()
        async with asyncio.timeout(1):
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [StoreFailed, StoreFailed]


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
    async with background(flush.serve()):
        disk.end_position = 20
        disk.flushed_position = 10
        disk.break_down()
        with pytest.raises(StoreFailed):
            await flush.step()
        assert await flush.durable(10)


class SlowDisk:
    """A disk whose flushes of the log wait for a test, each for its own leave."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        self.leave = Event()
        self.leave.set()
        flush_log = Store.flush_log

        def slow(store: Store) -> int:
            self.begun += 1
            assert self.leave.wait(5)
            return flush_log(store)

        monkeypatch.setattr(Store, "flush_log", slow)

    def hold(self) -> None:
        self.leave.clear()

    def go_on(self) -> None:
        self.leave.set()


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    slow_disk = SlowDisk(monkeypatch)
    yield slow_disk
    slow_disk.go_on()


def broker(files: PowerLossFiles | None = None, **settings: Any) -> BrokerServer:
    config = BrokerConfig(**SMALL | {"sync_flush": True} | settings, store_dir=Path("/data"))
    return BrokerServer(config, files=files or PowerLossFiles(), rng=Random(1))


class Client:
    """A producer and a consumer of one queue."""

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
        self.peer = FakePeer()

    def store(self, body: bytes) -> None:
        """Store a message as a service does: nobody waits for it."""
        self.server.broker.log.ingest.append(self._message(body), 0, self.peer)

    async def send(self, body: bytes) -> SendReply:
        reply: Any = self.server.broker.bind(SendHandler.send)(self._message(body), self.peer)
        return reply if isinstance(reply, SendReply) else cast(SendReply, await reply)

    def _message(self, body: bytes) -> Send:
        return Send(
            producer_group="p",
            topic="orders",
            queue_id=0,
            default_topic_queue_nums=1,
            born_timestamp=1,
            body=body,
        )

    async def pull(self, offset: int, suspend_ms: int = 0) -> tuple[int, list[bytes]]:
        """Code and messages of a pull."""
        flags = int(PullFlag.SUBSCRIPTION | PullFlag.SUSPEND)
        call = ask(offset, consumer_group="g", sys_flag=flags, suspend_timeout_millis=suspend_ms)
        reply: Any = self.server.broker.bind(PullHandler.pull)(call, self.peer)
        if asyncio.iscoroutine(reply):
            reply = await reply
        return reply.code, [record.body for record in decode_many(reply.body)]

    @property
    def end(self) -> int:
        return self.server.broker.log.store.bounds("orders", 0)[1]


async def test_what_a_consumer_was_given_outlives_a_loss_of_power(slow_disk: SlowDisk) -> None:
    files = PowerLossFiles()
    async with broker(files) as server:
        client = Client(server)
        await client.send(b"first")
        slow_disk.hold()
        sending = asyncio.create_task(client.send(b"never acknowledged"))
        await asyncio.sleep(0.05)
        assert not sending.done()
        _, given = await client.pull(0)
        after = files.copy().after_power_loss(Random(3))
        slow_disk.go_on()
        await sending
    async with broker(after) as server:
        client = Client(server)
        await client.send(b"another one")
        _, stored = await client.pull(0)
    assert (given, stored) == ([b"first"], [b"first", b"another one"])


async def test_a_waiting_pull_wakes_with_the_flush_and_not_with_the_append(
    slow_disk: SlowDisk,
) -> None:
    async with broker() as server:
        client = Client(server)
        await client.send(b"first")
        waiting = asyncio.create_task(client.pull(1, suspend_ms=10_000))
        slow_disk.hold()
        begun = slow_disk.begun
        sending = asyncio.create_task(client.send(b"second"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        assert client.end == 1
        slow_disk.go_on()
        async with asyncio.timeout(1):
            assert await waiting == (ResponseCode.SUCCESS, [b"second"])
            assert (await sending).code == ResponseCode.SUCCESS
        assert slow_disk.begun == begun + 1, "one flush is enough"


async def test_what_nobody_waits_for_is_flushed_and_shown_at_once(slow_disk: SlowDisk) -> None:
    """Services, and senders with waitStoreMsgOK=false, ask for no flush."""
    async with broker() as server:
        client = Client(server)
        await client.send(b"first")
        waiting = asyncio.create_task(client.pull(1, suspend_ms=10_000))
        await asyncio.sleep(0)
        client.store(b"second")
        assert client.end == 1
        async with asyncio.timeout(1):
            assert await waiting == (ResponseCode.SUCCESS, [b"second"])


async def test_without_synchronous_flush_a_message_is_read_at_once(slow_disk: SlowDisk) -> None:
    async with broker(sync_flush=False) as server:
        client = Client(server)
        await client.send(b"first")
        assert await client.pull(0) == (ResponseCode.SUCCESS, [b"first"])
        assert server.broker.log.store.flushed_position == 0


async def test_a_change_of_the_setting_hides_nothing_that_was_shown(slow_disk: SlowDisk) -> None:
    async with broker(sync_flush=False) as server:
        client, settings = Client(server), server.broker.control.settings
        client.store(b"first")
        assert client.end == 1
        slow_disk.hold()
        settings.change({"flushDiskType": "SYNC_FLUSH"}, 0)
        client.store(b"second")
        assert client.end == 1
        settings.change({"flushDiskType": "ASYNC_FLUSH"}, 0)
        assert client.end == 2
        client.store(b"third")
        assert client.end == 3
        slow_disk.go_on()


async def test_a_start_brings_what_a_killed_process_left_to_the_disk_and_shows_it() -> None:
    files = PowerLossFiles()
    async with broker(files, sync_flush=False) as server:
        Client(server).store(b"first")
        killed = files.copy()
    async with broker(killed) as server:
        assert Client(server).end == 1
        after = killed.copy().after_power_loss(Random(3))
    async with broker(after) as server:
        assert Client(server).end == 1


async def test_what_was_on_a_disk_that_fails_is_read_and_what_was_not_is_hidden() -> None:
    async with broker() as server:
        client, store = Client(server), server.broker.log.store
        await client.send(b"first")
        client.store(b"second")
        store.fail("the disk is broken")
        with pytest.raises(StoreFailed):
            await server.broker.log.flush.step()
        assert await client.pull(0) == (ResponseCode.SUCCESS, [b"first"])


@in_virtual_time
async def test_a_replica_shows_what_is_on_its_own_disk() -> None:
    master = ReplicationParts(log_file_size=1 << 20)
    log = bytes(master.store.raw.read(0, master.append(3)))
    made = ReplicationParts(
        sync_flush=True, broker_role=BrokerRole.SLAVE, broker_id=1, log_file_size=1 << 20
    )
    view = FlushedView(made.store, made.arrivals, made.flush, made.settings.config)
    made.flush.on_flushed.append(view.show_flushed)
    made.arrivals.on_hidden = made.flush.request
    async with background(made.flush.serve()):
        waiting = asyncio.create_task(
            made.arrivals.reach("orders", 0, 3, None, made.clock.monotonic_ms() + 10_000)
        )
        await asyncio.sleep(0)
        made.store.raw.append(0, log)
        for arrival in made.store.raw.dispatch():
            made.arrivals.arrived("orders", 0, arrival.offset, arrival.tag_codes)
        assert made.store.bounds("orders", 0) == (0, 0)
        assert await waiting, "a flush was asked for"
        assert made.store.bounds("orders", 0) == (0, 3)
    for parts in (master, made):
        parts.close()


class Scene:
    """A store, a view of it and those who wait for messages of one queue."""

    def __init__(self) -> None:
        self.clock = this_loop().clock
        self.store = Store.open(None, now_ms=self.clock.now_ms())
        self.arrivals = LongPolling(self.clock)
        self.view = ConfirmedView(self.store, self.arrivals)
        self.view.show(self.store.confirmed_at_open)

    def append(self) -> int:
        draft = Draft("orders", 0, b"x", b"", 0, store_host=b"\x0a\x00\x00\x01\x00\x00\x2a\x9f")
        appended = self.store.append(draft, self.clock.now_ms())
        self.arrivals.arrived("orders", 0, appended.queue_offset, (0,))
        return self.store.end_position

    @property
    def visible(self) -> int:
        return self.store.bounds("orders", 0)[1]

    def waiter(self, next_offset: int) -> "asyncio.Task[bool]":
        deadline_ms = self.clock.monotonic_ms() + 1_000
        return asyncio.create_task(self.arrivals.reach("orders", 0, next_offset, None, deadline_ms))


async def woken(task: "asyncio.Task[bool]") -> bool:
    await asyncio.sleep(0.01)
    return task.done()


@in_virtual_time
async def test_messages_are_shown_once_they_are_confirmed() -> None:
    scene = Scene()
    waiter = scene.waiter(1)
    await asyncio.sleep(0.01)
    first, second = scene.append(), scene.append()
    assert not await woken(waiter)
    assert scene.visible == 0
    scene.view.show(first)
    assert await woken(waiter)
    assert scene.visible == 1
    scene.view.show(second)
    assert scene.visible == 2
    assert scene.view.position == second


@in_virtual_time
async def test_all_messages_are_shown_at_once_where_nobody_has_to_confirm() -> None:
    scene = Scene()
    waiter = scene.waiter(1)
    await asyncio.sleep(0.01)
    scene.append()
    scene.view.show(None)
    assert await woken(waiter)
    later = scene.waiter(2)
    await asyncio.sleep(0.01)
    scene.append()
    assert await woken(later)
    assert scene.visible == 2


@in_virtual_time
async def test_what_was_hidden_and_cut_never_arrives() -> None:
    scene = Scene()
    waiter = scene.waiter(1)
    await asyncio.sleep(0.01)
    scene.append()
    scene.store.raw.truncate(0)
    scene.view.cut()
    assert await woken(waiter)  # it looks again, and waits for what comes now
    again = scene.waiter(1)
    scene.view.show(1_000)
    assert not await woken(again)
    assert not await again
