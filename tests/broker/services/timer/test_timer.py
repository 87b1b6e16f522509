"""The timer as it runs: its loop, its saves, its end."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.broker.conftest import failing
from tests.broker.services.conftest import TimerHarness

from roquet.model.errors import StoreError, StoreFull
from roquet.rules.delay.timer import floor_ms
from roquet.store.timer.layout import TimerUnit
from roquet.testing.clock import in_virtual_time, this_loop

START = 1_700_000_000_000
DAY_MS = 86_400_000
TIMER = "rmq_sys_wheel_timer"
ROOT = Path("/data")


def test_a_day_of_delivery_times() -> None:
    """Whatever was sent comes once, at its time; the process stops in order now and then."""
    harness, random = TimerHarness(), Random(4)
    wanted: dict[bytes, int] = {}
    for number in range(400):
        harness.wait(random.randrange(2 * DAY_MS // 800))
        delay = int(random.choice((100, 5_000, 600_000, 20_000_000)) * random.random()) + 1
        body = b"%d" % number
        wanted[body] = harness.clock.now_ms() + delay
        harness.after(body, delay)
        if random.random() < 0.02:
            harness.restart()
    harness.wait(20_000_000)
    stored_ms = {record.body: record.stored_ms for record in harness.records()}
    assert len(harness.records()) == len(wanted)
    assert min(stored_ms[body] - wanted[body] for body in wanted) >= 0
    assert max(stored_ms[body] - wanted[body] for body in wanted) <= 1
    assert harness.timer.behind == harness.timings.total == 0


def live_through_kills(
    random: Random, *, count: int, steps: int, saves: float, leaps: float = 0
) -> None:
    """Whatever was sent comes, and not early, though the process is killed at any step."""
    harness = TimerHarness(slots=256)
    wanted: dict[bytes, int] = {}
    for number in range(count):
        body, delay = b"%d" % number, random.randrange(1, 9_000)
        wanted[body] = harness.clock.now_ms() + delay
        harness.after(body, delay)
        for _ in range(random.randrange(steps)):
            at = harness.step()
            if at is not None and at > harness.clock.now_ms():
                harness.skip(random.randrange(1, 400))
        if random.random() < saves:
            harness.save()
        if random.random() < leaps:
            harness.clock.shift_wall_time(random.choice((-1, 1)) * random.randrange(200_000))
        if random.random() < 0.25:
            harness.kill()
    harness.wait(2_000_000 if leaps else 10_000)
    records = harness.records()
    assert {record.body for record in records} == set(wanted)
    assert all(record.stored_ms >= wanted[record.body] for record in records)


@pytest.mark.parametrize("seed", range(8))
def test_kills_at_any_step_lose_nothing_and_deliver_nothing_early(seed: int) -> None:
    live_through_kills(Random(seed), count=60, steps=4, saves=0.3)


HOUR_MS = 3_600_000


@pytest.mark.parametrize("ahead", [61_000, HOUR_MS, 3 * DAY_MS], ids=["minute", "hour", "days"])
def test_nothing_new_waits_until_a_clock_that_was_ahead_is_reached_again(ahead: int) -> None:
    harness = TimerHarness(slots=256)
    harness.after(b"before", 1_000)
    harness.wait(2_000)
    harness.skip(ahead)
    harness.after(b"ahead", 1_500)
    harness.wait(1_700)
    assert harness.bodies() == [b"before", b"ahead"]
    harness.clock.shift_wall_time(-ahead)
    wanted = harness.clock.now_ms() + 5_000
    harness.after(b"new", 5_000)
    harness.wait(4_999)
    assert harness.bodies() == [b"before", b"ahead"]
    harness.wait(2)
    assert harness.bodies() == [b"before", b"ahead", b"new"]
    assert 0 <= harness.records()[2].stored_ms - wanted <= 1
    harness.wait(70_000)
    assert len(harness.bodies()) == 3


def test_a_message_delivered_under_a_fast_clock_does_not_come_again() -> None:
    harness = TimerHarness(slots=256)
    harness.after_each(200, 0, 500)
    harness.wait(80_200)
    assert len(harness.bodies()) == 161
    harness.clock.shift_wall_time(-70_000)
    harness.restart()
    harness.wait(200_000)
    assert sorted(map(int, harness.bodies())) == list(range(200))


def test_a_message_that_waits_far_ahead_is_not_lost_to_a_near_one() -> None:
    harness = TimerHarness(slots=256)
    harness.after(b"first", 1_000)
    harness.wait(2_000)
    harness.skip(256_000)
    harness.after(b"far", 20_000)
    harness.wait(1_000)
    harness.clock.shift_wall_time(-256_000)
    harness.after(b"near", 19_000)
    harness.wait(19_000)
    harness.wait(1_001)
    assert harness.bodies() == [b"first", b"near"]
    harness.wait(300_000)
    assert harness.bodies() == [b"first", b"near", b"far"]


@pytest.mark.parametrize("seed", range(8))
def test_kills_while_the_clock_is_set_forth_and_back_lose_nothing(seed: int) -> None:
    live_through_kills(Random(seed), count=80, steps=12, saves=0.4, leaps=0.2)


class RunningTimer:
    """A tower whose timer runs by itself in virtual time."""

    def __init__(self, harness: TimerHarness) -> None:
        self.harness = harness
        harness.clock = this_loop().clock
        harness.open()
        self.tasks = [asyncio.create_task(work) for work in harness.timer.work()]

    async def stop(self) -> None:
        self.harness.arrivals.close()
        await asyncio.sleep(5)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.harness.timer.save(0)
        self.harness.timer.close()
        self.harness.flush.close()


@pytest.fixture
def idle() -> TimerHarness:
    """Not yet opened by the process under test."""
    harness = TimerHarness(slots=256)
    harness.stop()
    return harness


def test_the_timer_wakes_for_new_and_for_due_messages(idle: TimerHarness) -> None:
    @in_virtual_time
    async def live() -> list[int]:
        running = RunningTimer(idle)
        await asyncio.sleep(3_600)
        began = idle.clock.now_ms()
        idle.after(b"one", 2_345)
        await asyncio.sleep(1)
        idle.after(b"two", 234)
        await asyncio.sleep(5)
        await running.stop()
        return [record.stored_ms - began for record in idle.records()]

    assert live() == [1_234, 2_345]
    assert idle.bodies() == [b"two", b"one"]


def test_a_trouble_passes(idle: TimerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    @in_virtual_time
    async def live() -> None:
        running = RunningTimer(idle)
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
    idle: TimerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    @in_virtual_time
    async def live() -> list[int]:
        running = RunningTimer(idle)
        idle.after(b"one", 1_000)
        await asyncio.sleep(2)
        idle.clock.shift_wall_time(-3_600_000)
        began = idle.clock.now_ms()
        idle.after(b"two", 5_000)
        await asyncio.sleep(10)
        await running.stop()
        return [record.stored_ms - began for record in idle.records()][1:]

    assert live() == [5_000]
    assert caplog.text.count("the clock was set back by 3599000") == 1


def test_a_message_delivered_under_a_fast_clock_cannot_be_recalled(harness: TimerHarness) -> None:
    harness.after(b"one", 10_000)
    harness.wait(10_500)
    harness.clock.shift_wall_time(-5_000)

    def fault(deliver_ms: int) -> str | None:
        return harness.timer.recall_fault(deliver_ms, harness.clock.now_ms(), DAY_MS)

    assert harness.bodies() == [b"one"]
    assert fault(START + 9_001) == "recall failed, timestamp invalid"
    assert fault(START + 5_001) == "recall failed, timestamp invalid", "the clock says so"
    assert fault(START + 10_001) is None
    harness.clock.shift_wall_time(5_000)
    harness.after(b"two", 200)
    harness.wait(200)
    harness.clock.shift_wall_time(-5_000)
    assert fault(START + 10_001) == "recall failed, timestamp invalid"
    assert fault(START + 11_001) is None


@in_virtual_time
async def test_the_timer_waits_for_a_free_slot_on_the_wheel(idle: TimerHarness) -> None:
    running = RunningTimer(idle)
    idle.after(b"near", 5_000)
    await asyncio.sleep(0.5)
    idle.after(b"far", 258_000)
    await asyncio.sleep(2)
    assert idle.timer.behind == 1
    fault = idle.timer.recall_fault(START + 10_001, idle.clock.now_ms(), DAY_MS)
    assert fault == "recall failed, the timer is behind: try again later"
    await asyncio.sleep(300)
    await running.stop()
    assert idle.bodies() == [b"near", b"far"]


async def test_progress_is_saved_after_the_messages(harness: TimerHarness) -> None:
    harness.after(b"one", 1_000)
    harness.wait(1_000)
    assert harness.store.flushed_position < harness.store.end_position
    harness.timers.unsaved = True
    await harness.timer.save(harness.clock.now_ms())
    assert harness.store.flushed_position == harness.store.end_position
    assert not harness.timers.unsaved
    assert harness.timings.version.counter == 1
    saved = harness.timer.checkpoint
    await harness.timer.save(harness.clock.now_ms())
    assert harness.timer.checkpoint == saved


async def test_progress_is_not_saved_when_the_messages_are_not(
    harness: TimerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.after(b"one", 60_000)
    harness.settle()

    monkeypatch.setattr(harness.store, "flush_log", failing(StoreError("the disk is gone")))
    with pytest.raises(StoreError):
        await harness.timer.save(harness.clock.now_ms())
    assert harness.timers.unsaved
    monkeypatch.undo()
    await harness.timer.save(harness.clock.now_ms())
    harness.kill()
    assert harness.timers.offset == 1


def test_entries_of_deleted_messages_are_removed_from_the_timer_log(harness: TimerHarness) -> None:
    asked: list[int] = []
    harness.timers.expire = asked.append  # type: ignore[method-assign, assignment]
    harness.timer.expire()
    assert asked == [0]


def test_a_unit_knows_the_offset_of_its_message(harness: TimerHarness) -> None:
    from roquet.broker.services.timer.timer import offset_of

    harness.after(b"zero", 1_000)
    stored = harness.after(b"one", 1_000).appended
    plain = harness.send(b"plain").appended
    assert offset_of(harness.store, TimerUnit(1, 0, 0, stored.position, stored.size, 0)) == 1
    assert offset_of(harness.store, TimerUnit(1, 0, 0, stored.position, 5, 0)) is None
    assert offset_of(harness.store, TimerUnit(1, 0, 0, plain.position, plain.size, 0)) is None


def test_a_replica_takes_over_where_its_master_was() -> None:
    harness = TimerHarness()
    delivered = harness.after(b"delivered", 2_000)
    harness.after(b"waits", 60_000)
    start = harness.clock.now_ms()
    harness.skip(30_000)
    harness.follow(2, start + 30_500)
    assert harness.bodies() == []
    assert harness.timer.behind == 0
    assert harness.timers.read_ms == (start + 30_500) // 1_000 * 1_000
    harness.after(b"later", 5_000)  # its master had not taken it
    harness.wait(60_000)
    assert harness.bodies() == [b"later", b"waits"]
    assert delivered.appended.queue_offset == 0


def test_a_replica_puts_nothing_on_the_wheel_that_its_master_has_not(harness: TimerHarness) -> None:
    bodies = harness.after_each(100, 60_000)
    harness.follow(70)
    assert harness.timers.offset == 70
    assert harness.timings.get("orders") == 0, "the master's counts are copied"
    harness.follow(200)
    assert harness.timers.offset == 100
    harness.wait(61_000)
    assert sorted(harness.bodies()) == sorted(bodies)


def test_the_progress_of_a_master_is_saved_now_and_then(harness: TimerHarness) -> None:
    harness.after(b"one", 60_000)
    harness.skip(20_000)
    harness.follow(1)
    assert harness.timers.is_saved
    harness.kill()
    assert harness.timer.behind == 0


def test_what_was_delivered_comes_again_if_the_next_master_lacked_it(harness: TimerHarness) -> None:
    harness.skip(500)
    harness.after_each(3, 1)
    harness.after(b"waits", 60_000)
    harness.wait(2_000)
    assert harness.bodies() == [b"0", b"1", b"2"]
    harness.follow(1)
    assert len(harness.bodies()) == 3, "a replica delivers nothing"
    harness.wait(60_000)
    assert harness.bodies()[3:] == [b"1", b"2", b"waits"]


def test_that_is_remembered_if_the_process_is_killed_before_it_leads(harness: TimerHarness) -> None:
    harness.after(b"waits", 60_000)
    harness.settle()
    safe_ms = harness.clock.now_ms()
    harness.after_each(3, 3_000)
    harness.skip(5_000)
    harness.timers.advance_to(floor_ms(harness.clock.now_ms()))
    harness.settle()
    assert harness.bodies() == [b"0", b"1", b"2"], "they were taken late, and never on the wheel"
    harness.follow(2, safe_ms)
    harness.save()
    told = harness.timer.checkpoint
    assert (told.offset, told.master_offset) == (4, 2), "replicas are told of no more"
    harness.kill()
    assert harness.timer.checkpoint.master_offset == 2
    harness.wait(60_000)
    assert harness.bodies()[3:] == [b"1", b"2", b"waits"]
    assert harness.timer.checkpoint.master_offset == 4


@pytest.mark.parametrize(("ahead_ms", "late_ms"), [(80_000, 0), (30_000, 30_000)])
@pytest.mark.parametrize("is_killed", [False, True])
def test_what_waits_in_a_second_that_a_wrong_clock_had_passed_comes_if_nobody_has_taken_it(
    harness: TimerHarness, ahead_ms: int, late_ms: int, *, is_killed: bool
) -> None:
    harness.after(b"first", 1_000)
    harness.wait(2_000)
    wanted_ms = harness.clock.now_ms() + 10_000
    harness.after(b"waits", 10_000)
    harness.after(b"taken back", 10_000)
    harness.recall(b"taken back", wanted_ms)
    harness.settle()
    harness.follow(1, harness.clock.now_ms() + ahead_ms)
    harness.save()
    if is_killed:
        harness.kill()
    harness.wait(9_000)
    assert harness.bodies() == [b"first"]
    harness.wait(1_001 + late_ms)
    assert harness.bodies() == [b"first", b"waits"]


def test_replicas_wait_for_what_was_stored_again_for_a_second_that_they_take_for_over() -> None:
    harness = TimerHarness()
    harness.after(b"waits", 10_000)
    harness.settle()
    ahead_ms = harness.clock.now_ms() + 80_000
    harness.follow(0, ahead_ms)
    while harness.timers.untaken is not None:
        harness.step()
    told = harness.timer.checkpoint
    assert (told.master_offset, told.read_ms) == (1, floor_ms(ahead_ms))
    harness.wait(1_000)
    replica = TimerHarness()
    replica.clock = harness.clock
    replica.files = harness.files.copy()
    for directory in (ROOT, ROOT / "timerlog", ROOT / "config"):
        for name, size in replica.files.list(directory).items():
            if size is not None and (directory.name == "timerlog" or name.startswith("timer")):
                replica.files.remove(directory / name)
    replica.open()
    assert replica.timers.offset == 0
    asyncio.run(replica.timer.follow(told))
    replica.wait(10_000)
    assert replica.bodies() == [b"waits"]


def test_a_broker_that_leads_again_follows_no_clock_of_its_last_lead(harness: TimerHarness) -> None:
    harness.after(b"first", 1_000)
    harness.wait(2_000)
    harness.after(b"next", 3_000)
    harness.settle()
    safe = harness.timer.checkpoint
    harness.skip(100_000)
    harness.settle()
    harness.clock.shift_wall_time(-90_000)
    harness.step()
    assert harness.timer.is_going_back
    assert harness.bodies() == [b"first", b"next"]
    asyncio.run(harness.timer.follow(safe))
    harness.settle()
    assert harness.bodies() == [b"first", b"next", b"next"], "its first delivery may be lost"


def test_what_a_clock_that_was_ahead_delivered_comes_in_its_time(harness: TimerHarness) -> None:
    harness.after(b"first", 1_000)
    harness.wait(2_000)
    safe_ms = harness.clock.now_ms()
    harness.store.set_confirmed(harness.store.end_position)
    harness.after(b"early", 50_000)
    harness.skip(80_000)
    harness.settle()
    harness.store.set_confirmed(None)
    harness.settle()
    harness.clock.shift_wall_time(-80_000)
    assert harness.bodies() == [b"first", b"early"]
    harness.follow(1, safe_ms)
    harness.wait(49_999)
    assert harness.bodies() == [b"first", b"early"]
    harness.wait(2)
    assert harness.bodies() == [b"first", b"early", b"early"]


def cut(harness: TimerHarness, end: int) -> None:
    """Cut the log in front of a timed message, as a replica's."""
    (first,) = (record for record in harness.records(TIMER) if record.queue_offset == end)
    harness.store.raw.truncate(first.position)


@pytest.mark.parametrize("killed", ["never", "before the cut", "behind it"])
def test_messages_that_came_in_the_place_of_those_cut_wait_like_any(
    harness: TimerHarness, killed: str
) -> None:
    for number in range(5):
        harness.after(b"old %d" % number, 60_000)
    harness.settle()
    harness.save()
    read_ms = harness.clock.now_ms()
    harness.timer.prepare_cut(3)
    if killed == "before the cut":
        harness.kill()
        harness.timer.prepare_cut(3)
    cut(harness, 3)
    if killed == "behind it":
        harness.kill()
    for number in range(3, 7):
        harness.after(b"new %d" % number, 90_000)
    harness.follow(7, read_ms)
    assert harness.timer.checkpoint.master_offset == harness.timers.offset == 7
    harness.wait(60_000)
    assert sorted(harness.bodies()) == [b"old 0", b"old 1", b"old 2"]
    harness.wait(31_000)
    assert sorted(harness.bodies()[3:]) == [b"new 3", b"new 4", b"new 5", b"new 6"]


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_came_before_a_cut_does_not_come_again(harness: TimerHarness, is_killed: bool) -> None:
    harness.after(b"delivered", 1_000)
    harness.after(b"waits", 60_000)
    harness.wait(5_000)
    harness.after(b"lost", 60_000)
    harness.settle()
    harness.save()
    harness.timer.prepare_cut(2)
    cut(harness, 2)
    if is_killed:
        harness.kill()
    harness.after(b"new", 60_000)
    harness.wait(61_000)
    assert harness.bodies() == [b"delivered", b"waits", b"new"]


def test_a_cut_behind_all_that_was_taken_changes_nothing(harness: TimerHarness) -> None:
    harness.after(b"one", 60_000)
    harness.settle()
    harness.save()
    harness.timer.prepare_cut(1)
    assert harness.timers.is_saved
    assert (harness.timers.offset, harness.timers.log_end) == (1, 52)


@pytest.mark.parametrize("leads", [False, True])
def test_what_was_taken_stays_so_while_it_is_not_shown(harness: TimerHarness, leads: bool) -> None:
    harness.after_each(3, 60_000)
    harness.settle()
    harness.save()
    harness.kill()
    harness.store.set_confirmed(0)
    if leads:
        assert harness.step() != harness.clock.now_ms(), "it waits until they are shown"
    else:
        harness.follow(3)
    assert (harness.timers.offset, harness.timer.behind) == (3, 0)
    harness.store.set_confirmed(None)
    harness.wait(61_000)
    assert sorted(harness.bodies()) == [b"0", b"1", b"2"]


def test_a_topic_that_lost_its_end_goes_on_there(harness: TimerHarness) -> None:
    harness.after_each(3, 1_000)
    harness.wait(5_000)
    cut(harness, 1)
    harness.settle()
    assert harness.timers.offset == 1
