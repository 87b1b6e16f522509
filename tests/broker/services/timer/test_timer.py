"""The timer as it runs: its loop, its saves, its end."""

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from roquet.model.errors import StoreError, StoreFull
from roquet.store.timer.layout import TimerUnit
from roquet.testing.clock import in_virtual_time, this_loop

if TYPE_CHECKING:
    from tests.broker.services.conftest import Tower

START = 1_700_000_000_000
DAY_MS = 86_400_000


def test_a_day_of_delivery_times(new_tower: "type[Tower]") -> None:
    """Whatever was sent comes once, at its time; the process stops in order now and then."""
    tower, random = new_tower(), Random(4)
    wanted: dict[bytes, int] = {}
    for number in range(400):
        tower.wait(random.randrange(2 * DAY_MS // 800))
        delay = int(random.choice((100, 5_000, 600_000, 20_000_000)) * random.random()) + 1
        body = b"%d" % number
        wanted[body] = tower.clock.now_ms() + delay
        tower.after(body, delay)
        if random.random() < 0.02:
            tower.restart()
    tower.wait(20_000_000)
    found = {one.body: one.stored_ms for one in tower.records()}
    assert len(tower.records()) == len(wanted)
    assert min(found[body] - wanted[body] for body in wanted) >= 0
    assert max(found[body] - wanted[body] for body in wanted) <= 1
    assert tower.timer.behind == tower.timings.total == 0


@pytest.mark.parametrize("seed", range(8))
def test_kills_at_any_step_lose_nothing_and_deliver_nothing_early(
    new_tower: "type[Tower]", seed: int
) -> None:
    tower, random = new_tower(slots=256), Random(seed)
    wanted: dict[bytes, int] = {}
    for number in range(60):
        body, delay = b"%d" % number, random.randrange(1, 9_000)
        wanted[body] = tower.clock.now_ms() + delay
        tower.after(body, delay)
        for _ in range(random.randrange(4)):
            at = tower.step()
            if at is not None and at > tower.clock.now_ms():
                tower.skip(random.randrange(1, 400))
        if random.random() < 0.3:
            tower.save()
        if random.random() < 0.25:
            tower.kill()
    tower.wait(10_000)
    found = tower.records()
    assert {one.body for one in found} == set(wanted)
    assert all(one.stored_ms >= wanted[one.body] for one in found)


HOUR_MS = 3_600_000


@pytest.mark.parametrize("ahead", [61_000, HOUR_MS, 3 * DAY_MS], ids=["minute", "hour", "days"])
def test_nothing_new_waits_until_a_clock_that_was_ahead_is_reached_again(
    new_tower: "type[Tower]", ahead: int
) -> None:
    tower = new_tower(slots=256)
    tower.after(b"before", 1_000)
    tower.wait(2_000)
    tower.skip(ahead)
    tower.after(b"ahead", 1_500)
    tower.wait(1_700)
    assert tower.bodies() == [b"before", b"ahead"]
    tower.clock._start_ms -= ahead
    wanted = tower.clock.now_ms() + 5_000
    tower.after(b"new", 5_000)
    tower.wait(4_999)
    assert tower.bodies() == [b"before", b"ahead"]
    tower.wait(2)
    assert tower.bodies() == [b"before", b"ahead", b"new"]
    assert 0 <= tower.records()[2].stored_ms - wanted <= 1
    tower.wait(70_000)
    assert len(tower.bodies()) == 3


def test_what_was_delivered_ahead_does_not_come_again_as_its_time_does(
    new_tower: "type[Tower]",
) -> None:
    tower = new_tower(slots=256)
    for number in range(200):
        tower.after(b"%d" % number, number * 500)
    tower.wait(80_200)
    assert len(tower.bodies()) == 161
    tower.clock._start_ms -= 70_000
    tower.restart()
    tower.wait(200_000)
    assert sorted(map(int, tower.bodies())) == list(range(200))


def test_a_message_that_waits_far_ahead_is_not_lost_to_a_near_one(
    new_tower: "type[Tower]",
) -> None:
    tower = new_tower(slots=256)
    tower.after(b"first", 1_000)
    tower.wait(2_000)
    tower.skip(256_000)
    tower.after(b"far", 20_000)
    tower.wait(1_000)
    tower.clock._start_ms -= 256_000
    tower.after(b"near", 19_000)
    tower.wait(19_000)
    tower.wait(1_001)
    assert tower.bodies() == [b"first", b"near"]
    tower.wait(300_000)
    assert tower.bodies() == [b"first", b"near", b"far"]


@pytest.mark.parametrize("seed", range(8))
def test_kills_while_the_clock_is_set_forth_and_back_lose_nothing(
    new_tower: "type[Tower]", seed: int
) -> None:
    tower, random = new_tower(slots=256), Random(seed)
    wanted: dict[bytes, int] = {}
    for number in range(80):
        body, delay = b"%d" % number, random.randrange(1, 9_000)
        wanted[body] = tower.clock.now_ms() + delay
        tower.after(body, delay)
        for _ in range(random.randrange(12)):
            at = tower.step()
            if at is not None and at > tower.clock.now_ms():
                tower.skip(random.randrange(1, 400))
        if random.random() < 0.4:
            tower.save()
        if random.random() < 0.2:
            tower.clock._start_ms += random.choice((-1, 1)) * random.randrange(200_000)
        if random.random() < 0.25:
            tower.kill()
    tower.wait(2_000_000)
    found = tower.records()
    assert {one.body for one in found} == set(wanted)
    assert all(one.stored_ms >= wanted[one.body] for one in found)


class Running:
    """A tower whose timer runs by itself in virtual time."""

    def __init__(self, tower: "Tower") -> None:
        self.tower = tower
        tower.clock = this_loop().clock
        tower.open()
        self.tasks = [asyncio.create_task(work) for work in tower.timer.work()]

    async def stop(self) -> None:
        self.tower.arrivals.close()
        await asyncio.sleep(5)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.tower.timer.save(0)
        self.tower.timer.close()
        self.tower.flush.close()


@pytest.fixture
def idle(new_tower: "type[Tower]") -> "Tower":
    """Not yet opened by the process under test."""
    tower = new_tower(slots=256)
    tower.stop()
    return tower


def test_it_wakes_for_what_comes_and_for_what_is_due(idle: "Tower") -> None:
    @in_virtual_time
    async def live() -> list[int]:
        running = Running(idle)
        await asyncio.sleep(3_600)
        began = idle.clock.now_ms()
        idle.after(b"one", 2_345)
        await asyncio.sleep(1)
        idle.after(b"two", 234)
        await asyncio.sleep(5)
        await running.stop()
        return [one.stored_ms - began for one in idle.records()]

    assert live() == [1_234, 2_345]
    assert idle.bodies() == [b"two", b"one"]


def test_a_trouble_passes(idle: "Tower", monkeypatch: pytest.MonkeyPatch) -> None:
    @in_virtual_time
    async def live() -> None:
        running = Running(idle)
        append, left = idle.store.append, [2]

        def full(*args: Any) -> Any:
            if left[0] and args[0].topic == "orders":
                left[0] -= 1
                raise StoreFull("no room")
            return append(*args)

        monkeypatch.setattr(idle.store, "append", full)
        idle.after(b"one", 1_000)
        await asyncio.sleep(10)
        await running.stop()

    live()
    assert idle.bodies() == [b"one"]


def test_a_running_timer_follows_a_clock_that_was_set_back(
    idle: "Tower", caplog: pytest.LogCaptureFixture
) -> None:
    @in_virtual_time
    async def live() -> list[int]:
        running = Running(idle)
        idle.after(b"one", 1_000)
        await asyncio.sleep(2)
        idle.clock._start_ms -= 3_600_000
        began = idle.clock.now_ms()
        idle.after(b"two", 5_000)
        await asyncio.sleep(10)
        await running.stop()
        return [one.stored_ms - began for one in idle.records()][1:]

    assert live() == [5_000]
    assert caplog.text.count("the clock was set back by 3599000") == 1


def test_what_was_delivered_ahead_cannot_be_taken_back(tower: "Tower") -> None:
    tower.after(b"one", 10_000)
    tower.wait(10_500)
    tower.clock._start_ms -= 5_000

    def fault(deliver_ms: int) -> str | None:
        return tower.timer.recall_fault(deliver_ms, tower.clock.now_ms(), DAY_MS)

    assert tower.bodies() == [b"one"]
    assert fault(START + 9_001) == "recall failed, timestamp invalid"
    assert fault(START + 5_001) == "recall failed, timestamp invalid", "the clock says so"
    assert fault(START + 10_001) is None
    tower.clock._start_ms += 5_000
    tower.after(b"two", 200)
    tower.wait(200)
    tower.clock._start_ms -= 5_000
    assert fault(START + 10_001) == "recall failed, timestamp invalid"
    assert fault(START + 11_001) is None


def test_while_there_is_no_place_it_waits(idle: "Tower") -> None:
    @in_virtual_time
    async def live() -> None:
        running = Running(idle)
        idle.after(b"near", 5_000)
        await asyncio.sleep(0.5)
        idle.after(b"far", 258_000)
        await asyncio.sleep(2)
        assert idle.timer.behind == 1
        fault = idle.timer.recall_fault(START + 10_001, idle.clock.now_ms(), DAY_MS)
        assert fault == "recall failed, the timer is behind: try again later"
        await asyncio.sleep(300)
        await running.stop()

    live()
    assert idle.bodies() == [b"near", b"far"]


async def test_progress_is_saved_after_the_messages(tower: "Tower") -> None:
    tower.after(b"one", 1_000)
    tower.wait(1_000)
    assert tower.store.flushed_position < tower.store.end_position
    tower.timers.unsaved = True
    await tower.timer.save(tower.clock.now_ms())
    assert tower.store.flushed_position == tower.store.end_position
    assert not tower.timers.unsaved
    assert tower.timings.version.counter == 1
    saved = tower.timer.checkpoint
    await tower.timer.save(tower.clock.now_ms())
    assert tower.timer.checkpoint == saved


async def test_progress_is_not_saved_when_the_messages_are_not(
    tower: "Tower", monkeypatch: pytest.MonkeyPatch
) -> None:
    tower.after(b"one", 60_000)
    tower.settle()

    def broken() -> int:
        raise StoreError("the disk is gone")

    monkeypatch.setattr(tower.store, "flush_log", broken)
    with pytest.raises(StoreError):
        await tower.timer.save(tower.clock.now_ms())
    assert tower.timers.unsaved
    monkeypatch.undo()
    await tower.timer.save(tower.clock.now_ms())
    tower.kill()
    assert tower.timers.offset == 1


def test_what_retention_deleted_leaves_the_timer_log(tower: "Tower") -> None:
    asked: list[int] = []
    tower.timers.expire = asked.append  # type: ignore[method-assign, assignment]
    tower.timer.expire()
    assert asked == [0]


def test_a_unit_knows_the_offset_of_its_message(tower: "Tower") -> None:
    from roquet.broker.services.timer.timer import offset_of

    tower.after(b"zero", 1_000)
    stored = tower.after(b"one", 1_000).appended
    plain = tower.send(b"plain").appended
    assert offset_of(tower.store, TimerUnit(1, 0, 0, stored.position, stored.size, 0)) == 1
    assert offset_of(tower.store, TimerUnit(1, 0, 0, stored.position, 5, 0)) is None
    assert offset_of(tower.store, TimerUnit(1, 0, 0, plain.position, plain.size, 0)) is None
