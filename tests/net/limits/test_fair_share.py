"""Slow requests: by a clock that only the requests themselves move."""

import asyncio
import types
from collections.abc import Generator

import pytest

from roquet.net.channel import Channel
from roquet.net.limits.fair_share import LOG_MS, FairShare
from roquet.net.router import HandlerReply, Peer, Router
from roquet.net.server import Server
from roquet.testing.clock import VirtualClock, in_virtual_time, this_loop
from roquet.wire.call import Reply
from roquet.wire.calls.route import GetKV, ListKV, ValueReply
from roquet.wire.codes import RequestCode

HEARTBEAT = int(RequestCode.HEART_BEAT)
SEND = int(RequestCode.SEND_MESSAGE_V2)


class MovedClock:
    ms = 1_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    async def sleep(self, ms: int) -> None:
        self.ms += ms


def test_a_request_that_delays_others_is_logged_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    share = FairShare(MovedClock())
    assert share.pause_ms(HEARTBEAT, 51, "10.0.0.1:7", 20) == 20
    assert (share.count, share.longest_ms, share.latest, caplog.text) == (0, 20, "", "")
    share.pause_ms(HEARTBEAT, 51, "10.0.0.1:7", 80)
    assert (share.count, share.longest_ms) == (1, 80)
    assert share.latest == "code 34 of 10.0.0.1:7, body of 51 bytes, 80 ms"
    assert "a request held up all others: code 34 of 10.0.0.1:7" in caplog.text


def test_the_log_has_one_line_in_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    clock = MovedClock()
    share = FairShare(clock)
    for _ in range(100):
        share.pause_ms(HEARTBEAT, 51, "10.0.0.1:7", 80)
    clock.ms += LOG_MS
    share.pause_ms(HEARTBEAT, 51, "10.0.0.1:7", 80)
    assert len(caplog.records) == 2
    assert "99 more since" in caplog.text


def test_batches_may_take_longer_than_other_requests() -> None:
    share = FairShare(MovedClock())
    assert share.pause_ms(SEND, 1, "a", 20) == 0
    assert share.pause_ms(SEND, 1, "a", 35) == 10


async def test_the_steps_of_a_coroutine_are_measured_and_its_pauses_are_not() -> None:
    clock, noted = MovedClock(), list[int]()

    async def work() -> bytes:
        clock.ms += 30
        await asyncio.sleep(0)
        clock.ms += 40
        return b"found"

    async def others() -> None:
        clock.ms += 1_000

    task = asyncio.create_task(others())
    assert await FairShare(clock).timed(work(), noted.append) == b"found"
    await task
    assert noted == [30, 40]


async def test_errors_and_the_end_of_a_task_reach_a_coroutine_that_is_measured() -> None:
    ended = list[str]()

    async def work() -> bytes:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return b""

    async def caller() -> bytes | None:
        return await FairShare().timed(work(), ended.append)  # type: ignore[arg-type]

    task = asyncio.create_task(caller())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "cancelled" in ended


@pytest.mark.parametrize("is_closed_before", [True, False])
def test_a_coroutine_that_is_dropped_is_closed_once(is_closed_before: bool) -> None:
    ended = list[str]()

    @types.coroutine
    def pause() -> Generator[str, None, None]:
        yield "waits"

    async def work() -> bytes:
        try:
            await pause()
        finally:
            ended.append("closed")
        return b""

    measured = work()
    steps = FairShare(MovedClock()).timed(measured, lambda _: None).__await__()
    assert next(steps) == "waits"
    if is_closed_before:  # as the garbage collector may do
        measured.close()
    steps.close()
    assert ended == ["closed"]


class WorkingClock:
    """The clock of a loop, on which work takes time as well."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.worked_ms = 0

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.worked_ms

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms() + self.worked_ms

    async def sleep(self, ms: int) -> None:
        await self._clock.sleep(ms)


@pytest.mark.parametrize("waits", [False, True])
@in_virtual_time
async def test_after_a_slow_request_its_connection_waits_and_others_do_not(waits: bool) -> None:
    loop = this_loop()
    clock = WorkingClock(loop.clock)
    served: list[tuple[str, int]] = []

    def work() -> Reply:
        clock.worked_ms += 100
        served.append(("slow", loop.clock.monotonic_ms()))
        return ValueReply()

    async def work_in_a_task() -> Reply:
        return work()

    def slow(call: ListKV, peer: Peer) -> HandlerReply:
        return work_in_a_task() if waits else work()

    def quick(call: GetKV, peer: Peer) -> Reply:
        served.append(("quick", loop.clock.monotonic_ms()))
        return ValueReply()

    router = Router()
    router.add(ListKV, slow)
    router.add(GetKV, quick)
    async with Server(router, clock=clock) as server:
        begun_ms = loop.clock.monotonic_ms()
        one = await Channel.connect("127.0.0.1", server.port, clock=loop.clock)
        other = await Channel.connect("127.0.0.1", server.port, clock=loop.clock)
        for _ in range(3):
            await one.call(ListKV(namespace="n"))
            await other.call(GetKV(namespace="n", key="k"))
        assert server.share.count == 3
        await one.close()
        await other.close()
    assert [kind for kind, _ in served] == ["slow", "quick"] * 3
    slow_ms = [ms - begun_ms for kind, ms in served if kind == "slow"]
    assert slow_ms[1] - slow_ms[0] >= 100
    assert slow_ms[2] - slow_ms[1] >= 100
    assert served[1][1] - served[0][1] < 100
