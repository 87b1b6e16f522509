"""A server on a real socket, and one in virtual time where time matters."""

import asyncio
import contextlib
import logging
import socket
from typing import Any

import pytest

from roquet.model.errors import CallRefused, ConfigError, ConnectFailed, ConnectionLost
from roquet.net.async_watermark import AsyncWatermark
from roquet.net.channel import Channel
from roquet.net.router import Peer, ReplyWhen, Router
from roquet.net.server import DESCRIPTORS_KEPT, GRACE_MS, IDLE_MS, Server, descriptors_max
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.wire.call import Reply
from roquet.wire.calls.route import GetKV, GetRoute, ListKV, PutKV, ValueReply
from roquet.wire.codes import VERSION_GO_AWAY, ResponseCode
from roquet.wire.command import Command, decode
from roquet.wire.fields import encode_call

ECHO = GetKV(namespace="echo", key="k")


async def raw(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", server.port)


async def read_command(reader: asyncio.StreamReader) -> Command:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return decode(await reader.readexactly(size))


async def attended(server: Server, count: int) -> None:
    """Wait until so many peers are connected, as the server sees it."""
    while len(server.peers) != count:  # noqa: ASYNC110 - nothing tells us
        await asyncio.sleep(0.001)


async def test_many_requests_in_one_write_are_all_answered(server: Server) -> None:
    reader, writer = await raw(server)
    writer.write(b"".join(encode_call(ECHO, opaque=opaque) for opaque in range(5_000)))
    answers = [await read_command(reader) for _ in range(5_000)]
    assert [answer.opaque for answer in answers] == list(range(5_000))
    writer.close()
    await attended(server, 0)


@pytest.mark.parametrize(
    "bytes_", [b"\x7f\xff\xff\xff", b"\x00\x00\x00\x06\x00\x00\x00\x02{]", b"\x16\x03\x01\x02\x00"]
)
async def test_a_peer_that_breaks_the_protocol_is_closed_and_others_live(
    server: Server, bytes_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with await Channel.connect("127.0.0.1", server.port) as other:
        reader, writer = await raw(server)
        writer.write(bytes_)
        assert await reader.read() == b""
        writer.close()
        assert (await other.call(ECHO)).value == "k"
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1


async def test_a_connection_closed_inside_a_frame_leaves_no_state(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await raw(server)
    writer.write(encode_call(ECHO, opaque=1)[:-3])
    await writer.drain()
    await attended(server, 1)
    writer.close()
    await attended(server, 0)
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


async def test_an_unknown_request_is_answered_and_the_connection_stays(server: Server) -> None:
    reader, writer = await raw(server)
    header = b'{"code":4711,"opaque":1,"version":513,"language":"JAVA","flag":0}'
    word = len(header).to_bytes(4, "big")
    writer.write((4 + len(header)).to_bytes(4, "big") + word + header)
    assert (await read_command(reader)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    writer.write(encode_call(ECHO, opaque=2))
    assert (await read_command(reader)).ext == {"value": "k"}
    writer.close()


async def test_a_handler_knows_its_peer(server: Server, router: Router) -> None:
    met: list[Peer] = []

    def meet(call: ListKV, peer: Peer) -> ValueReply:
        met.append(peer)
        return ValueReply(value=peer.address)

    router.add(ListKV, meet)
    async with await Channel.connect("127.0.0.1", server.port) as channel:
        await channel.call(ListKV(namespace="n"))
        (peer,) = server.peers
        assert met == [peer]
        assert peer.address.startswith("127.0.0.1:")
        assert peer.host_bytes[:4] == b"\x7f\x00\x00\x01"
        assert not peer.closed
    await attended(server, 0)
    assert peer.closed


def test_a_port_in_use_is_named_with_what_to_do() -> None:
    async def scene() -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            with pytest.raises(
                ConfigError, match=f"port {port} is in use: stop the other .*--port"
            ):
                await Server(Router(), host="127.0.0.1", port=port).start()

    asyncio.run(scene())


@pytest.mark.parametrize("host", ["203.0.113.1", "no..host"])
async def test_an_address_that_is_not_ours_is_named(host: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot listen on {host}:0"):
        await Server(Router(), host=host).start()


async def test_a_number_that_is_no_port_is_named() -> None:
    with pytest.raises(ConfigError, match="70000 is no port"):
        await Server(Router(), port=70_000).start()


async def test_a_stop_answers_what_is_in_flight(router: Router) -> None:
    closed = asyncio.Event()
    async with Server(router, host="127.0.0.1") as server:
        channel = await Channel.connect("127.0.0.1", server.port)
        channel.on_close(lambda _: closed.set())
        calls = [asyncio.create_task(channel.call(GetRoute(topic="150"))) for _ in range(5)]
        await channel.call(ECHO)
    assert [(await call).body for call in calls] == [b"150"] * 5
    await closed.wait()
    with pytest.raises(ConnectFailed):
        await Channel.connect("127.0.0.1", server.port)
    await server.stop()


@in_virtual_time
async def test_a_stop_releases_waiting_handlers(router: Router) -> None:
    clock = this_loop().clock
    mark = AsyncWatermark(clock=clock)

    async def poll(call: ListKV, peer: Peer) -> Reply:
        return ValueReply(value=str(await mark.reach(1, clock.monotonic_ms() + 15_000)))

    router.add(ListKV, poll)
    server = Server(router, clock=clock)
    server.on_stopping(mark.release)
    await server.start()
    channel = await Channel.connect("127.0.0.1", server.port, clock=clock)
    call = asyncio.create_task(channel.call(ListKV(namespace="n"), 20_000))
    await channel.call(ECHO)
    await server.stop()
    assert (await call).body == b""
    assert clock.monotonic_ms() < 1_000


@in_virtual_time
async def test_a_stop_answers_what_waits_for_a_number(router: Router) -> None:
    clock = this_loop().clock
    mark = AsyncWatermark(clock=clock)

    def hold(call: ListKV, peer: Peer) -> ReplyWhen:
        now_ms = clock.monotonic_ms()
        limit_ms = now_ms + int(call.namespace)
        return ReplyWhen(mark, 1, now_ms, limit_ms, lambda reached: ValueReply(value=str(reached)))

    router.add(ListKV, hold)
    async with Server(router, clock=clock) as server:
        channel = await Channel.connect("127.0.0.1", server.port, clock=clock)
        calls = [
            asyncio.create_task(channel.call(ListKV(namespace=wait_ms), 20_000))
            for wait_ms in ("500", "1000")
        ]
        await channel.call(ECHO)
    assert [(await call).code for call in calls] == [ResponseCode.SUCCESS] * 2
    assert 1_000 <= clock.monotonic_ms() < 1_100


@in_virtual_time
async def test_a_stop_waits_for_its_grace_period_at_most(router: Router) -> None:
    clock = this_loop().clock
    async with Server(router, clock=clock) as server:
        channel = await Channel.connect("127.0.0.1", server.port, clock=clock)
        call = asyncio.create_task(channel.call(GetRoute(topic="60000"), 90_000))
        await channel.call(ECHO)
    assert GRACE_MS <= clock.monotonic_ms() < GRACE_MS + 100
    with pytest.raises(ConnectionLost):
        await call


@pytest.mark.parametrize(
    ("version", "told"), [(VERSION_GO_AWAY + 1, True), (VERSION_GO_AWAY, False)]
)
async def test_new_requests_during_a_stop_are_sent_away(
    router: Router, version: int, told: bool
) -> None:
    in_flight = asyncio.Event()

    async def wait(call: ListKV, peer: Peer) -> None:
        await in_flight.wait()

    router.add(ListKV, wait)
    server = Server(router, host="127.0.0.1", grace_ms=30_000)
    await server.start()
    reader, writer = await raw(server)
    writer.write(encode_call(ListKV(namespace="n"), opaque=1, version=version))
    writer.write(encode_call(ECHO, opaque=2, version=version))
    answers = [await read_command(reader)]
    stop = asyncio.create_task(server.stop())
    await asyncio.sleep(0)
    writer.write(encode_call(ECHO, opaque=3, version=version))
    if told:
        answers.append(await read_command(reader))
    else:
        await asyncio.sleep(0.05)
    in_flight.set()
    answers.append(await read_command(reader))
    assert await reader.read() == b""
    await stop
    writer.close()
    sent_away = [(3, ResponseCode.GO_AWAY)] if told else []
    assert [(a.opaque, a.code) for a in answers] == [(2, 0), *sent_away, (1, 0)]


@in_virtual_time
async def test_our_own_client_sees_the_go_away_as_a_definite_refusal(router: Router) -> None:
    clock = this_loop().clock
    server = Server(router, clock=clock)
    await server.start()
    channel = await Channel.connect("127.0.0.1", server.port, clock=clock)
    call = asyncio.create_task(channel.call(GetRoute(topic="500")))
    await channel.call(ECHO)
    stop = asyncio.create_task(server.stop())
    await asyncio.sleep(0.1)
    with pytest.raises(CallRefused) as caught:
        await channel.call(ECHO)
    assert (caught.value.code, caught.value.definite) == (ResponseCode.GO_AWAY, True)
    assert (await call).body == b"500"
    await stop


@in_virtual_time
@pytest.mark.parametrize("after_s", [0, 0.5, 3.2])
async def test_a_stop_that_is_cancelled_leaves_no_connection_open(
    router: Router, after_s: float
) -> None:
    clock = this_loop().clock
    router.add(ListKV, lambda call, peer: ValueReply(body=bytes(10_000)))
    server = Server(router, clock=clock)
    await server.start()
    made: Any = await this_loop().create_connection(asyncio.Protocol, "127.0.0.1", server.port)
    transport = made[0]
    transport.pause_reading()
    transport.write(encode_call(ListKV(namespace="n"), opaque=1))
    transport.write(encode_call(GetRoute(topic="60000"), opaque=2))
    await asyncio.sleep(0.1)
    stop = asyncio.create_task(server.stop())
    await asyncio.sleep(after_s)
    stop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stop
    await asyncio.sleep(0)
    assert not server.peers


@in_virtual_time
async def test_a_silent_peer_is_closed_and_a_talking_one_stays(router: Router) -> None:
    clock = this_loop().clock
    async with Server(router, clock=clock) as server:
        silent = await Channel.connect("127.0.0.1", server.port, clock=clock)
        talks = await Channel.connect("127.0.0.1", server.port, clock=clock)
        polls = await Channel.connect("127.0.0.1", server.port, clock=clock)
        poll = asyncio.create_task(polls.call(GetRoute(topic="500000"), 600_000))
        for _ in range(6):
            await clock.sleep(30_000)
            await talks.call(ECHO)
        assert silent.closed
        assert not talks.closed
        assert (await poll).body == b"500000"
        assert IDLE_MS < 180_000
        await talks.close()
        await polls.close()


@in_virtual_time
async def test_silent_peers_are_closed_in_the_order_in_which_they_came(router: Router) -> None:
    clock, closed = this_loop().clock, list[str]()
    async with Server(router, clock=clock) as server:
        channels = [await Channel.connect("127.0.0.1", server.port, clock=clock) for _ in range(9)]
        connections = sorted(
            server.peers, key=lambda connection: int(connection.address.rpartition(":")[2])
        )
        assert len(connections) == len(channels)
        for connection in connections:
            connection.on_close(lambda gone: closed.append(gone.address))
        await clock.sleep(180_000)
    assert closed == [connection.address for connection in connections]  # ports are given in turn


async def test_a_connection_made_during_a_stop_is_dropped(router: Router) -> None:
    server = Server(router, host="127.0.0.1")
    await server.start()
    with socket.create_connection(("127.0.0.1", server.port)) as late:
        await server.stop()
        late.settimeout(1)
        with contextlib.suppress(ConnectionResetError):
            assert late.recv(1) == b""
    assert not server.peers


HALF: bytes = encode_call(ECHO, opaque=1)[:-3]


async def test_hundreds_of_half_open_connections_are_bounded_and_disturb_nobody(
    server: Server,
) -> None:
    silent = [await raw(server) for _ in range(150)]
    halves = [await raw(server) for _ in range(150)]
    for _, writer in halves:
        writer.write(HALF)
    await attended(server, 300)
    async with await Channel.connect("127.0.0.1", server.port) as other:
        assert (await other.call(ECHO)).value == "k"
    for _, writer in silent + halves:
        writer.close()
    await attended(server, 0)


async def test_without_spare_descriptors_connections_are_refused_with_one_log_line(
    router: Router, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Server(router, host="127.0.0.1") as server:
        async with await Channel.connect("127.0.0.1", server.port) as early:
            await early.call(ECHO)
            connection: Any = next(iter(server.peers))
            monkeypatch.setattr(server, "descriptors_max", connection.descriptor + DESCRIPTORS_KEPT)
            for _ in range(3):
                reader, writer = await raw(server)
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
                writer.close()
            assert (await early.call(ECHO)).value == "k"
            assert len(server.peers) == 1
        monkeypatch.setattr(server, "descriptors_max", descriptors_max())
        async with await Channel.connect("127.0.0.1", server.port) as late:
            assert (await late.call(ECHO)).value == "k"
    (line,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert line.startswith("new connections are refused: 1 are open")


async def test_large_frames_wait_for_each_other_when_together_they_are_too_large(
    router: Router, kept: list[str]
) -> None:
    async with Server(router, host="127.0.0.1") as server:
        server.limits.large_frames.size_max = 300_000
        frames = [
            encode_call(PutKV(namespace="n", key="k", value=str(n), body=bytes(200_000)), opaque=n)
            for n in range(3)
        ]
        connections = [await raw(server) for _ in frames]
        for (_, writer), frame in zip(connections, frames, strict=True):
            writer.write(frame[:150_000])
            await writer.drain()
        while not server.limits.large_frames.has_waiting:  # noqa: ASYNC110 - nothing tells us
            await asyncio.sleep(0.001)
        assert kept == []
        for (_, writer), frame in zip(reversed(connections), reversed(frames), strict=True):
            writer.write(frame[150_000:])
        for reader, writer in connections:
            assert (await read_command(reader)).code == 0
            writer.close()
        assert sorted(kept) == ["0", "1", "2"]
        assert server.limits.large_frames.size == 0


async def test_a_server_may_listen_at_a_second_port(router: Router) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with Server(router, host="127.0.0.1", also=port) as server:
        assert server.ports == [server.port, port]
        for each in server.ports:
            async with await Channel.connect("127.0.0.1", each) as channel:
                assert (await channel.call(ECHO)).value == "k"
    for each in (server.port, port):
        with pytest.raises(ConnectFailed):
            await Channel.connect("127.0.0.1", each)


async def test_a_start_that_is_cancelled_at_the_second_port_ends_the_first(
    router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, second = asyncio.get_running_loop(), 4711
    create_server: Any = loop.create_server

    async def create_first(factory: Any, host: str, port: int, **options: Any) -> Any:
        if port == second:
            raise asyncio.CancelledError
        return await create_server(factory, host, port, **options)

    monkeypatch.setattr(loop, "create_server", create_first)
    server = Server(router, host="127.0.0.1", also=second)
    with pytest.raises(asyncio.CancelledError):
        await server.__aenter__()
    with pytest.raises(ConnectFailed):
        await Channel.connect("127.0.0.1", server.port)


async def test_a_second_port_that_cannot_be_had_is_one_warning(
    router: Router, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        async with Server(router, host="127.0.0.1", also=port) as server:
            assert server.ports == [server.port]
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"port {port}, which some old clients use, is not served: ")
