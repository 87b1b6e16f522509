"""Clients that do not read, or do not end what they begin, in virtual time."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from roquet.net.channel import Channel
from roquet.net.connection import server_connection as module
from roquet.net.connection.server_connection import READ_FULL, ServerConnection
from roquet.net.limits import server_limits as limits_module
from roquet.net.limits.request_limits import LoopLag, RequestLimit
from roquet.net.limits.server_limits import ServerLimits
from roquet.net.memory_transport import connect_in_process
from roquet.net.router import Peer, Router
from roquet.net.server import IDLE_MS, Server
from roquet.rules.admission import BURST_MIN, CLOCK_CHECK_MS, AdmissionLimits
from roquet.testing.clock import this_loop
from roquet.wire.calls.pull import Pull, PullReply
from roquet.wire.calls.route import GetKV, ListKV, PutKV, ValueReply
from roquet.wire.calls.send import Send, SendReply
from roquet.wire.codes import ResponseCode
from roquet.wire.command import Command, decode
from roquet.wire.fields import encode_call, encode_reply
from roquet.wire.frame import FrameReader
from roquet.wire.plain_pull import PlainPull, found_reply, plain_pulls
from roquet.wire.plain_send import SENDS_MAX, PlainSend, plain_sends
from roquet.wire.records.speedups import COMPILED

pytestmark = pytest.mark.virtual_time

HALF: bytes = encode_call(GetKV(namespace="echo", key="k"), opaque=1)[:-3]


async def test_a_client_that_does_not_read_is_not_read_and_at_last_dropped(
    router: Router, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "SERVER_BUFFER_HIGH", 20_000)
    router.add(ListKV, lambda call, peer: ValueReply(body=bytes(10_000)))
    loop = this_loop()
    async with Server(router, clock=loop.clock) as server:
        transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", server.port)
        transport.pause_reading()
        for opaque in range(10):
            transport.write(encode_call(ListKV(namespace="n"), opaque=opaque))
            await asyncio.sleep(0.001)
        (connection,) = server.peers
        assert transport.get_write_buffer_size() > 0
        await loop.clock.sleep(25_000)
        assert not connection.closed
        await loop.clock.sleep(100_000)
        assert connection.closed
    assert "took none of its answers" in caplog.text


async def test_a_client_that_reads_slowly_gets_everything(
    router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SERVER_BUFFER_HIGH", 20_000)
    router.add(ListKV, lambda call, peer: ValueReply(body=bytes(10_000)))
    got: list[int] = []

    class Reader(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            got.append(len(data))
            transport.pause_reading()
            loop.call_later(20, transport.resume_reading)

    loop = this_loop()
    async with Server(router, clock=loop.clock) as server:
        made: Any = await loop.create_connection(Reader, "127.0.0.1", server.port)
        transport = made[0]
        for opaque in range(20):
            transport.write(encode_call(ListKV(namespace="n"), opaque=opaque))
            await asyncio.sleep(0.001)
        await loop.clock.sleep(500_000)
    assert sum(got) > 20 * 10_000


async def test_a_silent_client_that_does_not_read_its_last_answer_is_dropped(
    router: Router, caplog: pytest.LogCaptureFixture
) -> None:
    router.add(ListKV, lambda call, peer: ValueReply(body=bytes(10_000)))
    loop = this_loop()
    async with Server(router, clock=loop.clock) as server:
        transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", server.port)
        transport.pause_reading()
        transport.write(encode_call(ListKV(namespace="n"), opaque=1))
        await loop.clock.sleep(IDLE_MS)
        assert len(server.peers) == 1
        await loop.clock.sleep(IDLE_MS)
        assert not server.peers
    assert "took none of its answers" in caplog.text


async def test_a_peer_that_stops_inside_a_frame_is_closed_as_silent(router: Router) -> None:
    loop = this_loop()
    async with Server(router, clock=loop.clock) as server:
        transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", server.port)
        transport.write(HALF)
        await loop.clock.sleep(IDLE_MS + IDLE_MS // 2)
        assert not server.peers


async def test_a_peer_that_does_not_end_its_large_frame_is_dropped(
    router: Router, kept: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    loop = this_loop()
    async with Server(router, clock=loop.clock) as server:
        server.limits.large_frames.size_max = 300_000
        frame = encode_call(PutKV(namespace="n", key="k", value="v", body=bytes(200_000)), opaque=1)
        stalls, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", server.port)
        stalls.write(frame[:10_000])
        await loop.clock.sleep(1_000)
        waits, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", server.port)
        waits.write(frame[:10_000])
        await loop.clock.sleep(1_000)
        waits.write(frame[10_000:])
        await loop.clock.sleep(1_000)
        assert kept == []
        await loop.clock.sleep(IDLE_MS // 2)
        assert kept == ["v"]
        assert stalls.is_closing()
        assert not waits.is_closing()
    assert "it does not end a large frame" in caplog.text


async def test_clients_that_do_not_read_are_bounded_in_total(
    router: Router, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    router.add(ListKV, lambda call, peer: ValueReply(body=bytes(10_000)))
    monkeypatch.setattr(limits_module, "SETTLE_BYTES", 20_000)
    loop = this_loop()
    async with Server(router, clock=loop.clock) as server:
        server.limits.tally.left = 0
        server.limits.tally.limit = 100_000
        for number in range(10):
            transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", server.port)
            transport.pause_reading()
            for opaque in range(1 + number):
                transport.write(encode_call(ListKV(namespace="n"), opaque=opaque))
            await asyncio.sleep(0.01)
        async with await Channel.connect("127.0.0.1", server.port, clock=loop.clock) as reads:
            for _ in range(50):
                await reads.call(ListKV(namespace="n"))
            connections: Any = server.peers
            assert sum(connection.unsent for connection in connections) <= 100_000 + 20_000
            assert 4 <= len(connections) < 11
    assert "bytes wait for it, and more than 100000 for all clients" in caplog.text


# -- who sends and sends -------------------------------------------------------------------------


class Client(asyncio.Protocol):
    def __init__(self) -> None:
        self._reader = FrameReader()
        self.codes: dict[int, int] = {}
        """By the numbers of the requests, in the order of their answers."""

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            command = decode(frame)
            self.codes[command.opaque] = command.code


class ReadingTransport(asyncio.Transport):
    """Counts how often reading is paused."""

    pauses = 0

    def pause_reading(self) -> None:
        self.pauses += 1

    def resume_reading(self) -> None: ...

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


@pytest.fixture
def slow(router: Router) -> list[int]:
    """A request that takes two milliseconds, for which others have to wait."""
    served: list[int] = []

    def serve(call: ListKV, _peer: Peer) -> None:
        served.append(int(call.namespace))
        this_loop().clock.jump(2)

    router.add(ListKV, serve, RequestLimit(AdmissionLimits(count=100, wait_ms=200)))
    return served


def requests(count: int, size: int = 0) -> list[bytes]:
    key = "%0" + str(max(size, 1)) + "d"
    return [encode_call(ListKV(namespace=key % number), opaque=number) for number in range(count)]


async def another_waits_ms(server: Server) -> list[int]:
    """How long each of some requests of another client takes."""
    clock, found = this_loop().clock, []
    async with await Channel.connect("127.0.0.1", server.port, clock=clock) as channel:
        for _ in range(10):
            before_ms = clock.monotonic_ms()
            await channel.call(GetKV(namespace="echo", key="k"), timeout_ms=60_000)
            found.append(clock.monotonic_ms() - before_ms)
            await clock.sleep(1)
    return found


async def test_other_connections_are_served_while_one_keeps_sending(
    router: Router, slow: list[int]
) -> None:
    loop = this_loop()
    async with Server(router, clock=loop.clock) as server:
        made: Any = await loop.create_connection(Client, "127.0.0.1", server.port)
        transport, client = made
        transport.write(b"".join(requests(1_000)))
        assert max(await another_waits_ms(server)) < 100
        assert len(slow) < 1_000
        await loop.clock.sleep(2_000)
        assert slow == list(range(1_000))
        assert list(client.codes.items()) == [(number, 0) for number in range(1_000)]
        transport.write(requests(1)[0])
        await loop.clock.sleep(100)
        assert len(slow) == 1_001


@pytest.mark.parametrize("size", [100, 5_000, 200_000])
async def test_full_reads_are_served_a_little_at_a_time(
    router: Router, slow: list[int], size: int
) -> None:
    loop = this_loop()
    count = 4_000_000 // size // 5
    async with Server(router, clock=loop.clock) as server:
        made: Any = await loop.create_connection(Client, "127.0.0.1", server.port)
        transport, client = made
        sent = b"".join(requests(count, size))
        for start in range(0, len(sent), 2 * READ_FULL):
            transport.write(sent[start : start + 2 * READ_FULL])
        assert max(await another_waits_ms(server)) < 100
        await loop.clock.sleep(60_000)
        assert list(client.codes) == list(range(count))
        assert [n for n, code in client.codes.items() if code == 0] == slow
        transport.write(requests(1)[0])
        await loop.clock.sleep(100)
        assert slow[-1] == 0, "it is read on"
        (connection,) = server.peers
        assert connection.burst is None  # type: ignore[attr-defined]


async def test_reading_goes_on_while_a_large_frame_is_incomplete(
    router: Router, kept: list[str]
) -> None:
    loop = this_loop()
    connection = ServerConnection(router.dispatch, loop.clock, lambda _: None)
    transport = ReadingTransport()
    connection.connection_made(transport)
    call = PutKV(namespace="n", key="k", value="v", body=bytes(5 * READ_FULL))
    frame = encode_call(call, opaque=1)
    connection.data_received(frame[:READ_FULL])
    await loop.clock.sleep(1)
    assert transport.pauses == 1, "it may have brought many requests"
    connection.data_received(frame[READ_FULL : 2 * READ_FULL])
    connection.data_received(frame[2 * READ_FULL : 4 * READ_FULL])
    assert (transport.pauses, kept) == (1, [])
    connection.data_received(frame[4 * READ_FULL :])
    assert (transport.pauses, kept) == (2, ["v"])


async def test_a_flood_of_one_connection_delays_only_itself(
    router: Router, slow: list[int]
) -> None:
    loop = this_loop()
    async with Server(router, clock=loop.clock) as server:
        made: Any = await loop.create_connection(Client, "127.0.0.1", server.port)
        transport, client = made
        transport.write(b"".join(requests(4_000)))
        async with await Channel.connect("127.0.0.1", server.port, clock=loop.clock) as channel:
            for number in range(100):
                await channel.call(ListKV(namespace=str(10_000 + number)), timeout_ms=60_000)
                await loop.clock.sleep(5)
        codes = [client.codes[number] for number in range(4_000)]
        assert set(codes) == {0, ResponseCode.SYSTEM_BUSY}
        first = codes.index(ResponseCode.SYSTEM_BUSY)
        assert first >= BURST_MIN // 2
        assert set(codes[first:]) == {ResponseCode.SYSTEM_BUSY}


async def test_a_connection_that_is_read_again_in_a_crowded_iteration_waits_for_the_next_one(
    router: Router, slow: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    look = LoopLag.look

    def look_crowded(turn: LoopLag, now_ms: int) -> None:
        look(turn, now_ms)
        turn.crowded = 7

    monkeypatch.setattr(LoopLag, "look", look_crowded)
    loop = this_loop()
    async with Server(router, clock=loop.clock) as server:
        made: Any = await loop.create_connection(Client, "127.0.0.1", server.port)
        transport, client = made
        for request in requests(5):
            transport.write(request)
            await loop.clock.sleep(2 * CLOCK_CHECK_MS)
        assert list(client.codes.items()) == [(number, 0) for number in range(5)]
        assert len(slow) == 5


class StillTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.7", 4711)})
        self.written = b""
        self.is_paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Take all."""


async def test_replies_of_a_crowded_iteration_are_sent_at_its_end(
    router: Router, slow: list[int]
) -> None:
    limits, transport = ServerLimits(), StillTransport()
    link = ServerConnection(router.dispatch, this_loop().clock, lambda _: None, limits)
    link.connection_made(transport)
    limits.turn.look(0)
    limits.turn.crowded = 7
    for count, request in enumerate(requests(2)):
        link.data_received(request)
        assert transport.is_paused is (count > 0)
    assert (len(slow), transport.written) == (2, b"")
    await asyncio.sleep(0)
    assert len(FrameReader().feed(transport.written)) == 2
    assert not transport.is_paused


async def test_replies_of_a_crowded_iteration_are_sent_to_a_peer_that_sends_no_more(
    router: Router, slow: list[int]
) -> None:
    limits, transport = ServerLimits(), StillTransport()
    link = ServerConnection(router.dispatch, this_loop().clock, lambda _: None, limits)
    link.connection_made(transport)
    limits.turn.look(0)
    limits.turn.crowded = 7
    link.data_received(b"".join(requests(2)))
    assert (len(slow), transport.written) == (2, b"")
    link.eof_received()  # the transport closes, when it has written what it has
    assert len(FrameReader().feed(transport.written)) == 2


async def test_a_connection_that_closes_during_a_burst_is_served_no_more(
    router: Router, slow: list[int], kept: list[str]
) -> None:
    loop = this_loop()
    async with Server(router, clock=loop.clock) as server:
        made: Any = await loop.create_connection(Client, "127.0.0.1", server.port)
        transport, _ = made
        transport.write(b"".join(requests(4_000)))
        await loop.clock.sleep(20)
        transport.abort()
        await loop.clock.sleep(10_000)
        assert 0 < len(slow) < 100
        assert not server.peers


async def test_a_connection_that_does_not_read_its_replies_is_not_served(
    router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SERVER_BUFFER_HIGH", 20_000)
    served: list[int] = []

    def large(call: ListKV, _peer: Peer) -> ValueReply:
        served.append(int(call.namespace))
        return ValueReply(body=bytes(10_000))

    router.add(ListKV, large)
    loop = this_loop()
    async with Server(router, clock=loop.clock) as server:
        made: Any = await loop.create_connection(Client, "127.0.0.1", server.port)
        transport, client = made
        transport.pause_reading()
        transport.write(b"".join(requests(2_000, 100)))
        await loop.clock.sleep(1_000)
        assert 0 < len(served) < 500
        transport.resume_reading()
        await loop.clock.sleep(10_000)
        assert list(client.codes) == served == list(range(2_000))


async def test_a_frame_without_budget_delays_later_frames_of_its_connection(
    router: Router, kept: list[str]
) -> None:
    loop = this_loop()
    frame = encode_call(PutKV(namespace="n", key="k", value="v", body=bytes(200_000)), opaque=1)
    async with Server(router, clock=loop.clock) as server:
        server.limits.large_frames.size_max = 300_000
        first, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", server.port)
        first.write(frame[:10_000])
        await loop.clock.sleep(10)
        other, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", server.port)
        other.write(frame + frame[:-1])
        await loop.clock.sleep(10)
        other.write(frame[-1:])
        await loop.clock.sleep(10)
        assert kept == []
        first.write(frame[10_000:])
        await loop.clock.sleep(10)
        assert kept == ["v"] * 3


# Plain sends: see wire.plain_send.


class Sends:
    """A connection with a short way for sends, and what came to either way."""

    def __init__(self) -> None:
        self.router = Router()
        self.taken: list[str] = []
        self.refused = {"slow"}
        self.router.add(Send, self._usual)
        self.router.add(GetKV, lambda call, peer: self._note(f"get {call.key}"))
        self.is_open = True
        self.limits = ServerLimits()
        self.router.add_plain([310], plain_sends, self.plain, lambda: self.is_open)
        self.peer: Any = None
        self.client = Collector()

    def _note(self, text: str) -> ValueReply:
        self.taken.append(text)
        return ValueReply(value=text)

    def _usual(self, call: Send, peer: Peer) -> SendReply:
        self.taken.append(f"usual {call.topic}")
        return SendReply(msg_id=call.topic)

    def plain(self, send: PlainSend, peer: Peer) -> bytes | None:
        self.peer = peer
        if send.topic in self.refused:
            return None
        self.taken.append(f"plain {send.topic}")
        return encode_reply(SendReply(msg_id=send.topic), Command(310, opaque=send.opaque))

    def connect(self) -> None:
        connect_in_process(
            lambda: self.client,
            lambda: ServerConnection(
                self.router.dispatch,
                this_loop().clock,
                lambda _: None,
                self.limits,
                plain=self.router,
            ),
        )

    async def receive(self, *chunks: bytes) -> list[int]:
        """Numbers of the requests that were answered, in order."""
        for chunk in chunks:
            self.client.transport.write(chunk)
            await asyncio.sleep(0.01)
        return [decode(frame).opaque for frame in FrameReader().feed(self.client.data)]


class Collector(asyncio.Protocol):
    """A client that keeps what it gets."""

    data = b""
    has_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.has_ended = True

    def data_received(self, data: bytes) -> None:
        self.data += data


def send_of(topic: str, opaque: int, size: int = 1) -> bytes:
    call = Send(
        producer_group="g", topic=topic, queue_id=0, born_timestamp=1, body=bytes(size),
        properties="UNIQ_KEY\x01k\x02",
    )  # fmt: skip
    return encode_call(call, opaque=opaque, language=4, version=400)


def get_of(key: str, opaque: int) -> bytes:
    return encode_call(GetKV(namespace="n", key=key), opaque=opaque)


@pytest.fixture
async def sends() -> Sends:
    sends = Sends()
    sends.connect()
    await asyncio.sleep(0)
    return sends


needs_compiler = pytest.mark.skipif(not COMPILED, reason="without a compiler there are none")


@needs_compiler
async def test_plain_sends_of_a_read_are_answered_first_and_in_order(sends: Sends) -> None:
    chunk = send_of("a", 1) + send_of("b", 2) + get_of("c", 3) + send_of("d", 4)
    assert await sends.receive(chunk) == [1, 2, 3, 4]
    assert sends.taken == ["plain a", "plain b", "get c", "usual d"]
    assert (sends.peer.language, sends.peer.version) == (4, 400)


@needs_compiler
async def test_a_send_that_the_short_way_leaves_goes_the_usual_one(sends: Sends) -> None:
    chunk = send_of("a", 1) + send_of("slow", 2) + send_of("c", 3)
    assert await sends.receive(chunk) == [1, 2, 3]
    assert sends.taken == ["plain a", "usual slow", "usual c"]


@needs_compiler
async def test_a_send_that_comes_in_parts_is_joined_once_it_is_whole(sends: Sends) -> None:
    whole = send_of("b", 2)
    parts = [send_of("a", 1) + whole[:1], *(whole[at : at + 1] for at in range(1, 20))]
    assert await sends.receive(*parts) == [1]
    assert await sends.receive(whole[20:] + send_of("c", 3)) == [1, 2, 3]
    assert sends.taken == ["plain a", "plain b", "plain c"]


@needs_compiler
async def test_all_sends_of_a_read_go_the_short_way(sends: Sends) -> None:
    chunk = b"".join([send_of("a", number, 400) for number in range(SENDS_MAX + 2)])
    assert len(chunk) < module.READ_FULL
    assert await sends.receive(chunk) == list(range(SENDS_MAX + 2))
    assert sends.taken == ["plain a"] * (SENDS_MAX + 2)


@needs_compiler
async def test_sends_of_a_full_read_go_the_short_way_whatever_is_among_them(sends: Sends) -> None:
    chunk = b"".join([send_of("a", number, 400) for number in range(500)])
    assert len(chunk) > module.READ_FULL
    assert await sends.receive(chunk + get_of("c", 500) + send_of("b", 501)) == list(range(502))
    assert sends.taken[:-2] == ["plain a"] * 500
    assert sends.taken[-2:] in (["get c", "plain b"], ["get c", "usual b"])


@needs_compiler
async def test_a_large_send_goes_the_usual_way(sends: Sends) -> None:
    large = send_of("a", 1, module.READ_FULL)
    assert await sends.receive(large) == [1]
    assert await sends.receive(large[:100], large[100:]) == [1, 1]
    assert sends.taken == ["usual a"] * 2


def pull_of(opaque: int, offset: int = 0) -> bytes:
    call = Pull(
        consumer_group="g", topic="t", queue_id=0, queue_offset=offset, max_msg_nums=32, sys_flag=0,
        commit_offset=0, suspend_timeout_millis=0, sub_version=0,
    )  # fmt: skip
    return encode_call(call, opaque=opaque)


@pytest.fixture
async def pulls(sends: Sends, monkeypatch: pytest.MonkeyPatch) -> Sends:
    """A connection with a short way for pulls, each of whose replies is enough for one write."""
    monkeypatch.setattr(module, "WRITE_TOGETHER_MAX", 100)

    def found(pull: PlainPull, peer: Peer) -> bytes:
        sends.peer = peer
        sends.taken.append(f"plain {pull.opaque}")
        if pull.queue_offset > 0:
            sends.peer.pause_writing()
        elif pull.queue_offset < 0:
            sends.peer.pause_writing()
            sends.peer.drop("it is over")
        return found_reply(pull.opaque, pull.serialize_type, 1, 0, 1, bytes(100))

    sends.router.add(
        Pull, lambda call, peer: PullReply(next_begin_offset=1, min_offset=0, max_offset=1)
    )
    sends.router.add_plain([11], plain_pulls, found)
    sends.connect()
    return sends


@needs_compiler
async def test_pulls_whose_replies_fill_several_writes_all_go_the_short_way(pulls: Sends) -> None:
    assert await pulls.receive(b"".join(map(pull_of, range(70)))) == list(range(70))
    assert pulls.taken == [f"plain {number}" for number in range(70)]


@needs_compiler
async def test_pulls_wait_for_a_peer_that_does_not_read_and_go_the_short_way_then(
    pulls: Sends,
) -> None:
    assert await pulls.receive(pull_of(0) + pull_of(1, offset=1) + pull_of(2)) == [0, 1]
    assert pulls.taken == ["plain 0", "plain 1"]
    pulls.peer.burst.count = BURST_MIN
    assert pulls.peer.burst.waited_ms(this_loop().clock.monotonic_ms() + 9) > 0
    pulls.peer.resume_writing()
    assert pulls.peer.burst.waited_ms(this_loop().clock.monotonic_ms()) == 0
    assert await pulls.receive(pull_of(3)) == [0, 1, 2, 3]
    assert pulls.taken == [f"plain {number}" for number in range(4)]


@needs_compiler
async def test_a_crowded_iteration_serves_a_read_for_one_write(pulls: Sends) -> None:
    async def tick() -> None:
        while len(pulls.taken) < 20:
            pulls.taken.append("next iteration")
            await asyncio.sleep(0)

    pulls.limits.turn.crowded = 1
    ticks = asyncio.create_task(tick())
    pulls.client.transport.write(b"".join(map(pull_of, range(3))))
    await ticks
    served = [n for n, what in enumerate(pulls.taken) if what.startswith("plain")]
    assert [pulls.taken[n] for n in served] == ["plain 0", "plain 1", "plain 2"]
    assert all(right - left > 1 for left, right in pairwise(served))


@needs_compiler
async def test_what_follows_in_a_read_is_dropped_with_the_connection(pulls: Sends) -> None:
    await pulls.receive(pull_of(0) + pull_of(1, offset=-1) + pull_of(2))
    assert pulls.taken == ["plain 0", "plain 1"]
    assert pulls.peer.closed
    assert pulls.client.has_ended


@needs_compiler
async def test_pulls_that_take_a_turn_let_others_have_theirs(
    pulls: Sends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TURN_MS", 0)
    first = pulls.client
    pulls.client = Collector()
    pulls.connect()
    await asyncio.sleep(0)
    first.transport.write(b"".join(map(pull_of, range(3))))
    assert await pulls.receive(pull_of(9)) == [9]
    assert pulls.taken == ["plain 0", "plain 9", "plain 1", "plain 2"]


@needs_compiler
async def test_a_short_way_is_closed_when_requests_are_served_otherwise(sends: Sends) -> None:
    assert await sends.receive(send_of("a", 1)) == [1]
    sends.peer.serve_with(lambda command, peer: None)
    assert await sends.receive(send_of("b", 2)) == [1]
    assert sends.taken == ["plain a"]


@needs_compiler
async def test_a_closed_short_way_reads_nothing_until_it_opens_again(sends: Sends) -> None:
    sends.is_open = False
    assert await sends.receive(send_of("a", 1)) == [1]
    sends.is_open = True
    assert await sends.receive(send_of("b", 2)) == [1, 2]
    assert sends.taken == ["usual a", "plain b"]
