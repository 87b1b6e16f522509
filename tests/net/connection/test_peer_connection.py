"""One connection, driven by hand: what comes in, what goes out, and when."""

import asyncio
import gc
import logging

import pytest
from tests.raising import raises

from roquet.metrics.request_counts import RequestResult
from roquet.model.errors import CallTimeout, ConnectFailed, ConnectionLost
from roquet.net.async_watermark import AsyncWatermark
from roquet.net.connection import peer_connection as link_module
from roquet.net.connection.peer_connection import (
    WRITE_BUFFER_HIGH,
    WRITE_TOGETHER_MAX,
    PeerConnection,
)
from roquet.net.limits.request_limits import RequestLimit
from roquet.net.request_meter import RequestMeter
from roquet.net.router import Peer, ReplyWhen, Router
from roquet.rules.admission import OVERLOAD, AdmissionLimits
from roquet.testing.clock import this_loop
from roquet.wire.calls.heartbeat import ConsumersChanged
from roquet.wire.calls.route import GetKV, GetRoute, ListKV, PutKV, ValueReply
from roquet.wire.codes import Language, ResponseCode
from roquet.wire.command import Command, decode, encode
from roquet.wire.fields import encode_call, encode_reply
from roquet.wire.frame import FrameReader

pytestmark = pytest.mark.virtual_time


class RecordingTransport(asyncio.Transport):
    def __init__(self, name: tuple[str, int] | None = ("10.0.0.7", 4711)) -> None:
        super().__init__({"peername": name})
        self.writes: list[bytes] = []
        self.unsent = 0
        self.ended = ""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == WRITE_BUFFER_HIGH

    def is_closing(self) -> bool:
        return bool(self.ended)

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    @property
    def commands(self) -> list[Command]:
        return [decode(f) for f in FrameReader().feed(b"".join(self.writes))]


def connect(
    router: Router | None = None, name: tuple[str, int] | None = ("10.0.0.7", 4711)
) -> tuple[PeerConnection, RecordingTransport]:
    link, wire = (
        PeerConnection((router or Router()).dispatch, this_loop().clock),
        RecordingTransport(name),
    )
    link.connection_made(wire)
    return link, wire


def asks(key: str, opaque: int = 1) -> bytes:
    return encode_call(GetKV(namespace="echo", key=key), opaque=opaque)


async def test_the_answers_to_one_chunk_leave_in_one_write(router: Router) -> None:
    link, wire = connect(router)
    link.data_received(asks("a", 1) + asks("b", 2) + asks("c", 3))
    assert len(wire.writes) == 1
    assert [(c.opaque, c.ext) for c in wire.commands] == [
        (1, {"value": "a"}),
        (2, {"value": "b"}),
        (3, {"value": "c"}),
    ]


@pytest.mark.parametrize("step", [1, 3, 50])
async def test_a_request_may_come_in_pieces(router: Router, step: int) -> None:
    link, wire = connect(router)
    stream = asks("a", 1) + asks("b", 2)
    for at in range(0, len(stream), step):
        link.data_received(stream[at : at + step])
    assert [c.ext["value"] for c in wire.commands] == ["a", "b"]


async def test_a_slow_request_does_not_keep_others_waiting(router: Router) -> None:
    link, wire = connect(router)
    slow = encode_call(GetRoute(topic="15000"), opaque=1)
    less_slow = encode_call(GetRoute(topic="10"), opaque=2)
    link.data_received(slow + less_slow + asks("a", 3))
    assert [c.opaque for c in wire.commands] == [3]
    await asyncio.sleep(0.1)
    assert [c.opaque for c in wire.commands] == [3, 2]
    assert link.in_flight == 1
    await asyncio.sleep(15)
    assert [c.opaque for c in wire.commands] == [3, 2, 1]
    assert not link.in_flight


async def test_answers_that_are_ready_together_leave_together(router: Router) -> None:
    link, wire = connect(router)
    link.data_received(
        b"".join(encode_call(GetRoute(topic="50"), opaque=opaque) for opaque in range(9))
    )
    await asyncio.sleep(1)
    assert len(wire.commands) == 9
    assert len(wire.writes) == 1


async def test_a_oneway_request_leaves_no_trace_on_the_wire(
    router: Router, kept: list[str]
) -> None:
    link, wire = connect(router)
    link.data_received(encode_call(PutKV(namespace="", key="k", value="v"), opaque=1, oneway=True))
    link.data_received(encode_call(GetRoute(topic="1"), opaque=2, oneway=True))
    await asyncio.sleep(1)
    assert (kept, wire.writes) == (["v"], [])


@pytest.mark.parametrize(
    ("bytes_", "why"),
    [
        (b"\x7f\xff\xff\xff", "over the limit"),
        (b"\x00\x00\x00\x01", "at least"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x02{]", "broken JSON header"),
        (b"\x00\x00\x00\x04\x09\x00\x00\x00", "unknown kind 9"),
        (b"GET / HTTP/1.1\r\n\r\n", "over the limit"),
    ],
)
async def test_broken_bytes_end_the_connection_with_one_line(
    router: Router, bytes_: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    link, wire = connect(router)
    with caplog.at_level(logging.INFO):
        link.data_received(bytes_)
        link.connection_lost(None)
    assert wire.ended == "closed"
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert caplog.messages[0].startswith("10.0.0.7:4711: connection closed: ")
    assert why in caplog.messages[0]


async def test_a_peer_that_leaves_inside_a_frame_is_not_logged(
    router: Router, caplog: pytest.LogCaptureFixture
) -> None:
    link, _ = connect(router)
    link.data_received(asks("a")[:20])
    link.connection_lost(None)
    assert [r for r in caplog.records if r.levelno > logging.DEBUG] == []


async def test_a_call_gets_its_answer(router: Router) -> None:
    link, wire = connect(router)
    task = asyncio.create_task(link.call(GetKV(namespace="n", key="k")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    (request,) = wire.commands
    link.data_received(encode_reply(ValueReply(value="v", body=b"b"), request))
    assert await task == ValueReply(value="v", body=b"b")


async def test_calls_made_together_leave_together() -> None:
    link, wire = connect()
    tasks = [asyncio.create_task(link.call(GetRoute(topic=str(i)))) for i in range(5)]
    link.oneway(ConsumersChanged(consumer_group="g"))
    await asyncio.sleep(0.1)
    assert len(wire.writes) == 1
    assert [c.is_oneway for c in wire.commands] == [True] + [False] * 5
    assert len({c.opaque for c in wire.commands}) == 6
    for task in tasks:
        task.cancel()


async def test_a_call_without_an_answer_ends_in_time() -> None:
    link, _ = connect()
    with raises(CallTimeout, match="GetRoute", definite=False):
        await link.call(GetRoute(topic="t"), timeout_ms=250)
    assert this_loop().clock.monotonic_ms() == 250


async def test_a_reply_to_no_call_is_ignored(router: Router) -> None:
    link, wire = connect(router)
    link.data_received(encode(Command(0, opaque=99, flag=1)) + asks("a"))
    assert [c.ext["value"] for c in wire.commands] == ["a"]


async def test_a_lost_connection_ends_everything_on_it(router: Router) -> None:
    link, wire = connect(router)
    gone: list[PeerConnection] = []
    link.on_close(gone.append)
    link.data_received(encode_call(GetRoute(topic="60000"), opaque=1))
    call = asyncio.create_task(link.call(GetRoute(topic="t")))
    await asyncio.sleep(0.01)
    wire.ended = "lost"
    link.connection_lost(ConnectionResetError("reset by peer"))
    with pytest.raises(ConnectionLost, match=r"10\.0\.0\.7:4711: reset by peer"):
        await call
    await asyncio.sleep(0.01)
    assert not link.in_flight
    assert gone == [link]
    with raises(ConnectFailed, match="is closed: reset by peer", definite=True):
        await link.call(GetRoute(topic="t"))
    link.oneway(ConsumersChanged(consumer_group="g"))
    link.on_close(gone.append)
    assert gone == [link, link]


async def test_a_request_whose_peer_goes_in_the_same_turn_is_counted_as_cancelled() -> None:
    begun: list[str] = []

    async def slowly(call: GetRoute, peer: object) -> None:
        begun.append(call.topic)
        await asyncio.sleep(1)

    router = Router()
    router.meter = meter = RequestMeter(this_loop().clock)
    router.add(GetRoute, slowly)
    link, _ = connect(router)
    link.data_received(encode_call(GetRoute(topic="t"), opaque=1))
    link.connection_lost(None)
    await asyncio.sleep(0.01)
    gc.collect()  # a coroutine that nobody awaited would be reported now
    assert begun == ["t"]
    assert not link.in_flight
    ends = {kind.result: latencies.count for kind, latencies in meter.counts.items()}
    assert ends == {RequestResult.CANCELLED: 1}


async def test_a_oneway_request_is_served_to_its_end_though_its_peer_has_gone() -> None:
    served: list[str] = []

    async def slowly(call: GetRoute, peer: object) -> None:
        await asyncio.sleep(1)
        served.append(call.topic)

    router = Router()
    router.add(GetRoute, slowly)
    link, wire = connect(router)
    link.data_received(encode_call(GetRoute(topic="answered"), opaque=1))
    link.data_received(encode_call(GetRoute(topic="oneway"), opaque=2, oneway=True))
    await asyncio.sleep(0)
    wire.ended = "lost"
    link.connection_lost(None)
    await asyncio.sleep(2)
    assert served == ["oneway"]


async def test_a_peer_is_known_by_its_latest_request(router: Router) -> None:
    link, _ = connect(router)
    assert (link.address, link.host_bytes) == ("10.0.0.7:4711", b"\x0a\x00\x00\x07\x00\x00\x12\x67")
    assert (link.language, link.version) == (Language.OTHER, 0)
    call = GetKV(namespace="echo", key="k")
    link.data_received(encode_call(call, opaque=1, language=Language.GO, version=317))
    assert (link.language, link.version) == (Language.GO, 317)
    assert repr(link) == "<PeerConnection 10.0.0.7:4711>"


async def test_a_peer_that_has_gone_at_once_has_no_address() -> None:
    link, _ = connect(name=None)
    assert link.address == "?"


async def test_callers_wait_while_the_peer_reads_nothing() -> None:
    link, wire = connect()
    link.pause_writing()
    call = asyncio.create_task(link.call(GetRoute(topic="t")))
    await asyncio.sleep(1)
    assert wire.writes == []
    link.resume_writing()
    await asyncio.sleep(0.01)
    assert len(wire.commands) == 1
    call.cancel()


async def test_a_caller_waits_for_buffer_space_up_to_its_timeout() -> None:
    link, wire = connect()
    link.pause_writing()
    with pytest.raises(ConnectFailed, match="took nothing for 500 ms"):
        await link.call(GetRoute(topic="t"), timeout_ms=500)
    assert wire.writes == []


async def test_a_peer_with_too_many_unsent_bytes_is_dropped(
    router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "UNSENT_MAX", 1_000)
    link, wire = connect(router)
    link.pause_writing()
    wire.unsent = 1_000
    link.data_received(asks("a"))
    assert wire.ended == ""
    wire.unsent = 1_001
    link.data_received(asks("b"))
    assert wire.ended == "aborted"


async def test_a_connection_is_idle_without_traffic_and_pending_calls(router: Router) -> None:
    link, _ = connect(router)
    await asyncio.sleep(5)
    assert link.idle_ms() == 5_000
    link.data_received(encode_call(GetRoute(topic="3000"), opaque=1))
    await asyncio.sleep(2)
    assert link.idle_ms() == 0
    await asyncio.sleep(2)
    assert link.idle_ms() == 4_000


async def test_hanging_up_flushes_written_bytes_first() -> None:
    link, wire = connect()
    link.oneway(ConsumersChanged(consumer_group="g"))
    link.hang_up("enough")
    link.hang_up("again")
    assert (len(wire.commands), wire.ended) == (1, "closed")


async def test_closing_waits_for_the_peer_up_to_a_limit() -> None:
    link, wire = connect()
    task = asyncio.create_task(link.close(within_ms=1_000))
    await asyncio.sleep(0.9)
    assert wire.ended == "closed"
    assert not task.done()
    await asyncio.sleep(0.2)
    assert wire.ended == "aborted"
    link.connection_lost(None)
    await task


class PausingTransport(RecordingTransport):
    """A transport that asks for a pause after one large write."""

    link: PeerConnection

    def write(self, data: bytes | bytearray | memoryview) -> None:
        super().write(data)
        if len(data) > WRITE_TOGETHER_MAX:
            self.link.pause_writing()


def connect_narrowly(router: Router) -> tuple[PeerConnection, PausingTransport]:
    link, wire = PeerConnection(router.dispatch, this_loop().clock), PausingTransport()
    wire.link = link
    link.connection_made(wire)
    return link, wire


def large(call: ListKV, peer: Peer) -> ValueReply:
    return ValueReply(body=bytes(WRITE_TOGETHER_MAX))


def wants_large(opaque: int) -> bytes:
    return encode_call(ListKV(namespace="n"), opaque=opaque)


async def test_requests_of_one_chunk_wait_while_the_peer_takes_no_answers(router: Router) -> None:
    router.add(ListKV, large)
    link, wire = connect_narrowly(router)
    link.data_received(b"".join(wants_large(opaque) for opaque in range(5)) + asks("k", 5))
    assert [command.opaque for command in wire.commands] == [0]
    link.data_received(asks("later", 6))
    for served in range(1, 5):
        assert len(wire.writes) == served
        link.resume_writing()
    assert [command.opaque for command in wire.commands] == [0, 1, 2, 3, 4]
    link.resume_writing()
    assert [command.opaque for command in wire.commands] == [0, 1, 2, 3, 4, 5, 6]


async def test_requests_that_wait_for_a_peer_are_forgotten_when_it_goes(router: Router) -> None:
    router.add(ListKV, large)
    link, wire = connect_narrowly(router)
    link.data_received(wants_large(0) + wants_large(1))
    wire.ended = "by the peer"
    link.connection_lost(None)
    assert len(wire.writes) == 1


async def test_large_answers_that_are_ready_together_are_made_one_at_a_time(router: Router) -> None:
    woken = asyncio.Event()

    async def wait(call: ListKV, peer: Peer) -> ValueReply:
        await woken.wait()
        return large(call, peer)

    router.add(ListKV, wait)
    link, wire = connect_narrowly(router)
    link.data_received(b"".join(wants_large(opaque) for opaque in range(3)))
    await asyncio.sleep(0)
    woken.set()
    for served in range(1, 4):
        await asyncio.sleep(0.01)
        assert len(wire.commands) == served
        link.resume_writing()
    await asyncio.sleep(0.01)
    assert not link.in_flight


async def test_a_request_counts_until_it_is_answered_or_its_peer_is_gone() -> None:
    gate = RequestLimit(AdmissionLimits(count=4))
    router = Router()
    router.add(GetRoute, slow_route, gate)
    link, wire = connect(router)
    link.data_received(encode_call(GetRoute(topic="1000"), opaque=1))
    link.data_received(encode_call(GetRoute(topic="5000"), opaque=2))
    assert gate.count == 2
    link.data_received(encode_call(GetRoute(topic="1"), opaque=3))
    assert [(c.opaque, c.code, c.remark) for c in wire.commands] == [
        (3, ResponseCode.SYSTEM_BUSY, OVERLOAD)
    ]
    await asyncio.sleep(2)
    assert gate.count == 1
    link.connection_lost(None)
    await asyncio.sleep(0.01)
    assert gate.count == 0


async def wait_and_give(value: str) -> ValueReply:
    await asyncio.sleep(1)
    return ValueReply(value=value)


async def test_replies_that_a_number_decides_leave_together_and_without_tasks() -> None:
    mark = AsyncWatermark(clock=this_loop().clock)

    def serve(call: GetKV, _peer: Peer) -> ReplyWhen:
        target, limit_ms = map(int, call.key.split())
        return ReplyWhen(
            mark, target, 0, limit_ms,
            lambda reached: ValueReply(value="soon") if reached else wait_and_give("late"),
        )  # fmt: skip

    gate, router = RequestLimit(AdmissionLimits(count=9)), Router()
    router.add(GetKV, serve, gate)
    router.meter = meter = RequestMeter(this_loop().clock)
    link, wire = connect(router)
    tasks = asyncio.all_tasks()
    keys = {1: "20 9999", 2: "10 9999", 3: "30 100", 4: "40 9999"}
    link.data_received(b"".join(asks(key, opaque) for opaque, key in keys.items()))
    assert asyncio.all_tasks() == tasks
    assert (gate.count, link.in_flight, wire.writes) == (4, 4, [])
    mark.advance(25)
    await asyncio.sleep(0.5)
    assert len(wire.writes) == 1
    assert [(c.opaque, c.ext) for c in wire.commands] == [
        (2, {"value": "soon"}),
        (1, {"value": "soon"}),
    ]
    assert gate.count == 2
    await asyncio.sleep(1)
    assert [(c.opaque, c.ext) for c in wire.commands[2:]] == [(3, {"value": "late"})]
    link.connection_lost(None)
    assert gate.count == 0
    assert not link.in_flight
    mark.advance(99)
    assert len(wire.commands) == 3
    ends = {kind.result: latencies.count for kind, latencies in meter.counts.items()}
    assert ends == {RequestResult.SUCCESS: 3, RequestResult.CANCELLED: 1}


async def test_a_held_reply_that_cannot_be_written_counts_no_longer() -> None:
    class LostTransport(RecordingTransport):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            raise RuntimeError("the handle is closed")

    mark = AsyncWatermark(clock=this_loop().clock)

    def serve(_call: GetKV, _peer: Peer) -> ReplyWhen:
        return ReplyWhen(mark, 1, 0, 9_999, lambda _: ValueReply(body=bytes(300 * 1024)))

    gate, router = RequestLimit(AdmissionLimits(count=9)), Router()
    router.add(GetKV, serve, gate)
    link = PeerConnection(router.dispatch, this_loop().clock)
    link.connection_made(LostTransport())
    link.data_received(asks("a", 1))
    assert (gate.count, link.in_flight) == (1, 1)
    mark.advance(1)
    assert (gate.count, link.in_flight) == (0, 0)


async def slow_route(call: GetRoute, peer: Peer) -> ValueReply:
    await asyncio.sleep(int(call.topic) / 1000)
    return ValueReply()
