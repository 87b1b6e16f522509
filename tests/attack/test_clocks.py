"""Clocks: the wall clock jumps weeks back or ahead, for a moment or for good, at every service.

Whatever it does, all that was acknowledged is delivered, once the clock is right or has gone on;
nothing waits until a wrong time is reached again, and no file goes because of it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from roquet.broker.app import BrokerServer
from roquet.broker.broker import Broker
from roquet.broker.handlers.messages.send import SendHandler
from roquet.broker.settings.config import BrokerConfig
from roquet.model import names
from roquet.net.clock import Clock, SteadyClock
from roquet.rules.consumption.pop import PopCheckpoint
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.store import Draft
from roquet.testing.clock import VirtualClock, run, this_loop
from roquet.wire.calls.send import Send
from roquet.wire.records.record import decode_many

pytestmark = pytest.mark.attack

DAY_MS: Final = 86_400_000
JUMPS_MS: Final = [
    sign * size for size in (2 * 60_000, DAY_MS, 30 * DAY_MS, 60 * DAY_MS) for sign in (-1, 1)
]
MOMENT_MS: Final = 500
MINUTES_MS: Final = 5 * 60_000
HALF_TOPIC, GIVEN_UP = names.HALF_TOPIC, names.CHECK_MAX_TIME_TOPIC
RETRY: Final = names.pop_retry_topic("g", "popped")


class WrongClock:
    """A wall clock that somebody sets, beside a stopwatch that goes on."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.wrong_ms = 0

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.wrong_ms

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()

    async def sleep(self, ms: int) -> None:
        await self._clock.sleep(ms)


class Peer:
    address, language, version, host_bytes = (
        "10.0.0.7:5000",
        0,
        0,
        b"\x0a\x00\x00\x07\x00\x00\x13\x88",
    )
    closed = is_full = False

    def oneway(self, call: object) -> None:
        pass


def config() -> BrokerConfig:
    return BrokerConfig(
        host="127.0.0.1", port=0, vip_port=False, store_dir=Path("/memory"),
        log_file_size=1 << 16, queue_file_entries=2_000, index_slots=500, index_entries=20_000,
        default_queue_count=1, transaction_check_interval=5_000, transaction_check_max=2,
        transaction_timeout=2_000, delete_hour=4,
    )  # fmt: skip


class ClockRun:
    """A broker under a wrong clock, and the messages sent to it."""

    def __init__(self, broker: Broker, wall: WrongClock) -> None:
        self.broker = broker
        self.wall = wall
        self.sent: dict[str, set[bytes]] = {name: set() for name in ("orders", GIVEN_UP, RETRY)}

    def work(self, name: str, *, is_timed: bool = True) -> None:
        """Something for each service."""
        body = name.encode()
        self.send(body + b" now", "")
        self.send(body + b" level", "DELAY\x011\x02")
        if is_timed:
            self.send(body + b" timed", "TIMER_DELAY_MS\x013000\x02")
        half = f"TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01half {name}\x02"
        self.send(body + b" half", half, GIVEN_UP)
        self._pop(body + b" popped")

    def send(self, body: bytes, text: str, topic: str = "orders") -> None:
        call = Send(
            producer_group="pg", topic="orders", queue_id=0, properties=text, body=body,
            born_timestamp=self.broker.control.clock.now_ms(),
        )  # fmt: skip
        self.broker.bind(SendHandler.send)(call, Peer())  # type: ignore[arg-type]
        self.sent[topic].add(body)

    def _pop(self, body: bytes) -> None:
        broker, now_ms = self.broker, self.broker.control.clock.now_ms()
        broker.tables.groups.find("g", now_ms)
        offset = broker.log.ingest.append_draft(Draft("popped", 0, body, b"")).queue_offset
        found = PopCheckpoint(
            group="g", topic="popped", queue_id=0, start=offset, pop_ms=now_ms,
            invisible_ms=2_000, delivered=1, left=1, revive_queue_id=0, revive_offset=0,
        )  # fmt: skip
        broker.delivery.revive.give(found)
        broker.tables.offsets.commit("g", "popped", 0, offset + 1)
        self.sent[RETRY].add(body)

    def missing(self) -> set[bytes]:
        """What was acknowledged and is not where it belongs."""
        found: set[bytes] = set()
        for topic, bodies in self.sent.items():
            found |= bodies - self.bodies(topic)
        return found

    def bodies(self, topic: str) -> set[bytes]:
        read = self.broker.log.store.read(topic, 0, 0, count_max=10_000, bytes_max=1 << 26)
        return {record.body for part in read.parts for record in decode_many(part)}


@asynccontextmanager
async def day(make: Callable[[Clock], Clock]) -> AsyncIterator[tuple[ClockRun, WrongClock]]:
    wall = WrongClock(this_loop().clock)
    async with BrokerServer(config(), make(wall), files=MemoryFiles()) as server:
        yield ClockRun(server.broker, wall), wall


def plain(clock: Clock) -> Clock:
    """Jumps are believed at once."""
    return clock


async def _jump(make: Callable[[Clock], Clock], jump_ms: int, lasts_ms: int) -> None:
    async with day(make) as (found, wall):
        found.work("before")
        await wall.sleep(1_500)
        wall.wrong_ms = jump_ms
        await wall.sleep(lasts_ms // 2)
        # A time on the wheel is a time of day: one that was asked for weeks ahead waits for weeks.
        found.work("during", is_timed=make is SteadyClock or jump_ms < 0 or lasts_ms > 10_000)
        await wall.sleep(lasts_ms // 2)
        wall.wrong_ms = 0
        found.work("at once")
        await wall.sleep(1_000)
        found.work("after")
        await wall.sleep(120_000)
        assert found.missing() == set()
        assert found.broker.log.store.begin_position == 0, "no file goes for a clock's sake"
        assert found.broker.delivery.set_aside.total == 0


@pytest.mark.parametrize("jump_ms", JUMPS_MS, ids=lambda ms: f"{ms / DAY_MS:+.2f}d")
@pytest.mark.parametrize("make", [plain, SteadyClock], ids=["raw", "steady"])
@pytest.mark.parametrize("lasts_ms", [MOMENT_MS, MINUTES_MS], ids=["moment", "minutes"])
def test_all_messages_are_delivered_after_a_clock_jump_and_back(
    make: Callable[[Clock], Clock],
    jump_ms: int,
    lasts_ms: int,
    depth: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if depth == "short" and abs(jump_ms) not in {2 * 60_000, 30 * DAY_MS}:
        pytest.skip("ATTACK=full tries this jump")
    caplog.set_level(logging.CRITICAL)
    run(_jump(make, jump_ms, lasts_ms))


async def _stays(jump_ms: int) -> None:
    async with day(SteadyClock) as (found, wall):
        found.work("before")
        await wall.sleep(1_500)
        wall.wrong_ms = jump_ms
        found.work("jumping")
        await wall.sleep(20_000)
        found.work("after")
        await wall.sleep(120_000)
        assert found.missing() == set()
        assert found.broker.log.store.begin_position == 0, "an operator has an hour to set it right"


@pytest.mark.parametrize("jump_ms", JUMPS_MS, ids=lambda ms: f"{ms / DAY_MS:+.2f}d")
def test_a_clock_that_stays_where_it_was_set_delays_nothing(
    jump_ms: int, depth: str, caplog: pytest.LogCaptureFixture
) -> None:
    if depth == "short" and abs(jump_ms) != 30 * DAY_MS:
        pytest.skip("ATTACK=full tries this jump")
    caplog.set_level(logging.CRITICAL)
    run(_stays(jump_ms))


def test_a_moment_of_a_wrong_clock_brings_nothing_early() -> None:
    """Delay levels and delivery times, by the clock as it is before and after."""

    async def scene(jump_ms: int) -> None:
        async with day(SteadyClock) as (found, wall):
            found.send(b"far", "TIMER_DELAY_MS\x0160000\x02")
            found.send(b"level", "DELAY\x015\x02")  # a minute
            await wall.sleep(1_000)
            wall.wrong_ms = jump_ms
            await wall.sleep(MOMENT_MS)
            wall.wrong_ms = 0
            await wall.sleep(55_000)
            assert found.missing() == {b"far", b"level"}
            await wall.sleep(6_000)
            assert found.missing() == set()

    for jump_ms in (-30 * DAY_MS, 30 * DAY_MS):
        run(scene(jump_ms))


async def _many_files(broker: Broker) -> None:
    for _ in range(40):
        broker.log.ingest.append_draft(Draft("orders", 0, bytes(8_000), b""))
        await asyncio.sleep(0)


@pytest.mark.parametrize(("jump_ms", "lasts_ms"), [(30 * DAY_MS, 500), (60 * DAY_MS, 1_800_000)])
def test_a_clock_that_is_ahead_for_a_while_does_not_empty_the_log(
    jump_ms: int, lasts_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Retention at any hour: the disk is nearly full enough for that."""
    caplog.set_level(logging.CRITICAL)

    async def scene(make: Callable[[Clock], Clock]) -> None:
        async with day(make) as (found, wall):
            broker = found.broker
            await _many_files(broker)
            expire = broker.log.store.expire

            def at_once(now_ms: int, *args: Any, **more: Any) -> list[str]:
                return expire(now_ms, *args, **{**more, "at_once": True})

            broker.log.store.expire = at_once  # type: ignore[method-assign]
            await wall.sleep(30_000)
            wall.wrong_ms = jump_ms
            await wall.sleep(lasts_ms)
            wall.wrong_ms = 0
            await wall.sleep(30_000)
            assert broker.log.store.begin_position == 0
            assert len(found.bodies("orders")) == 1

    run(scene(plain))
    run(scene(SteadyClock))


@pytest.mark.parametrize("ahead_ms", [2 * 60_000, 20 * 60_000])
@pytest.mark.parametrize("make", [plain, SteadyClock], ids=["raw", "steady"])
def test_a_delay_of_a_clock_that_is_ahead_for_minutes_lasts_as_long_as_it_says(
    make: Callable[[Clock], Clock], ahead_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Sent just before the clock is set right, when nobody doubts it any more."""
    caplog.set_level(logging.CRITICAL)

    async def scene() -> None:
        async with day(make) as (found, wall):
            found.send(b"first", "TIMER_DELAY_MS\x01500\x02")
            await wall.sleep(5_000)
            wall.wrong_ms = ahead_ms
            await wall.sleep(MINUTES_MS)
            found.send(b"delayed", "TIMER_DELAY_MS\x0160000\x02")
            await wall.sleep(1_000)
            wall.wrong_ms = 0
            await wall.sleep(58_000)
            assert found.missing() == {b"delayed"}
            await wall.sleep(5_000)
            assert found.missing() == set()
            await wall.sleep(ahead_ms + 120_000)
            read = found.broker.log.store.read("orders", 0, 0, count_max=100, bytes_max=1 << 20)
            assert sum(len(list(decode_many(part))) for part in read.parts) == 2, "each once"

    run(scene())
