"""A replica's side of the stream, against a master made of bytes.

By name: HAClientTest of Apache RocketMQ (another address of the master).
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.broker.conftest import background
from tests.broker.replication.conftest import MakeParts, ReplicationParts
from tests.wire.replication.conftest import conversation, sent_by

from roquet.broker.replication.role import Role
from roquet.broker.replication.stream.framing import LogDiverged
from roquet.model.errors import StoreFull
from roquet.rules.replication.acknowledgement import BrokerRole, ReplicaAck
from roquet.testing.clock import this_loop
from roquet.wire.replication.classic_stream import REPORT_SIZE, encode_frame_header

pytestmark = pytest.mark.virtual_time

SLAVE: dict[str, Any] = {"broker_role": BrokerRole.SLAVE, "broker_id": 1, "log_file_size": 1 << 20}


class Master:
    """A master that sends what a test says, and keeps what is reported."""

    def __init__(self) -> None:
        self.reports: list[int] = []
        self.raw_reports = b""
        self.connections = 0
        self.address = ""
        self._writer: asyncio.StreamWriter | None = None

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._listener.sockets[0].getsockname()[1]
        self.address = f"127.0.0.1:{port}"

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writer = writer
        self._task = asyncio.create_task(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                report = await reader.readexactly(REPORT_SIZE)
                self.raw_reports += report
                self.reports.append(int.from_bytes(report, "big"))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass

    def send(self, data: bytes) -> None:
        assert self._writer is not None
        self._writer.write(data)

    def frame(self, position: int, body: bytes) -> None:
        self.send(encode_frame_header(position, len(body)) + body)

    def hang_up(self) -> None:
        assert self._writer is not None
        self._writer.close()


@asynccontextmanager
async def following(made: ReplicationParts) -> AsyncIterator[Master]:
    """A master that a replica follows."""
    master = Master()
    await master.start()
    follow(made, master.address)
    async with background(made.client.serve()):
        await made.clock.sleep(10)
        yield master


def follow(made: ReplicationParts, address: str) -> None:
    made.role.change(msgspec.structs.replace(made.role.current, master_stream=address))


class FullDisk:
    """A replica's disk that takes nothing until a test says so."""

    def __init__(self, made: ReplicationParts, monkeypatch: pytest.MonkeyPatch) -> None:
        self._append = made.store.raw.append
        self.is_full = True
        monkeypatch.setattr(made.store.raw, "append", self._take)

    def _take(self, position: int, data: bytes) -> None:
        if self.is_full:
            raise StoreFull("no room")
        self._append(position, data)


def masters_log(parts: MakeParts, count: int = 20, size: int = 100) -> bytes:
    """A log of some messages of one queue."""
    master = parts(log_file_size=1 << 20)
    end = master.append(count, size)
    return bytes(master.store.raw.read(0, end))


async def test_an_empty_replica_takes_the_bytes_that_apaches_master_sends(parts: MakeParts) -> None:
    made = parts(**SLAVE)
    async with following(made) as master:
        replica_first = conversation("classic-empty-replica")[0].hex
        assert master.raw_reports.hex() == replica_first, "it reports at once"
        stream = sent_by("classic-empty-replica", "master")[: 4 * (12 + 32_768)]
        master.send(stream)
        await made.clock.sleep(100)
        raw = made.store.raw
        assert (raw.begin, raw.end) == (0x200000, 0x200000 + 4 * 32_768)
        assert bytes(raw.read(0x200000, 32_768)) == stream[12 : 12 + 32_768]
        assert master.reports[-1] == raw.end


async def test_a_replica_that_has_all_reports_every_5_seconds_as_apaches_does(
    parts: MakeParts,
) -> None:
    log, made = masters_log(parts), parts(**SLAVE)
    made.store.raw.append(0, log)
    captured, here = f"{0x2F526C:016x}", f"{len(log):016x}"
    async with following(made) as master:
        for segment in conversation("classic-caught-up")[:8]:
            if segment.sender == "master":
                master.send(bytes.fromhex(segment.hex.replace(captured, here)))
                await made.clock.sleep(5_000)
        four = master.raw_reports[: 4 * REPORT_SIZE].hex()
        assert four.replace(here, captured) == "".join(
            segment.hex for segment in conversation("classic-caught-up")[:8:2]
        )
        assert master.connections == 1


async def test_frames_of_any_size_become_messages_and_wake_who_waits(parts: MakeParts) -> None:
    log, made = masters_log(parts), parts(**SLAVE)
    async with following(made) as master:
        deadline_ms = made.clock.monotonic_ms() + 10_000
        waiting = asyncio.create_task(made.arrivals.reach("orders", 0, 20, None, deadline_ms))
        for at in range(0, len(log), 77):
            master.frame(at, log[at : at + 77])
            await made.clock.sleep(1)
        assert await waiting
        assert made.store.bounds("orders", 0) == (0, 20)
        assert bytes(made.store.raw.read(0, len(log))) == log
        assert master.reports[-1] == len(log)
        assert made.client.facts.is_connected
        assert made.client.facts.end == len(log)
        assert made.client.facts.read_ms >= made.client.facts.written_ms > 0


async def test_half_a_record_is_cut_off_after_a_lost_connection(parts: MakeParts) -> None:
    log, made = masters_log(parts, count=2), parts(**SLAVE)
    half = len(log) // 2
    async with following(made) as master:
        master.frame(0, log[: half + 30])
        await made.clock.sleep(100)
        assert master.reports == [0, half + 30]
        master.hang_up()
        await made.clock.sleep(6_000)
        assert master.reports[2:] == [half]
        master.frame(half, log[half:])
        await made.clock.sleep(100)
        assert made.store.bounds("orders", 0) == (0, 2)


@pytest.mark.parametrize(
    ("position", "body", "why"),
    [
        (4_096, b"x", "this replica's ends at"),
        (0, b"x", "the logs are not of one past"),
        (4_096, b"", "this replica's ends at"),
    ],
)
async def test_bytes_that_do_not_follow_end_the_connection_with_one_line(
    position: int, body: bytes, why: str, parts: MakeParts, caplog: pytest.LogCaptureFixture
) -> None:
    log, made = masters_log(parts), parts(**SLAVE)
    async with following(made) as master:
        master.frame(0, log)
        for _ in range(3):
            await made.clock.sleep(100)
            master.frame(position, body)
            await made.clock.sleep(5_100)
        assert master.connections == 4
        assert made.store.raw.end == len(log)
        assert caplog.text.count(why) == 1


@pytest.mark.parametrize("position", [96 * 1024, (1 << 20) - 1])
async def test_a_master_with_files_of_another_size_is_found_out(
    position: int, parts: MakeParts, caplog: pytest.LogCaptureFixture
) -> None:
    made = parts(**SLAVE)
    async with following(made) as master:
        master.frame(position, b"xx")
        await made.clock.sleep(100)
        assert made.store.raw.end == 0
        assert "give this replica the master's mappedFileSizeCommitLog" in caplog.text


async def test_what_is_no_frame_ends_the_connection(
    parts: MakeParts, caplog: pytest.LogCaptureFixture
) -> None:
    made = parts(**SLAVE)
    async with following(made) as master:
        master.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await made.clock.sleep(6_000)
        assert master.connections == 2
        assert "bytes of log: 0 to" in caplog.text


async def test_a_silent_master_is_left(parts: MakeParts, caplog: pytest.LogCaptureFixture) -> None:
    made = parts(**SLAVE)
    async with following(made) as master:
        await made.clock.sleep(19_000)
        assert master.connections == 1
        await made.clock.sleep(8_000)
        assert master.connections == 2
        assert "it was silent for 20" in caplog.text


async def test_another_master_is_followed_at_once(parts: MakeParts) -> None:
    made = parts(**SLAVE)
    async with following(made) as first:
        second = Master()
        await second.start()
        follow(made, second.address)
        await made.clock.sleep(10)
        assert (first.connections, second.connections) == (1, 1)
        made.role.change(Role(role=BrokerRole.SLAVE, broker_id=1))
        await made.clock.sleep(60_000)
        assert second.connections > 0, "without another address it stays"


async def test_a_master_that_is_another_one_while_it_is_connected_to_is_left(
    parts: MakeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, flushes = parts(**SLAVE), asyncio.Event()
    first, second = Master(), Master()
    await first.start()
    await second.start()
    monkeypatch.setattr(made.flush, "step", flushes.wait)
    follow(made, first.address)
    async with background(made.client.serve()):
        await made.clock.sleep(10)
        follow(made, second.address)
        flushes.set()
        await made.clock.sleep(1_000)
        assert (second.connections, second.reports) == (1, [0])
        assert first.reports == [], "a report may complete a send at a former master"


async def test_bytes_of_a_former_master_are_not_appended_once_there_is_room(
    parts: MakeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, made, second = masters_log(parts), parts(**SLAVE), Master()
    await second.start()
    disk = FullDisk(made, monkeypatch)
    async with following(made) as first:
        first.frame(0, log)
        await made.clock.sleep(5_000)
        follow(made, second.address)
        disk.is_full = False
        await made.clock.sleep(10_000)
        assert second.connections == 1
        assert made.store.raw.end == 0


async def test_a_master_that_is_away_is_tried_every_5_seconds_and_named_once(
    parts: MakeParts, caplog: pytest.LogCaptureFixture
) -> None:
    made = parts(**SLAVE)
    follow(made, "127.0.0.1:1")
    async with background(made.client.serve()):
        await made.clock.sleep(60_000)
        assert caplog.text.count("127.0.0.1:1: ") == 1
        assert not made.client.facts.is_connected


async def test_a_master_that_does_not_answer_is_tried_again(
    parts: MakeParts, caplog: pytest.LogCaptureFixture
) -> None:
    made, network = parts(**SLAVE), this_loop().network
    network.partition("127.0.0.1", "10.0.0.9")
    follow(made, "10.0.0.9:10912")
    async with background(made.client.serve()):
        await made.clock.sleep(30_000)
        assert caplog.text.count("it does not answer within 3000 ms") == 1


async def test_a_master_is_not_oneself(parts: MakeParts, caplog: pytest.LogCaptureFixture) -> None:
    made = parts(**SLAVE)
    await made.server.start("127.0.0.1", 0)
    made.client.own_port = made.server.port
    follow(made, f"127.0.0.1:{made.server.port}")
    async with background(made.client.serve()):
        await made.clock.sleep(20_000)
        assert caplog.text.count("that is this broker itself") == 1
    await made.server.close()


async def test_a_full_disk_stops_the_replica_until_there_is_room(
    parts: MakeParts, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, made = masters_log(parts), parts(**SLAVE)
    disk = FullDisk(made, monkeypatch)
    async with following(made) as master:
        master.frame(0, log)
        await made.clock.sleep(60_000)
        assert made.store.raw.end == 0
        assert caplog.text.count("no room") == 1
        assert master.connections == 1, "it stays connected, and reports"
        assert len(master.reports) > 10
        disk.is_full = False
        await made.clock.sleep(2_000)
        assert made.store.bounds("orders", 0) == (0, 20)


async def test_flushed_is_what_is_reported_if_the_settings_say_so(parts: MakeParts) -> None:
    log, made = masters_log(parts), parts(**SLAVE, replica_ack=ReplicaAck.FLUSHED)
    flushed: list[int] = []
    flush_log = made.store.flush_log

    def flush() -> int:
        flushed.append(flush_log())
        return flushed[-1]

    made.store.flush_log = flush  # type: ignore[method-assign]
    async with following(made) as master:
        master.frame(0, log)
        await made.clock.sleep(100)
        assert master.reports == [0, len(log)]
        assert flushed == [len(log)]
        await made.clock.sleep(5_500)
        assert master.reports[2:] == [len(log)]


async def test_messages_that_cannot_be_dispatched_are_named_and_the_log_is_copied_all_the_same(
    parts: MakeParts, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, made = masters_log(parts), parts(**SLAVE)
    dispatch = made.store.raw.dispatch
    faults = [StoreFull("no room for queues")] * 3

    def failing(count_max: int) -> Any:
        if made.store.raw.end and faults:
            raise faults.pop()
        return dispatch(count_max)

    monkeypatch.setattr(made.store.raw, "dispatch", failing)
    async with following(made) as master:
        master.frame(0, log)
        await made.clock.sleep(2_500)
        assert master.reports[-1] == len(log)
        assert made.store.bounds("orders", 0) == (0, 0)
        assert caplog.text.count("no room for queues") == 1
        await made.clock.sleep(1_000)
        assert made.store.bounds("orders", 0) == (0, 20)


async def test_a_log_of_another_past_is_acknowledged_no_further_and_not_followed_again(
    parts: MakeParts, caplog: pytest.LogCaptureFixture
) -> None:
    log, made = masters_log(parts), parts(**SLAVE)
    async with following(made) as master:
        master.frame(0, log)
        await made.clock.sleep(100)
        queue = made.store.raw
        other = bytearray(masters_log(parts, 30)[len(log) :])
        other[20:28] = (3).to_bytes(8, "big")  # its queue offset: 20 comes next
        master.frame(queue.end, bytes(other))
        await made.clock.sleep(100)
        master.reports.clear()
        await made.clock.sleep(5_500)
        assert master.reports == [len(log)]
        master.hang_up()
        await made.clock.sleep(20_000)
        assert master.connections == 1
        assert "different pasts" in caplog.text


async def test_a_fault_of_our_own_is_logged_and_following_goes_on(
    parts: MakeParts, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, made = masters_log(parts), parts(**SLAVE)
    faults = {"append": [ZeroDivisionError()], "dispatch": [ZeroDivisionError()]}
    raw = made.store.raw

    def failing(name: str) -> Any:
        real = getattr(raw, name)

        def act(*arguments: Any) -> Any:
            if raw.end or name == "append":
                for _ in range(len(faults[name])):
                    raise faults[name].pop()
            return real(*arguments)

        return act

    for name in faults:
        monkeypatch.setattr(raw, name, failing(name))
    async with following(made) as master:
        master.frame(0, log)
        await made.clock.sleep(6_000)
        assert "cannot be followed; trying again" in caplog.text
        master.frame(0, log)
        await made.clock.sleep(3_000)
        assert "cannot be dispatched; trying again" in caplog.text
        assert made.store.bounds("orders", 0) == (0, 20)


async def test_a_replica_of_another_past_reports_and_appends_nothing_and_says_so_once(
    parts: MakeParts, caplog: pytest.LogCaptureFixture
) -> None:
    log, made = masters_log(parts), parts(**SLAVE)
    made.store.raw.append(0, log)
    checked: list[str] = []
    changes: list[bool] = []
    made.client.on_compared.append(lambda: changes.append(made.client.has_diverged))
    is_other = True

    async def check(address: str, _stop: int) -> None:
        assert not made.client.facts.is_connected, "nothing is copied yet"
        checked.append(address)
        if is_other:
            raise LogDiverged("the logs are of different pasts")

    made.client.check_log = check
    async with following(made) as master:
        await made.clock.sleep(60_000)
        assert master.reports == []
        assert set(checked) == {master.address}
        (line,) = [r for r in caplog.records if "of different pasts" in r.getMessage()]
        assert line.levelno == logging.ERROR
        assert changes == [True]
        is_other = False
        await made.clock.sleep(6_000)
        assert master.reports[0] == len(log)
        assert changes == [True, False]


async def test_a_master_is_followed_once_it_sends_what_comes_next_here(parts: MakeParts) -> None:
    log, made = masters_log(parts), parts(**SLAVE)
    made.store.raw.append(0, log)
    async with following(made) as master:
        await made.clock.sleep(100)
        assert made.client.facts.is_connected
        assert made.client.following is None, "it may be of another past"
        master.frame(4_096, b"")
        await made.clock.sleep(100)
        assert made.client.following is None
        await made.clock.sleep(2_000)
        master.frame(len(log), b"")
        await made.clock.sleep(100)
        assert made.client.following is not None
        first = made.client.following
        master.hang_up()
        await made.clock.sleep(100)
        assert made.client.following is None
        await made.clock.sleep(2_000)
        master.frame(len(log), b"")
        await made.clock.sleep(100)
        assert made.client.following not in {None, first}
        made.role.change(Role(role=BrokerRole.SLAVE, broker_id=1, master_stream="10.0.0.9:1"))
        assert made.client.following is None


async def test_a_master_that_is_another_one_while_logs_are_compared_is_left(
    parts: MakeParts,
) -> None:
    made, first, second = parts(**SLAVE), Master(), Master()
    await second.start()

    async def check(address: str, _stop: int) -> None:
        if address == first.address:
            follow(made, second.address)

    made.client.check_log = check
    await first.start()
    follow(made, first.address)
    async with background(made.client.serve()):
        await made.clock.sleep(1_000)
        assert (first.reports, second.reports) == ([], [0])
