"""A master's side of the stream, against a replica made of bytes.

By name: HAServerTest of Apache RocketMQ (connections, largest acknowledgement), FlowMonitorTest.
"""

import asyncio
import socket
import struct
from contextlib import AsyncExitStack
from typing import Any

import pytest
import uvloop
from tests.broker.replication import conftest
from tests.broker.replication.conftest import SYNC, MakeParts, connected, log_of
from tests.wire.replication.conftest import conversation

from roquet.net.clock import SystemClock
from roquet.rules.replication.acknowledgement import PutStatus
from roquet.wire.replication.classic_stream import encode_report

pytestmark = pytest.mark.virtual_time

SMALL: dict[str, Any] = {"log_file_size": 4_096}


async def test_an_empty_replica_gets_the_bytes_that_apaches_master_sends(parts: MakeParts) -> None:
    """The log ends at 3,101,292 in files of 1 MiB: the stream begins at 2,097,152."""
    made = parts(log_file_size=1 << 20)
    made.store.raw.append(2_097_152, b"x" * 1_004_140)
    async with connected(made) as replica:
        replica.writer.write(bytes.fromhex(conversation("classic-empty-replica")[0].hex))
        await made.clock.sleep(4_900)
        headers = [s.hex for s in conversation("classic-empty-replica") if s.size == 12]
        at = 0
        for header in headers:
            assert replica.received[at : at + 12].hex() == header
            at += 12 + 32_768
        assert replica.log == b"x" * 1_004_140
        await made.clock.sleep(1_000)
        heartbeat = conversation("classic-caught-up")[1].hex
        assert replica.received[-12:].hex() == heartbeat


async def test_the_stream_begins_where_the_replica_ends(parts: MakeParts) -> None:
    made = parts(**SMALL)
    middle, end = made.append(3), made.append(100)
    async with connected(made) as replica:
        await made.clock.sleep(3_000)
        assert replica.received == b"", "nothing comes before the first report"
        replica.report(middle)
        await made.clock.sleep(100)
        assert replica.frames[0].position == middle
        assert replica.log == log_of(made, middle)
        ends = {frame.position + len(frame.body) for frame in replica.frames}
        assert {4_096, 8_192, end} <= ends, "no frame crosses the end of a file"


async def test_an_append_is_sent_at_once_and_costs_nothing_without_a_replica(
    parts: MakeParts,
) -> None:
    made = parts()
    async with connected(made) as replica:
        replica.report(0)
        await made.clock.sleep(100)
        began_ms = made.clock.monotonic_ms()
        end = made.append()
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(replica.log) == end
        assert made.clock.monotonic_ms() == began_ms
    made.server.source.grown.clear()
    made.append()
    assert not made.server.source.grown.is_set(), "nobody is told of appends any more"


async def test_reports_acknowledge_what_senders_wait_for(parts: MakeParts) -> None:
    made = parts(**SYNC)
    async with connected(made) as one, connected(made) as other:
        end = made.append(5)
        one.report(end)
        other.report(0)
        await made.clock.sleep(10)
        assert len(made.server) == 2
        assert made.acknowledgements.replicated == end
        other.report(end - 1)
        await made.clock.sleep(10)
        facts = {each.report: each for each in made.server.facts}
        assert (facts[end].lag, facts[end - 1].lag, facts[end].position) == (0, 1, end)
        assert facts[end].address.startswith("127.0.0.1:")
    await made.clock.sleep(10)
    assert (len(made.server), made.acknowledgements.in_sync) == (0, 1)


@pytest.mark.parametrize("reports", [b"", encode_report(0)])
async def test_strangers_of_its_host_take_no_acknowledgement_from_a_replica(
    parts: MakeParts, reports: bytes
) -> None:
    made = parts(**SYNC)
    end = made.append()
    async with connected(made) as replica, AsyncExitStack() as strangers:
        replica.report(end)
        await made.clock.sleep(10)
        for _ in range(3):
            stranger = await strangers.enter_async_context(connected(made))
            stranger.writer.write(reports)
            await made.clock.sleep(10)
            end = made.append()
            sent = asyncio.create_task(made.acknowledgements.status(end))
            await made.clock.sleep(10)
            assert not sent.done()
            replica.report(end)
            assert await sent is PutStatus.PUT_OK
        await made.clock.sleep(5_000)
        assert not replica.is_over


async def test_a_report_of_more_than_was_sent_ends_the_connection(
    parts: MakeParts, caplog: pytest.LogCaptureFixture
) -> None:
    made = parts(ha_flow_control=True, ha_bytes_per_second=1_000, **SYNC)
    end = made.append(100)
    async with connected(made) as replica:
        replica.report(0)
        await made.clock.sleep(10)
        assert len(replica.log) == 1_000
        replica.report(end)
        await made.clock.sleep(10)
        assert replica.is_over
    assert made.acknowledgements.replicated == 0
    assert "and was sent the log up to 1000" in caplog.text


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (encode_report(10_000), "whose directory has to be emptied"),
        (b"GET / HTTP/1.1\r\n\r\n", "it is no replica"),
        (b"\xff" * 8, "reports a log that ends at -1"),
        (encode_report(300), "this master's begins at 8192: empty its directory"),
    ],
)
async def test_a_report_that_cannot_be_true_ends_the_connection_with_one_line(
    sent: bytes, why: str, parts: MakeParts, caplog: pytest.LogCaptureFixture
) -> None:
    made = parts(**SMALL, **SYNC)
    made.store.raw.append(8_192, b"x" * 100)
    async with connected(made) as good:
        good.report(8_292)
        await made.clock.sleep(10)
        for _ in range(3):
            async with connected(made) as replica:
                replica.writer.write(sent)
                await made.clock.sleep(100)
                assert replica.is_over
                assert replica.received == b""
        assert caplog.text.count(why) == 1
        assert not good.is_over, "others are served all the same"
        assert made.acknowledgements.in_sync == 2


async def test_half_a_report_is_waited_for(parts: MakeParts) -> None:
    made = parts()
    end = made.append()
    async with connected(made) as replica:
        replica.writer.write(encode_report(0)[:5])
        await made.clock.sleep(1_000)
        assert replica.received == b""
        replica.writer.write(encode_report(0)[5:])
        await made.clock.sleep(1_000)
        assert len(replica.log) == end


async def test_a_silent_replica_is_disconnected(parts: MakeParts) -> None:
    made = parts(ha_housekeeping_interval=20_000)
    async with connected(made) as silent, connected(made) as mute:
        silent.report(0)
        await made.clock.sleep(19_000)
        assert not silent.is_over
        await made.clock.sleep(2_000)
        assert silent.is_over
        assert mute.is_over, "one that has never reported as well"
        assert [frame.body for frame in silent.frames] == [b""] * len(silent.frames)
        assert 3 <= len(silent.frames) <= 4, "a heartbeat every 5 s"


async def test_flow_control_bounds_what_a_replica_is_sent_in_a_second(parts: MakeParts) -> None:
    made = parts(ha_flow_control=True, ha_bytes_per_second=10_000, ha_batch_size=4_000)
    end = made.append(5, size=10_000)
    async with connected(made) as replica:
        replica.report(0)
        await made.clock.sleep(10)
        for seconds in range(1, 5):
            await made.clock.sleep(1_000)
            assert len(replica.log) == 10_000 * (seconds + 1)
        assert made.server.facts[0].bytes_per_second == 10_000
        made.settings.change({"haFlowControlEnable": "false"}, 0)
        await made.clock.sleep(1_000)
        assert len(replica.log) == end
        assert max(len(frame.body) for frame in replica.frames) == 4_000


async def test_a_replica_that_does_not_read_holds_up_nobody(parts: MakeParts) -> None:
    made = parts()
    end = made.append(40, size=100_000)
    async with connected(made) as slow, connected(made) as quick:
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        slow.report(0)
        quick.report(0)
        await made.clock.sleep(1_000)
        assert len(quick.log) == end
        assert made.server.facts[0].position <= 1 << 20, "of 4 MB: what is unread is bounded"


class RealLoop:
    """Stands for a virtual loop where the time is real."""

    clock = SystemClock()


def test_a_replica_whose_reset_is_noticed_by_a_write_is_one_line(
    parts: MakeParts, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under uvloop; in one turn of the loop the reset arrives, and a client's message."""
    monkeypatch.setattr(conftest, "this_loop", lambda: RealLoop)

    async def run() -> None:
        made = parts()
        made.append()

        class Client(asyncio.Protocol):
            def data_received(self, _data: bytes) -> None:
                made.append()

        loop = asyncio.get_running_loop()
        async with await loop.create_server(Client, "127.0.0.1", 0) as listener:
            client = socket.create_connection(listener.sockets[0].getsockname())
            await made.server.start("127.0.0.1", 0)
            for _ in range(20):
                replica = socket.create_connection(("127.0.0.1", made.server.port))
                replica.sendall(encode_report(0))
                await asyncio.sleep(0.02)
                replica.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                replica.close()  # as the kernel does for a killed process with unread bytes
                client.send(b"a message")
                await asyncio.sleep(0.02)
            client.close()
            await made.server.close()

    uvloop.run(run())
    assert "is disconnected" in caplog.text
    assert "cannot be served" not in caplog.text
