"""With synchronous flush consumers see a message once it is on the disk, and no earlier."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random
from threading import Event
from typing import Any, cast

import pytest
from tests.broker.conftest import FakePeer
from tests.broker.replication.conftest import ReplicationParts

from roquet.broker.app import BrokerServer
from roquet.broker.handlers.messages.pull import PullHandler
from roquet.broker.handlers.messages.send import SendHandler
from roquet.broker.log.flushed_view import ConfirmedView, FlushedView
from roquet.broker.log.long_polling import LongPolling
from roquet.broker.settings.config import BrokerConfig
from roquet.model.errors import StoreFailed
from roquet.model.flags import PullFlag
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.store.store import Draft, Store
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.testing.power_loss_files import PowerLossFiles
from roquet.wire.calls.pull import Pull
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
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    disk = SlowDisk(monkeypatch)
    yield disk
    disk.go_on()


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
        call = Pull(
            consumer_group="g",
            topic="orders",
            queue_id=0,
            queue_offset=offset,
            max_msg_nums=32,
            sys_flag=int(PullFlag.SUBSCRIPTION | PullFlag.SUSPEND),
            commit_offset=0,
            suspend_timeout_millis=suspend_ms,
            subscription="*",
            sub_version=0,
        )
        reply: Any = self.server.broker.bind(PullHandler.pull)(call, self.peer)
        if asyncio.iscoroutine(reply):
            reply = await reply
        return reply.code, [record.body for record in decode_many(reply.body)]

    @property
    def end(self) -> int:
        return self.server.broker.log.store.bounds("orders", 0)[1]


async def test_what_a_consumer_was_given_outlives_a_loss_of_power(disk: SlowDisk) -> None:
    files = PowerLossFiles()
    async with broker(files) as server:
        client = Client(server)
        await client.send(b"first")
        disk.hold()
        sending = asyncio.create_task(client.send(b"never acknowledged"))
        await asyncio.sleep(0.05)
        assert not sending.done()
        _, given = await client.pull(0)
        after = files.copy().after_power_loss(Random(3))
        disk.go_on()
        await sending
    async with broker(after) as server:
        client = Client(server)
        await client.send(b"another one")
        _, stored = await client.pull(0)
    assert (given, stored) == ([b"first"], [b"first", b"another one"])


async def test_a_waiting_pull_wakes_with_the_flush_and_not_with_the_append(
    disk: SlowDisk,
) -> None:
    async with broker() as server:
        client = Client(server)
        await client.send(b"first")
        waiting = asyncio.create_task(client.pull(1, suspend_ms=10_000))
        disk.hold()
        begun = disk.begun
        sending = asyncio.create_task(client.send(b"second"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        assert client.end == 1
        disk.go_on()
        async with asyncio.timeout(1):
            assert await waiting == (ResponseCode.SUCCESS, [b"second"])
            assert (await sending).code == ResponseCode.SUCCESS
        assert disk.begun == begun + 1, "one flush is enough"


async def test_what_nobody_waits_for_is_flushed_and_shown_at_once(disk: SlowDisk) -> None:
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


async def test_without_synchronous_flush_a_message_is_read_at_once(disk: SlowDisk) -> None:
    async with broker(sync_flush=False) as server:
        client = Client(server)
        await client.send(b"first")
        assert await client.pull(0) == (ResponseCode.SUCCESS, [b"first"])
        assert server.broker.log.store.flushed_position == 0


async def test_a_change_of_the_setting_hides_nothing_that_was_shown(disk: SlowDisk) -> None:
    async with broker(sync_flush=False) as server:
        client, settings = Client(server), server.broker.control.settings
        client.store(b"first")
        assert client.end == 1
        disk.hold()
        settings.change({"flushDiskType": "SYNC_FLUSH"}, 0)
        client.store(b"second")
        assert client.end == 1
        settings.change({"flushDiskType": "ASYNC_FLUSH"}, 0)
        assert client.end == 2
        client.store(b"third")
        assert client.end == 3
        disk.go_on()


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
    made.flush.on_flushed.append(FlushedView(made.log, made.settings.config).show_flushed)
    made.arrivals.on_hidden = made.flush.request
    flushing = asyncio.create_task(made.flush.serve())
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
    flushing.cancel()
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
