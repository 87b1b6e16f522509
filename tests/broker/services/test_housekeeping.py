import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.broker.conftest import FakePeer, MakeSend, NewPeer, background

from roquet.broker.broker import Broker
from roquet.broker.handlers.messages.send import SendHandler
from roquet.broker.services.housekeeping import (
    INDEX_COUNT,
    INDEX_MANY,
    INDEX_SOON_MS,
    SCRUB_LATE_MS,
    SCRUB_MS,
    SCRUB_PAUSES_MAX,
    Housekeeping,
)
from roquet.broker.tables.offsets import ConsumerOffsets
from roquet.broker.tables.ordered_pops import OrderedPops
from roquet.broker.tables.saved_table import TableFile
from roquet.model.errors import StoreFull
from roquet.model.queue import MessageQueue
from roquet.rules.liveness import LastSeen
from roquet.store.filesystem.memory_files import MemoryFiles

QUEUE = MessageQueue("orders", "broker-a", 0)


class JumpingClock:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    async def sleep(self, ms: int) -> None:
        self.ms += ms


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock()


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def offsets(files: MemoryFiles) -> ConsumerOffsets:
    return ConsumerOffsets(TableFile(files, Path("/offsets.json")))


@pytest.fixture
def keeping(broker: Broker, clock: JumpingClock, offsets: ConsumerOffsets) -> Housekeeping:
    return Housekeeping(
        message_log=broker.log,
        tables=msgspec.structs.replace(broker.tables, offsets=offsets),
        forget=broker.coordination.forget,
        clock=clock,
    )


async def test_tables_that_changed_are_saved(
    keeping: Housekeeping, offsets: ConsumerOffsets, files: MemoryFiles
) -> None:
    offsets.commit("group", "topic", 0, 5)
    await keeping.save()
    assert ConsumerOffsets(TableFile(files, Path("/offsets.json"))).get("group", "topic", 0) == 5
    assert not offsets.unsaved


async def test_a_table_that_could_not_be_saved_is_saved_later(
    keeping: Housekeeping,
    offsets: ConsumerOffsets,
    files: MemoryFiles,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StoreFull("no room")

    offsets.commit("group", "topic", 0, 5)
    with monkeypatch.context() as patched:
        patched.setattr(files, "replace", refuse)
        with pytest.raises(StoreFull):
            await keeping.save()
    await keeping.save()
    assert ConsumerOffsets(TableFile(files, Path("/offsets.json"))).get("group", "topic", 0) == 5


async def test_the_silent_are_forgotten(
    keeping: Housekeeping, clock: JumpingClock, peer: FakePeer
) -> None:
    keeping.tables.clients.seen(peer, LastSeen(seen_ms=0, limit_ms=120_000))
    clock.ms = 120_000
    keeping.scan()
    assert peer in keeping.tables.clients
    clock.ms = 120_001
    keeping.scan()
    assert peer not in keeping.tables.clients


async def test_expired_locks_and_idle_watermarks_are_removed(
    keeping: Housekeeping, clock: JumpingClock
) -> None:
    keeping.tables.locks.lock("group", "c1", [QUEUE], 0)
    waiting = len(keeping.message_log.arrivals)
    await keeping.message_log.arrivals.reach("orders", 0, 1, None, 0)
    clock.ms = 60_000
    keeping.scan()
    assert keeping.tables.locks.lock("group", "c2", [QUEUE], 0) == [QUEUE]
    assert len(keeping.message_log.arrivals) == waiting


async def test_stored_messages_can_be_found_by_key(
    keeping: Housekeeping, broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    for number in range(200):
        broker.bind(SendHandler.send)(message(properties=f"KEYS\x01k{number}\x02"), peer)
    await keeping.index()
    assert len(broker.log.store.query("orders", "k199").records) == 1
    assert broker.log.store.indexed_position == broker.log.store.end_position


class BackloggedStore:
    """A store with a backlog of records to index."""

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting

    def dispatch(self, count_max: int) -> int:
        taken = min(count_max, self.waiting)
        self.waiting -= taken
        return taken


async def test_a_busy_log_is_indexed_every_few_milliseconds(
    keeping: Housekeeping, clock: JumpingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    piled = BackloggedStore(INDEX_MANY)
    pauses: list[int] = []

    async def sleep(ms: int) -> None:
        pauses.append(ms)
        piled.waiting += INDEX_MANY if len(pauses) < 4 else INDEX_MANY - 1

    monkeypatch.setattr(clock, "sleep", sleep)
    message_log = msgspec.structs.replace(keeping.message_log, store=piled)
    await msgspec.structs.replace(keeping, message_log=message_log).index()
    assert pauses == [INDEX_SOON_MS] * 4
    assert piled.waiting == 0


async def test_indexing_lets_others_go_first(keeping: Housekeeping) -> None:
    piled = BackloggedStore(10 * INDEX_COUNT)
    seen: list[int] = []

    async def other() -> None:
        while True:
            seen.append(piled.waiting)
            await asyncio.sleep(0)

    async with background(other()):
        message_log = msgspec.structs.replace(keeping.message_log, store=piled)
        await msgspec.structs.replace(keeping, message_log=message_log).index()
    assert seen == [INDEX_COUNT * left for left in reversed(range(10))]


async def test_retention_and_scrubbing_leave_a_young_store_alone(
    keeping: Housekeeping, broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    broker.bind(SendHandler.send)(message(), peer)
    keeping.expire(broker.control.clock.now_ms())
    async with asyncio.timeout(10):
        await keeping.scrub()
    assert broker.log.store.bounds("orders", 0) == (0, 1)


class LateClock(JumpingClock):
    """Every pause lasts too long: others have work."""

    async def sleep(self, ms: int) -> None:
        self.ms += ms + SCRUB_LATE_MS


async def test_a_busy_broker_is_scrubbed_slowly_but_to_the_end(
    keeping: Housekeeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = iter([True, True, True, False])
    busy = LateClock()
    late = msgspec.structs.replace(keeping, clock=busy)
    monkeypatch.setattr(
        type(keeping.message_log.store), "scrub", lambda _store, _bytes: next(pieces)
    )
    await late.scrub()
    assert busy.ms == 3 * SCRUB_PAUSES_MAX * (SCRUB_MS + SCRUB_LATE_MS)
    assert next(pieces, None) is None


async def test_progress_is_saved_only_after_the_flush_of_the_messages_it_counts(
    keeping: Housekeeping,
    broker: Broker,
    offsets: ConsumerOffsets,
    peer: FakePeer,
    message: MakeSend,
) -> None:
    broker.bind(SendHandler.send)(message(), peer)
    assert broker.log.store.flushed_position < broker.log.store.end_position
    offsets.commit("g", "orders", 0, 1)
    await keeping.save()
    assert broker.log.store.flushed_position == broker.log.store.end_position


async def test_a_table_that_cannot_be_saved_does_not_keep_the_others_from_it(
    keeping: Housekeeping,
    offsets: ConsumerOffsets,
    files: MemoryFiles,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offsets.commit("group", "topic", 0, 5)
    other = OrderedPops(TableFile(files, Path("/other.json")))
    other.unsaved = True
    replace = files.replace

    def refuse(path: Path, *others: Any, **more: Any) -> None:
        if path.name == "offsets.json":
            raise StoreFull("no room")
        replace(path, *others, **more)

    monkeypatch.setattr(files, "replace", refuse)
    tables = msgspec.structs.replace(keeping.tables, ordered_pops=other)
    with pytest.raises(StoreFull):
        await msgspec.structs.replace(keeping, tables=tables).save()
    assert (offsets.unsaved, other.unsaved) == (True, False)


async def test_a_client_that_cannot_be_forgotten_does_not_keep_the_others(
    keeping: Housekeeping, clock: JumpingClock, new_peer: NewPeer, caplog: pytest.LogCaptureFixture
) -> None:
    peers = [new_peer(), new_peer()]
    for peer in peers:
        keeping.tables.clients.seen(peer, LastSeen(seen_ms=0, limit_ms=1))

    def stumble(peer: FakePeer) -> None:
        if peer is peers[0]:
            raise KeyError("odd")
        keeping.tables.clients.drop(peer)

    clock.ms = 60_000
    msgspec.structs.replace(keeping, forget=stumble).scan()
    assert not any(peer in keeping.tables.clients for peer in peers)
    assert "cannot be forgotten" in caplog.text


async def test_a_range_that_cannot_be_scrubbed_is_skipped(
    keeping: Housekeeping, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pieces, skipped = iter([1, 0, 1]), list[int]()

    def scrub(_store: object, _bytes: int) -> bool:
        return bool(1 // next(pieces))

    def skip(_store: object, count: int) -> bool:
        skipped.append(count)
        return len(skipped) < 1

    monkeypatch.setattr(type(keeping.message_log.store), "scrub", scrub)
    monkeypatch.setattr(type(keeping.message_log.store), "skip_scrub", skip)
    await keeping.scrub()
    assert len(skipped) == 1
    assert "cannot be looked at" in caplog.text


async def test_a_scrub_ends_when_the_disk_takes_nothing(
    keeping: Housekeeping, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def refuse(_store: object, count: int) -> bool:
        calls.append(count)
        raise StoreFull("no room")

    monkeypatch.setattr(type(keeping.message_log.store), "scrub", refuse)
    await keeping.scrub()
    assert len(calls) == 1
    assert "after the next start: no room" in caplog.text


async def test_progress_has_a_later_version_after_each_save_of_changes(
    keeping: Housekeeping, offsets: ConsumerOffsets
) -> None:
    offsets.commit("group", "topic", 0, 5)
    await keeping.save(1_000)
    await keeping.save(2_000)
    assert (offsets.version.counter, offsets.version.timestamp) == (1, 1_000)


async def test_copied_progress_keeps_its_masters_version(
    keeping: Housekeeping, offsets: ConsumerOffsets
) -> None:
    copying = msgspec.structs.replace(keeping, owns_progress=lambda: False)
    offsets.commit("group", "topic", 0, 5)
    await copying.save(1_000)
    assert offsets.version.counter == 0
    assert not offsets.unsaved
