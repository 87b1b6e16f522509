import asyncio
from typing import Any, cast

import pytest

from roquet.metrics.request_counts import KEYS_MAX, RequestKind, RequestResult
from roquet.model.errors import CallError, CallRefused
from roquet.model.settings import parse_address
from roquet.net.channel import Channel
from roquet.net.clock import SYSTEM_CLOCK, UNTIMED, SystemClock
from roquet.net.request_meter import TIMED_EVERY, RequestMeter
from roquet.net.router import Peer, Router
from roquet.wire.call import Call
from roquet.wire.calls.route import DeleteKV, GetKV, GetRoute, PutKV, ValueReply
from roquet.wire.codes import RequestCode, ResponseCode
from roquet.wire.command import Command, decode
from roquet.wire.fields import encode_call


@pytest.fixture
def meter(router: Router) -> RequestMeter:
    meter = RequestMeter(SYSTEM_CLOCK)
    router.meter = meter
    return meter


def kinds(meter: RequestMeter) -> dict[RequestKind, int]:
    return {kind: latencies.count for kind, latencies in meter.counts.items()}


async def test_every_request_is_counted_once_by_how_it_ended(
    meter: RequestMeter, address: str
) -> None:
    async with await Channel.connect(*parse_address(address)) as channel:
        await channel.call(GetKV(namespace="echo", key="k"))
        await channel.call(GetRoute(topic="20"))
        for wrong in (GetKV(namespace="none", key="k"), DeleteKV(namespace="n", key="k")):
            with pytest.raises(CallError):
                await channel.call(wrong)
        channel.oneway(PutKV(namespace="n", key="k", value="v"))
        await channel.call(GetKV(namespace="echo", key="k"))
    get_kv, ok = int(RequestCode.GET_KV_CONFIG), RequestResult.SUCCESS
    assert kinds(meter) == {
        RequestKind(get_kv, 0, False, ok): 2,
        RequestKind(int(RequestCode.GET_ROUTEINFO_BY_TOPIC), 0, False, ok): 1,
        RequestKind(get_kv, int(ResponseCode.QUERY_NOT_FOUND), False, ok): 1,
        RequestKind(int(RequestCode.DELETE_KV_CONFIG), 1, False, RequestResult.FAILED): 1,
        RequestKind(int(RequestCode.PUT_KV_CONFIG), 0, False, RequestResult.ONEWAY): 1,
    }
    slow = [h for kind, h in meter.counts.items() if kind.request_code == 105]
    assert slow[0].sum >= 15


async def test_a_peer_that_goes_before_its_reply_is_counted(
    meter: RequestMeter, address: str
) -> None:
    async with await Channel.connect(*parse_address(address)) as channel:
        call = asyncio.create_task(channel.call(GetRoute(topic="5000")))
        await asyncio.sleep(0.05)
    with pytest.raises(CallError):
        await call
    await asyncio.sleep(0.05)
    assert [kind.result for kind in kinds(meter)] == [RequestResult.CANCELLED]


def test_only_requests_for_messages_that_waited_are_long_polls() -> None:
    meter = RequestMeter(SYSTEM_CLOCK)
    pull, send = int(RequestCode.PULL_MESSAGE), int(RequestCode.SEND_MESSAGE_V2)
    meter.replied_later(pull, 0, 0, meter.now_ms())
    meter.replied_later(send, 0, 0, meter.now_ms())
    meter.replied(pull, 0, 0, meter.now_ms())
    polls = {kind for kind in kinds(meter) if kind.is_long_polling}
    assert {kind.request_code for kind in polls} == {pull}
    assert len(kinds(meter)) == 3


def test_of_frequent_requests_some_are_timed_and_all_are_counted() -> None:
    send, route = int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.GET_BROKER_CONFIG)
    meter = RequestMeter(SYSTEM_CLOCK, frozenset({send}))
    timed = 0
    for _ in range(10 * TIMED_EVERY + 3):
        begun_ms = meter.begin(send)
        timed += begun_ms != UNTIMED
        meter.replied(send, 0, 0, begun_ms)
        assert meter.begin(route) != UNTIMED
    assert timed == 11
    assert list(kinds(meter).values()) == [10 * TIMED_EVERY + 3]


@pytest.mark.parametrize("is_fault", [False, True])
def test_of_frequent_requests_that_all_fail_some_are_timed_too(is_fault: bool) -> None:
    send = int(RequestCode.SEND_MESSAGE_V2)
    meter = RequestMeter(SYSTEM_CLOCK, frozenset({send}))
    timed = 0
    for number in range(10 * TIMED_EVERY):
        begun_ms = meter.begin(send)
        timed += begun_ms != UNTIMED
        if is_fault:
            meter.failed(send, begun_ms)
        else:
            meter.replied(send, 0, 17, begun_ms)
        assert list(kinds(meter).values()) == [number + 1]
    assert timed == 10


class CountingClock(SystemClock):
    """A clock that counts how often it is read."""

    reads = 0

    def monotonic_ms(self) -> int:
        self.reads += 1
        return super().monotonic_ms()


@pytest.mark.parametrize("is_early", [False, True])
def test_a_router_counts_frequent_requests_and_reads_the_clock_for_some(is_early: bool) -> None:
    clock = CountingClock()
    meter, router = RequestMeter(clock, frozenset({int(GetKV.code)})), Router()
    if is_early:
        router.meter = meter
    router.add(GetKV, echo)
    router.add(PutKV, lambda _call, _peer: None)
    router.override(int(GetKV.code), lambda call, peer: echo(call, peer))
    if not is_early:
        router.meter = meter
    peer = cast("Peer", object())
    for number in range(3 * TIMED_EVERY):
        key = "none" if number == 20 else "k"
        reply = router.dispatch(request(GetKV(namespace="n", key=key)), peer)
        assert isinstance(reply, bytes)
        if number == TIMED_EVERY:
            router.override(int(GetKV.code), None)
    assert clock.reads == 2 * 3
    router.dispatch(request(PutKV(namespace="n", key="k", value="v")), peer)
    assert clock.reads == 2 * 4
    for _ in range(3):
        router.dispatch(request(GetKV(namespace="n", key="k"), oneway=True), peer)
    get_kv, ok = int(GetKV.code), RequestResult.SUCCESS
    assert kinds(meter) == {
        RequestKind(get_kv, 0, False, ok): 3 * TIMED_EVERY - 1,
        RequestKind(get_kv, int(ResponseCode.QUERY_NOT_FOUND), False, ok): 1,
        RequestKind(int(PutKV.code), 0, False, ok): 1,
        RequestKind(get_kv, 0, False, RequestResult.ONEWAY): 3,
    }


def echo(call: GetKV, _peer: Peer) -> ValueReply:
    if call.key == "none":
        raise CallRefused(ResponseCode.QUERY_NOT_FOUND, "none")
    return ValueReply(value=call.key)


def request(call: Call[Any], *, oneway: bool = False) -> Command:
    return decode(encode_call(call, opaque=7, oneway=oneway)[4:])


def test_kinds_of_strangers_do_not_fill_the_memory() -> None:
    meter = RequestMeter(SYSTEM_CLOCK)
    for code in range(3_000):
        meter.replied(code, 0, 3, meter.begin(code))
    known = sum(int(code) in range(3_000) for code in RequestCode)
    assert len(kinds(meter)) == known + 1 < KEYS_MAX
    assert sum(kinds(meter).values()) == 3_000
