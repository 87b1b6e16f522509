"""Delivery times: any time, never early, through restarts and kills; taken back before."""

import asyncio
import tarfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.conversation.conftest import ask, held, send_of, started, virtual_cluster
from tests.unpacking import unpack

from roquet.broker.app import BrokerServer
from roquet.client import Message, Producer, ProducerConfig
from roquet.model.errors import CallRefused, UsageError
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.timer.layout import unpack_checkpoint
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.wire.calls.send import SendReply
from roquet.wire.calls.timer import GetTimerCheckpoint, GetTimerMetrics
from roquet.wire.codes import ResponseCode
from roquet.wire.records.record import decode_many
from roquet.wire.revive_records import AckBody, CheckpointBody, encode_body

STORES = Path(__file__).parent.parent / "vectors" / "store"
HELD = Path("/held")
"""A directory of files in memory: what of it is copied is what a kill leaves."""

HUNDRED_YEARS_MS = 100 * 365 * 86_400_000


async def send(server: BrokerServer, body: bytes, properties: str, **fields: Any) -> SendReply:
    given = {"topic": "orders", "born_timestamp": this_loop().clock.now_ms(), **fields}
    reply: SendReply = await ask(server, send_of(body, properties=properties, **given))
    return reply


async def after(server: BrokerServer, body: bytes, delay_ms: int, **fields: Any) -> SendReply:
    return await send(server, body, f"TIMER_DELAY_MS\x01{delay_ms}\x02", **fields)


def bodies(server: BrokerServer) -> list[bytes]:
    return [record.body for record in held(server)]


async def test_a_producer_sets_a_delivery_time_and_may_recall_the_message() -> None:
    clock = this_loop().clock
    async with virtual_cluster(recall_message=True) as running:
        config = ProducerConfig(clock=clock)
        async with Producer(running.namesrv_addr, config=config) as producer:
            first = await producer.send("orders", b"three minutes", delay=timedelta(minutes=3))
            at = datetime.fromtimestamp(clock.now_ms() / 1000, UTC) + timedelta(minutes=1)
            second = await producer.send(Message("orders", b"one minute", deliver_at=at))
            plain = await producer.send("orders", b"at once")
            assert plain.recall_handle is None
            assert first.recall_handle
            assert second.recall_handle
            await asyncio.sleep(10)
            assert await producer.recall("orders", first.recall_handle) == first.message_id
            with pytest.raises(CallRefused, match="topic not match") as refused:
                await producer.recall("TBW102", second.recall_handle)
            assert refused.value.code == ResponseCode.ILLEGAL_OPERATION
            with pytest.raises(UsageError, match="not a recall handle"):
                await producer.recall("orders", "x")
            await asyncio.sleep(60)
            with pytest.raises(CallRefused, match="timestamp invalid"):
                await producer.recall("orders", second.recall_handle)
        await asyncio.sleep(130)
        store = running.brokers[0].broker.log.store
        found = [
            record
            for queue_id in store.queue_ids("orders")
            for part in store.read("orders", queue_id, 0).parts
            for record in decode_many(part)
        ]
        assert {record.body for record in found} == {b"one minute", b"at once"}
        late = next(record for record in found if record.body == b"one minute")
        assert 0 <= late.stored_ms - at.timestamp() * 1000 <= 5


async def test_an_invalid_delivery_time_is_refused_and_the_connection_stays_open() -> None:
    async with started() as server:
        now_ms = this_loop().clock.now_ms()
        for properties in (
            f"TIMER_DELIVER_MS\x01{now_ms + HUNDRED_YEARS_MS}\x02",
            "TIMER_DELAY_SEC\x01259201\x02",
            "TIMER_DELAY_SEC\x01soon\x02",
            "TIMER_DELAY_MS\x01" + "9" * 10_000 + "\x02",
            "TIMER_DEL_UNIQKEY\x01u\x02TIMER_DELAY_MS\x019999\x02",
        ):
            with pytest.raises(CallRefused) as refused:
                await send(server, b"x", properties)
            assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
            assert refused.value.remark
        with pytest.raises(CallRefused) as refused:
            await send(server, b"x", "", topic="rmq_sys_wheel_timer")
        assert refused.value.code == ResponseCode.NO_PERMISSION
        for body, delay_ms in ((b"past", -HUNDRED_YEARS_MS), (b"now", 0)):
            assert (await after(server, body, delay_ms)).recall_handle is None
        at_ms = now_ms + 3_600_000
        await send(server, b"js", f"__STARTDELIVERTIME\x01{at_ms}\x02")  # as genuine: no wish
        assert bodies(server) == [b"past", b"now", b"js"]


async def test_timed_messages_are_delivered_once_after_a_restart(tmp_path: Path) -> None:
    begun = this_loop().clock.now_ms()
    async with started(store_dir=tmp_path) as server:
        for number in range(8):
            await after(server, b"%d" % number, 1_000 + 500 * number)
        await asyncio.sleep(2.6)
        assert bodies(server) == [b"0", b"1", b"2", b"3"]
    await asyncio.sleep(1)
    async with started(store_dir=tmp_path) as server:
        await asyncio.sleep(5)
        assert bodies(server) == [b"%d" % number for number in range(8)]
        late = [record.stored_ms - begun for record in held(server)[-2:]]
        assert late == pytest.approx([4_000, 4_500], abs=20)
        body = (await ask(server, GetTimerMetrics())).body
        assert b'"orders":{"count":0' in body
        assert len((await ask(server, GetTimerCheckpoint())).body) == 56


async def test_a_kill_in_the_middle_loses_nothing() -> None:
    files = MemoryFiles()
    sent = [b"%d" % number for number in range(40)]
    left: list[MemoryFiles] = []
    async with started(store_dir=HELD, files=files) as server:
        for number, body in enumerate(sent):
            await after(server, body, 500 + 30 * number)
            await asyncio.sleep(0.05)
        for _ in range(2):
            left.append(files.copy())
            await asyncio.sleep(0.7)
    for copy in left:
        async with started(store_dir=HELD, files=copy) as server:
            await asyncio.sleep(5)
            found = bodies(server)
            assert set(found) == set(sent)
            # What came since the last save, a second ago, may come twice.
            assert all(found.count(body) <= 2 for body in sent)


async def test_a_delivery_time_is_durable_before_it_is_acknowledged(tmp_path: Path) -> None:
    async with started(store_dir=tmp_path, sync_flush=True) as server:
        reply = await after(server, b"one", 1_000)
        store = server.broker.log.store
        assert (reply.code, store.flushed_position) == (0, store.end_position)
        assert reply.recall_handle


def test_an_empty_broker_has_no_timer_files(tmp_path: Path) -> None:
    @in_virtual_time
    async def story() -> None:
        async with started(store_dir=tmp_path) as server:
            await send(server, b"plain", "")
            await asyncio.sleep(5)

    story()
    assert not [path for path in tmp_path.rglob("*") if "timer" in path.name]


def unpacked(kind: str, directory: Path) -> Path:
    """A genuine directory; its sparse files stay sparse."""
    with tarfile.open(STORES / f"{kind}.tar.xz") as archive:
        for member in archive:
            if "timerlog/0" in member.name or member.name.endswith("timerwheel"):
                _place(archive, member, directory)
            else:
                unpack(archive, directory, [member])
    return directory


def _place(archive: tarfile.TarFile, member: tarfile.TarInfo, directory: Path) -> None:
    source = archive.extractfile(member)
    assert source is not None
    with (directory / member.name).open("wb") as file:
        file.truncate(member.size)
        empty = bytes(1 << 16)
        while piece := source.read(1 << 16):
            if piece != empty[: len(piece)]:
                file.write(piece)
            else:
                file.seek(len(piece), 1)


@pytest.mark.parametrize(("kind", "waiting"), [("5.5.0-clean", 2), ("5.5.0-torn", 4)])
async def test_timed_messages_of_an_apache_directory_are_delivered_and_no_others(
    kind: str, waiting: int, tmp_path: Path
) -> None:
    directory = unpacked(kind, tmp_path)

    def delivered(server: BrokerServer) -> list[bytes]:
        found = [one for queue in (0, 1) for one in held(server, "TopicB", queue)]
        return [one.body for one in found if b"TIMER_DEQUEUE_MS" in one.properties]

    clock = this_loop().clock
    saved = unpack_checkpoint((directory / "config" / "timercheck").read_bytes())
    clock.shift_wall_time(saved.read_ms + 1_000 - clock.now_ms())
    async with started(store_dir=directory, retention=1 << 50) as server:
        assert server.broker.delivery.timer.behind == 0
        before = delivered(server)
        await asyncio.sleep(5)
        assert delivered(server) == before
        clock.shift_wall_time(2 * 3_600_000 + 60_000)
        await asyncio.sleep(10)
        assert len(delivered(server)) == len(before) + waiting
        assert set(delivered(server)) == {b"timer %d" % number for number in range(4)}
    async with started(store_dir=directory, retention=1 << 50) as server:
        await asyncio.sleep(5)
        assert len(delivered(server)) == len(before) + waiting


async def test_messages_popped_from_apaches_broker_are_revived_by_the_timer() -> None:
    """Its notes wait on the wheel; two messages were given out, one of them acknowledged."""
    async with started() as server:
        broker, clock = server.broker, this_loop().clock
        for body in (b"one", b"two"):
            await send(server, body, "")
        broker.tables.groups.find("g", 1)
        popped: dict[str, Any] = {"group": "g", "topic": "orders", "queue_id": 0, "start": 0}
        pop_ms = clock.now_ms()
        given = CheckpointBody(count=2, steps=[0, 1], invisible_ms=10_000, pop_ms=pop_ms, **popped)
        acked = AckBody(offset=0, pop_ms=pop_ms, **popped)
        revive = "rmq_sys_REVIVE_LOG_DefaultCluster"
        for tag, note, at in (("ck", given, 9_000), ("ack", acked, 10_000)):
            properties = {"TAGS": tag, "TIMER_DELIVER_MS": str(pop_ms + at)}
            record = replace(held(server)[0], body=encode_body(note))
            broker.log.ingest.reappend(
                record, topic=revive, queue_id=2, properties=properties, reconsume_times=0
            )
        assert broker.log.store.bounds(revive, 2) == (0, 0)
        await asyncio.sleep(9.5)
        assert broker.log.store.bounds(revive, 2) == (0, 1)
        await asyncio.sleep(10)
        assert [one.body for one in held(server, "%RETRY%g+orders")] == [b"two"]
        assert broker.tables.offsets.get("g", "orders", 0) == 2
