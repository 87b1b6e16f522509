"""Requests to handlers, and what comes back."""

import asyncio
import logging
from typing import Any, NoReturn, cast

import msgspec
import pytest

from roquet.model.errors import CallRefused, StoreError, UsageError
from roquet.net.async_watermark import AsyncWatermark
from roquet.net.clock import SYSTEM_CLOCK
from roquet.net.limits.request_limits import RequestLimit
from roquet.net.request_meter import RequestMeter
from roquet.net.router import (
    DeferredReply,
    HandlerReply,
    HeldReply,
    Peer,
    ReplyWhen,
    RequestHandler,
    Router,
)
from roquet.rules.admission import OVERLOAD, AdmissionLimits
from roquet.wire.call import Call, Reply
from roquet.wire.calls.pull import Pull
from roquet.wire.calls.route import DeleteKV, GetKV, GetRoute, PutKV, ValueReply
from roquet.wire.calls.send import Send
from roquet.wire.codes import FLAG_ONEWAY, ResponseCode
from roquet.wire.command import Command, decode
from roquet.wire.fields import encode_call
from roquet.wire.plain_pull import PlainPull
from roquet.wire.plain_send import PlainSend


class ReadyPeer:
    """A peer that reads everything."""

    address = "10.0.0.7:5123"

    is_full = False


PEER = cast("Peer", ReadyPeer())


def request(call: Call[Any], *, oneway: bool = False) -> Command:
    return decode(encode_call(call, opaque=7, oneway=oneway)[4:])


def answer(frame: object) -> Command:
    assert isinstance(frame, bytes)
    command = decode(frame[4:])
    assert command.is_response
    assert command.opaque == 7
    return command


async def later(dispatched: object) -> bytes | None:
    if isinstance(dispatched, HeldReply):
        return await decided(dispatched)
    assert isinstance(dispatched, DeferredReply)
    return await dispatched.frame


async def decided(held: HeldReply) -> bytes | None:
    """What a connection does with a held reply."""
    outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    held.begin(lambda _, reached: outcome.set_result(reached))
    frame = held.frame(held, await outcome)
    assert held.done()
    return frame if frame is None or isinstance(frame, bytes) else await frame


def test_a_plain_function_answers_at_once(router: Router) -> None:
    command = answer(router.dispatch(request(GetKV(namespace="echo", key="k")), PEER))
    assert (command.code, command.ext) == (0, {"value": "k"})


def test_a_handler_that_returns_none_replies_success(router: Router, kept: list[str]) -> None:
    call = PutKV(namespace="n", key="k", value="v")
    assert answer(router.dispatch(request(call), PEER)).code == 0
    assert kept == ["v"]


async def test_an_awaitable_answers_later(router: Router) -> None:
    dispatched = router.dispatch(request(GetRoute(topic="1")), PEER)
    assert answer(await later(dispatched)).body == b"1"


async def test_a_coroutine_without_an_answer_is_a_plain_success() -> None:
    async def nothing(call: GetRoute, peer: Peer) -> None:
        return None

    router = Router()
    router.add(GetRoute, nothing)
    assert answer(await later(router.dispatch(request(GetRoute(topic="t")), PEER))).code == 0


def test_an_unknown_code_is_refused(router: Router) -> None:
    command = answer(router.dispatch(Command(4711, opaque=7), PEER))
    assert command.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert command.remark == " request type 4711 not supported"


def test_the_reply_names_why_a_code_is_not_served() -> None:
    router = Router({4711: "there are no such things here"})
    command = answer(router.dispatch(Command(4711, opaque=7), PEER))
    assert command.remark == " request type 4711 not supported: there are no such things here"


@pytest.mark.parametrize("fields", [{}, {"namespace": "echo"}, {"key": "k"}])
def test_a_missing_field_is_named(router: Router, fields: dict[str, str]) -> None:
    command = answer(router.dispatch(Command(GetKV.code, opaque=7, fields=fields), PEER))
    assert command.code == ResponseCode.SYSTEM_ERROR
    assert "GetKV (101): field" in (command.remark or "")
    assert "is missing" in (command.remark or "")


def test_a_refusal_says_why(router: Router) -> None:
    command = answer(router.dispatch(request(GetKV(namespace="other", key="k")), PEER))
    assert (command.code, command.remark) == (22, "no namespace other")


async def test_a_refusal_may_come_later() -> None:
    async def refuse(call: GetRoute, peer: Peer) -> Reply:
        raise CallRefused(ResponseCode.TOPIC_NOT_EXIST, "none")

    router = Router()
    router.add(GetRoute, refuse)
    command = answer(await later(router.dispatch(request(GetRoute(topic="t")), PEER)))
    assert (command.code, command.remark) == (17, "none")


def test_a_fault_is_logged_with_its_traceback_once(
    router: Router, caplog: pytest.LogCaptureFixture
) -> None:
    for key in ("a", "b"):
        command = answer(router.dispatch(request(DeleteKV(namespace="n", key=key)), PEER))
        assert (command.code, command.remark) == (1, f"ZeroDivisionError: {key}")
    assert [r.message for r in caplog.records if r.levelno == logging.ERROR] == [
        "DeleteKV failed: ZeroDivisionError: a",
        "DeleteKV failed: ZeroDivisionError: b",
    ]
    assert [bool(r.exc_info) for r in caplog.records] == [True, False]


def test_an_answer_that_cannot_be_written_is_a_fault_too() -> None:
    def endless(call: GetKV, peer: Peer) -> ValueReply:
        return ValueReply(value="x" * (1 << 24))

    router = Router()
    router.add(GetKV, endless)
    assert answer(router.dispatch(request(GetKV(namespace="n", key="k")), PEER)).code != 0


@pytest.mark.parametrize(
    "call",
    [
        PutKV(namespace="n", key="k", value="v"),
        GetKV(namespace="echo", key="k"),
        GetKV(namespace="refused", key="k"),
        DeleteKV(namespace="broken", key="k"),
    ],
)
def test_a_oneway_request_is_never_answered(router: Router, call: Call[Any]) -> None:
    assert router.dispatch(request(call, oneway=True), PEER) is None


def test_an_unknown_oneway_request_is_not_answered_either(router: Router) -> None:
    assert router.dispatch(Command(4711, flag=FLAG_ONEWAY), PEER) is None


async def test_a_oneway_request_is_not_answered_later(router: Router) -> None:
    assert await later(router.dispatch(request(GetRoute(topic="1"), oneway=True), PEER)) is None


def test_a_router_lists_its_handlers(router: Router) -> None:
    assert set(router.handlers) == {GetKV, GetRoute, DeleteKV, PutKV}


def test_a_code_is_served_by_one_handler(router: Router) -> None:
    def another(call: GetKV, peer: Peer) -> HandlerReply:
        return None

    with pytest.raises(UsageError, match="served already: GetKV"):
        router.add(GetKV, another)


def test_a_full_gate_refuses_what_is_behind_it_and_nothing_else(kept: list[str]) -> None:
    gate = RequestLimit(AdmissionLimits(count=1))
    router = Router()
    router.add(PutKV, lambda call, peer: kept.append(call.value), gate)
    router.add(GetKV, lambda call, peer: ValueReply(value="v"))
    gate.enter(PEER, 10)
    call = PutKV(namespace="n", key="k", value="v")
    refused = answer(router.dispatch(request(call), PEER))
    assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_BUSY, OVERLOAD)
    assert router.dispatch(request(call, oneway=True), PEER) is None
    assert kept == []
    assert answer(router.dispatch(request(GetKV(namespace="n", key="k")), PEER)).code == 0
    gate.leave(PEER, 10)
    assert answer(router.dispatch(request(call), PEER)).code == 0
    assert kept == ["v"]
    assert router.gates == [gate]


async def test_a_deferred_reply_keeps_the_size_of_its_request_but_not_the_body() -> None:
    async def wait() -> None:
        return None

    def serve(call: PutKV, peer: Peer) -> HandlerReply:
        return wait()

    router = Router()
    router.add(PutKV, serve)
    command = request(PutKV(namespace="n", key="k", value="v"))
    found = router.dispatch(msgspec.structs.replace(command, body=b"x" * 77), PEER)
    assert isinstance(found, DeferredReply)
    assert found.size == 77
    waiting: Any = found.frame
    assert waiting.cr_frame.f_locals["command"].body == b""
    assert answer(await found.frame).code == 0


class Decided:
    """A handler whose replies one number decides: if it grows, at once, else after a wait."""

    def __init__(self) -> None:
        self.mark = AsyncWatermark()

    def __call__(self, call: GetKV, _peer: Peer) -> HandlerReply:
        later_ms = SYSTEM_CLOCK.monotonic_ms() + 5
        return ReplyWhen(self.mark, 1, 0, later_ms, lambda reached: self.reply(call.key, reached))

    def reply(self, key: str, reached: bool) -> Any:
        if key == "refused":
            raise CallRefused(ResponseCode.SYSTEM_BUSY, "not now")
        return ValueReply(value=key) if reached else self.wait(key)

    async def wait(self, key: str) -> Reply:
        await asyncio.sleep(0)
        return ValueReply(value=f"{key} at last")


@pytest.mark.parametrize(
    ("key", "reached", "expected"),
    [("k", True, (0, "k")), ("k", False, (0, "k at last")), ("refused", True, (2, None))],
)
async def test_a_number_decides_a_reply(key: str, reached: bool, expected: object) -> None:
    router, handler = Router(), Decided()
    router.add(GetKV, handler)
    found = asyncio.ensure_future(
        later(router.dispatch(request(GetKV(namespace="n", key=key)), PEER))
    )
    await asyncio.sleep(0)
    if reached:
        handler.mark.advance(1)
    reply = answer(await found)
    assert (reply.code, (reply.ext or {}).get("value")) == expected


async def test_an_answer_is_made_when_its_peer_has_room_for_it(router: Router) -> None:
    drain = asyncio.Event()

    class SlowPeer:
        is_full = True

        async def drain(self) -> None:
            await drain.wait()
            self.is_full = False

    found = router.dispatch(request(GetRoute(topic="0")), cast("Peer", SlowPeer()))
    assert isinstance(found, DeferredReply)
    task = asyncio.ensure_future(found.frame)
    await asyncio.sleep(0.01)
    assert not task.done()
    drain.set()
    assert answer(await task).body == b"0"


def test_another_handler_may_serve_a_code_for_a_while(router: Router) -> None:
    def refuse(_call: GetKV, _peer: Peer) -> HandlerReply:
        raise CallRefused(ResponseCode.SYSTEM_BUSY, "not now")

    call = request(GetKV(namespace="echo", key="k"))
    for _ in range(2):
        router.override(int(GetKV.code), refuse)
        assert answer(router.dispatch(call, PEER)).remark == "not now"
    router.override(int(GetKV.code), None)
    assert answer(router.dispatch(call, PEER)).code == 0


def test_the_own_handler_of_a_code_is_known_while_another_serves_it(router: Router) -> None:
    code, own = int(GetKV.code), router.handlers[GetKV]
    assert router.own_handler(code) is own
    router.override(code, lambda _call, _peer: None)
    assert router.handlers[GetKV] is not own
    assert router.own_handler(code) is own


def test_a_replaced_handler_serves_at_once_or_once_an_override_ends(router: Router) -> None:
    def refuse(remark: str) -> RequestHandler[GetKV]:
        def handler(_call: GetKV, _peer: Peer) -> NoReturn:
            raise CallRefused(ResponseCode.SYSTEM_ERROR, remark)

        return handler

    call, code = request(GetKV(namespace="echo", key="k")), int(GetKV.code)
    router.replace(code, refuse("second"))
    assert answer(router.dispatch(call, PEER)).remark == "second"
    router.override(code, refuse("override"))
    router.replace(code, refuse("third"))
    assert answer(router.dispatch(call, PEER)).remark == "override"
    router.override(code, None)
    assert answer(router.dispatch(call, PEER)).remark == "third"
    router.replace(code, refuse("fourth"))
    assert answer(router.dispatch(call, PEER)).remark == "fourth"


def test_a_fault_of_the_disk_is_logged_once_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    def unreadable(call: DeleteKV, peer: Peer) -> None:
        raise StoreError(f"commitlog/{call.key} cannot be used: Permission denied")

    router = Router()
    router.add(DeleteKV, unreadable)
    for key in ("0", "1", "0"):
        command = answer(router.dispatch(request(DeleteKV(namespace="n", key=key)), PEER))
        assert (command.code, "Permission denied" in (command.remark or "")) == (1, True)
    assert [r.message for r in caplog.records] == [
        f"DeleteKV failed: StoreError: commitlog/{key} cannot be used: Permission denied"
        for key in ("0", "1")
    ]
    assert not any(r.exc_info for r in caplog.records)


# Plain sends: see wire.plain_send.

PLAIN = PlainSend(
    opaque=7, serialize_type=0, language=3, version=513, topic="T", queue_id=0, sys_flag=0,
    born_timestamp=1, flag=0, reconsume_times=0, properties=b"", tag_code=0, unique_key="k",
    body=b"x", key=None, end=9,
)  # fmt: skip


PLAIN_PULL = PlainPull(
    opaque=7, serialize_type=0, language=3, version=513, consumer_group="g", topic="T", queue_id=0,
    queue_offset=0, max_msg_nums=32, sys_flag=0, commit_offset=0, subscription=None, sub_version=0,
    expression_type=None, max_msg_bytes=None, key=None, end=9,
)  # fmt: skip


class PlainRouter(Router):
    """A router with a short way, which gives `frame`."""

    def __init__(self, gate: RequestLimit | None = None) -> None:
        super().__init__()
        self.frame: bytes | None = b"frame"
        self.may_store = True
        self.add(Send, lambda call, peer: None, gate)
        self.add_plain([310], lambda *_: [PLAIN], self._store, lambda: self.may_store)

    def _store(self, send: PlainSend, peer: Peer) -> bytes | None:
        if send.topic == "broken":
            raise ZeroDivisionError
        return self.frame


def is_served(router: Router) -> bool:
    """Whether a plain send is served by the short way."""
    requests = router.read_plain(b"chunk", 9)
    return bool(requests) and router.serve_plain(requests[0], PEER) is not None


def test_a_plain_send_takes_the_short_way() -> None:
    router = PlainRouter()
    assert router.serve_plain(PLAIN, PEER) == b"frame"
    router.frame = None
    assert not is_served(router)


def test_each_code_has_a_short_way_of_its_own() -> None:
    router = PlainRouter()
    router.add(Pull, lambda call, peer: None)
    router.add_plain([11], lambda *_: [PLAIN_PULL], lambda pull, peer: b"messages")
    assert router.serve_plain(PLAIN_PULL, PEER) == b"messages"
    router.override(310, lambda call, peer: None)
    assert router.serve_plain(PLAIN, PEER) is None
    assert router.serve_plain(PLAIN_PULL, PEER) == b"messages"


def test_a_router_without_a_short_way_has_none() -> None:
    router = Router()
    router.add(Send, lambda call, peer: None)
    assert not is_served(router)


def test_another_handler_of_sends_closes_the_short_way() -> None:
    router = PlainRouter()
    own = router.own_handler(310)
    router.override(310, lambda call, peer: None)
    assert not is_served(router)
    router.override(310, None)
    assert is_served(router)
    router.replace(310, lambda call, peer: None)
    assert not is_served(router)
    router.replace(310, own)
    assert is_served(router)


def test_a_tight_limit_closes_the_short_way() -> None:
    gate = RequestLimit(AdmissionLimits(count=1))
    router = PlainRouter(gate)
    gate.is_tight = True
    assert not is_served(router)
    gate.is_tight = False
    assert is_served(router)


def test_a_short_way_is_open_while_what_stores_says_so() -> None:
    router = PlainRouter()
    router.may_store = False
    assert not is_served(router)
    router.may_store = True
    assert is_served(router)


def test_plain_sends_are_counted_and_one_of_many_is_timed_the_ordinary_way() -> None:
    router = PlainRouter()
    meter = RequestMeter(SYSTEM_CLOCK, {310})
    router.meter = meter
    latencies = meter.successes(310)
    assert latencies is not None
    assert router.serve_plain(PLAIN, PEER) is None
    latencies.allow_untimed(2)
    assert [router.serve_plain(PLAIN, PEER) for _ in range(3)] == [b"frame", b"frame", None]
    latencies.allow_untimed(2)
    router.frame = None
    assert router.serve_plain(PLAIN, PEER) is None
    assert latencies.left == 2


def test_sends_that_are_all_timed_do_not_take_the_short_way() -> None:
    router = PlainRouter()
    router.meter = RequestMeter(SYSTEM_CLOCK)
    assert not is_served(router)


def test_a_fault_on_the_short_way_is_a_reply(caplog: pytest.LogCaptureFixture) -> None:
    broken = msgspec.structs.replace(PLAIN, topic="broken")
    assert answer(PlainRouter().serve_plain(broken, PEER)).code == ResponseCode.SYSTEM_ERROR
    assert "Send failed" in caplog.text
