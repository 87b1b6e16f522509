import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roquet.broker.broker import Broker
from roquet.broker.handlers.send import send
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
        clock=clock,
        store=broker.log.store,
        tables=(offsets,),
        clients=broker.tables.clients,
        locks=broker.tables.locks,
        arrivals=broker.log.arrivals,
        forget=broker.coordination.forget,
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
    keeping: Housekeeping, clock: JumpingClock, peer: Any
) -> None:
    keeping.clients.seen(peer, LastSeen(seen_ms=0, limit_ms=120_000))
    clock.ms = 120_000
    keeping.scan()
    assert peer in keeping.clients
    clock.ms = 120_001
    keeping.scan()
    assert peer not in keeping.clients


async def test_ended_locks_and_idle_marks_are_forgotten(
    keeping: Housekeeping, clock: JumpingClock
) -> None:
    keeping.locks.lock("group", "c1", [QUEUE], 0)
    waiting = len(keeping.arrivals)
    await keeping.arrivals.reach("orders", 0, 1, None, 0)
    clock.ms = 60_000
    keeping.scan()
    assert keeping.locks.lock("group", "c2", [QUEUE], 0) == [QUEUE]
    assert len(keeping.arrivals) == waiting


async def test_what_was_stored_can_be_found_by_key(
    keeping: Housekeeping, broker: Broker, peer: Any, message: Any
) -> None:
    for number in range(200):
        broker.bind(send)(message(properties=f"KEYS\x01k{number}\x02"), peer)
    await keeping.index()
    assert len(broker.log.store.query("orders", "k199").records) == 1
    assert broker.log.store.indexed_position == broker.log.store.end_position


class PiledStore:
    """A store in which so much waits to be indexed; the broker's own housekeeping is not at it."""

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting

    def dispatch(self, count_max: int) -> int:
        taken = min(count_max, self.waiting)
        self.waiting -= taken
        return taken


async def test_while_much_is_stored_it_is_indexed_every_few_milliseconds(
    keeping: Housekeeping, clock: JumpingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    piled = PiledStore(INDEX_MANY)
    pauses: list[int] = []

    async def sleep(ms: int) -> None:
        pauses.append(ms)
        piled.waiting += INDEX_MANY if len(pauses) < 4 else INDEX_MANY - 1

    monkeypatch.setattr(clock, "sleep", sleep)
    await msgspec.structs.replace(keeping, store=piled).index()
    assert pauses == [INDEX_SOON_MS] * 4
    assert piled.waiting == 0


async def test_indexing_lets_others_go_first(keeping: Housekeeping) -> None:
    piled = PiledStore(10 * INDEX_COUNT)
    seen: list[int] = []

    async def other() -> None:
        while True:
            seen.append(piled.waiting)
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await msgspec.structs.replace(keeping, store=piled).index()
    task.cancel()
    assert seen == [INDEX_COUNT * left for left in reversed(range(10))]


async def test_retention_and_scrubbing_leave_a_young_store_alone(
    keeping: Housekeeping, broker: Broker, peer: Any, message: Any
) -> None:
    broker.bind(send)(message(), peer)
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
    monkeypatch.setattr(type(keeping.store), "scrub", lambda _store, _bytes: next(pieces))
    await late.scrub()
    assert busy.ms == 3 * SCRUB_PAUSES_MAX * (SCRUB_MS + SCRUB_LATE_MS)
    assert next(pieces, None) is None


async def test_progress_is_saved_only_once_the_log_it_speaks_of_is_on_the_disk(
    keeping: Housekeeping, broker: Broker, offsets: ConsumerOffsets, peer: Any, message: Any
) -> None:
    broker.bind(send)(message(), peer)
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
    other = ConsumerOffsets(TableFile(files, Path("/other.json")))
    for table in (offsets, other):
        table.commit("group", "topic", 0, 5)
    replace = files.replace

    def refuse(path: Path, *others: Any, **more: Any) -> None:
        if path.name == "offsets.json":
            raise StoreFull("no room")
        replace(path, *others, **more)

    monkeypatch.setattr(files, "replace", refuse)
    with pytest.raises(StoreFull):
        await msgspec.structs.replace(keeping, tables=(offsets, other)).save()
    assert (offsets.unsaved, other.unsaved) == (True, False)


async def test_a_client_that_cannot_be_forgotten_does_not_keep_the_others(
    keeping: Housekeeping, clock: JumpingClock, new_peer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    peers = [new_peer(), new_peer()]
    for peer in peers:
        keeping.clients.seen(peer, LastSeen(seen_ms=0, limit_ms=1))

    def stumble(peer: Any) -> None:
        if peer is peers[0]:
            raise KeyError("odd")
        keeping.clients.drop(peer)

    clock.ms = 60_000
    msgspec.structs.replace(keeping, forget=stumble).scan()
    assert not any(peer in keeping.clients for peer in peers)
    assert "cannot be forgotten" in caplog.text


async def test_a_piece_that_cannot_be_scrubbed_is_passed_over(
    keeping: Housekeeping, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pieces, skipped = iter([1, 0, 1]), list[int]()

    def scrub(_store: object, _bytes: int) -> bool:
        return bool(1 // next(pieces))

    def skip(_store: object, count: int) -> bool:
        skipped.append(count)
        return len(skipped) < 1

    monkeypatch.setattr(type(keeping.store), "scrub", scrub)
    monkeypatch.setattr(type(keeping.store), "skip_scrub", skip)
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

    monkeypatch.setattr(type(keeping.store), "scrub", refuse)
    await keeping.scrub()
    assert len(calls) == 1
    assert "after the next start: no room" in caplog.text
