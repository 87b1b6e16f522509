from pathlib import Path
from random import Random

import pytest

from roquet.model.errors import StoreFull
from roquet.store.filesystem.mapped_file import MapPool
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.timer.layout import TimerSlot
from roquet.store.timer.wheel import EMPTIED_SLOT, TimerWheel

PATH = Path("/data/timerwheel")
SLOTS = 256
SECOND = 1_700_000_000_000


def make(files: MemoryFiles | None = None) -> TimerWheel:
    return TimerWheel(MapPool(files or MemoryFiles(), 4), PATH, SLOTS)


@pytest.fixture
def wheel() -> TimerWheel:
    wheel = make()
    wheel.prepare()
    return wheel


def test_there_is_no_file_before_the_first_write() -> None:
    files = MemoryFiles()
    wheel = make(files)
    wheel.load(None)
    assert not wheel.exists
    assert wheel.slot(SECOND) is None
    assert wheel.next_used_ms(SECOND, SECOND + 9_000) == SECOND + 9_000
    assert list(wheel.used()) == []
    assert files.contents == {}
    wheel.prepare()
    assert len(files.contents[PATH]) == SLOTS * 32 == files.blocks[PATH]


def test_a_second_holds_what_was_put_into_it(wheel: TimerWheel) -> None:
    slot = TimerSlot(52, 104, 2)
    wheel.put(SECOND + 999, slot)
    assert wheel.slot(SECOND) == wheel.slot(SECOND + 1) == slot
    assert wheel.slot(SECOND + 1_000) is None
    assert list(wheel.used()) == [(SECOND, slot)]


def test_used_slots_are_found_wherever_they_are_in_a_large_wheel() -> None:
    wheel = TimerWheel(MapPool(MemoryFiles(), 4), PATH, 30_000)
    wheel.prepare()
    times = [
        SECOND // 30_000_000 * 30_000_000 + 1_000 * n for n in (0, 8_191, 8_192, 20_000, 29_999)
    ]
    for time_ms in reversed(times):
        wheel.put(time_ms, TimerSlot(52, 104, 2))
    assert [time_ms for time_ms, _ in wheel.used()] == times


@pytest.mark.parametrize("slots", [256, 300])
@pytest.mark.parametrize("seed", range(5))
def test_messages_of_a_time_are_those_of_its_seconds(slots: int, seed: int) -> None:
    rng = Random(seed)
    wheel = TimerWheel(MapPool(MemoryFiles(), 4), PATH, slots)
    assert wheel.count(SECOND, SECOND + 99_000) == 0
    wheel.prepare()
    counts = {SECOND + 1_000 * n: rng.randint(-1, 5) for n in rng.sample(range(slots), 40)}
    for number, (time_ms, count) in enumerate(counts.items()):
        wheel.put(time_ms, TimerSlot(52 * number, 52 * number, count))
    wheel.put(SECOND + 7_000, EMPTIED_SLOT)
    counts[SECOND + 7_000] = 0
    for _ in range(20):
        begin, end = sorted(rng.choices(range(-5, slots), k=2))
        wanted = sum(
            max(0, count) for at, count in counts.items() if begin <= (at - SECOND) // 1_000 < end
        )
        assert wheel.count(SECOND + begin * 1_000, SECOND + end * 1_000) == wanted


def test_a_slot_belongs_to_another_second_after_a_turn_of_the_wheel(wheel: TimerWheel) -> None:
    assert wheel.span_ms == SLOTS * 1_000
    wheel.put(SECOND, TimerSlot(0, 0, 1))
    assert wheel.slot(SECOND + wheel.span_ms) is None
    wheel.put(SECOND + wheel.span_ms, TimerSlot(52, 52, 1))
    assert wheel.slot(SECOND) is None
    assert [time for time, _ in wheel.used()] == [SECOND + wheel.span_ms]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("slots", [256, 300])
def test_the_next_used_second_is_the_first_whose_slot_is_not_empty(slots: int, seed: int) -> None:
    """Slots of earlier and later turns of the wheel, and emptied ones, do not count."""
    random = Random(seed)
    wheel = TimerWheel(MapPool(MemoryFiles(), 4), PATH, slots)
    wheel.prepare()
    for _ in range(random.choice((3, 30))):
        wheel.put(SECOND + random.randrange(-slots, 2 * slots) * 1_000, TimerSlot(0, 0, 1))
    for _ in range(10):
        time_ms = SECOND + random.randrange(slots) * 1_000
        random.choice((wheel.blank, lambda at: wheel.put(at, EMPTIED_SLOT)))(time_ms)
    for begin in range(0, slots, 3):
        for end in (begin - 1, begin, begin + 1, begin + random.randrange(slots), begin + slots):
            seconds = [SECOND + number * 1_000 for number in range(begin, end)]
            used = [time_ms for time_ms in seconds if wheel.slot(time_ms)]
            begin_ms, end_ms = SECOND + begin * 1_000, SECOND + end * 1_000
            assert wheel.next_used_ms(begin_ms, end_ms) == (used or [end_ms])[0]


def test_a_slot_can_be_emptied(wheel: TimerWheel) -> None:
    wheel.put(SECOND, TimerSlot(0, 0, 1))
    wheel.blank(SECOND)
    assert wheel.slot(SECOND) is None
    assert list(wheel.used()) == []


def test_seconds_between_two_times_can_be_emptied() -> None:
    wheel = TimerWheel(MapPool(MemoryFiles(), 4), PATH, 4_096)
    wheel.prepare()
    for number in range(2_000):
        wheel.put(SECOND + number * 1_000, TimerSlot(0, 0, 1))
    assert len(list(wheel.blank_between(SECOND + 5_000, SECOND + 1_995_000))) == 1
    left = sorted((time_ms - SECOND) // 1_000 for time_ms, _ in wheel.used())
    assert left == [*range(5), *range(1_995, 2_000)]
    assert wheel.held_ms(SECOND + 3_000) == wheel.held_ms(SECOND + 4_099_000) == SECOND + 3_000
    assert wheel.held_ms(SECOND + 6_000) == 0


def test_the_bytes_equal_those_of_apaches_broker() -> None:
    files = MemoryFiles()
    wheel = make(files)
    wheel.prepare()
    wheel.put(SECOND, TimerSlot(52, 104, 2))
    at = SECOND // 1_000 % SLOTS * 32
    assert bytes(files.contents[PATH][at : at + 32]).hex() == (
        "000000006553f100000000000000003400000000000000680000000200000000"
    )


def test_a_wheel_is_loaded_again() -> None:
    files = MemoryFiles()
    first = make(files)
    first.prepare()
    first.put(SECOND, TimerSlot(0, 0, 1))
    again = make(files.copy())
    again.load(SLOTS * 32)
    assert again.slot(SECOND) == TimerSlot(0, 0, 1)


def test_a_file_of_another_size_or_without_bytes_is_made_whole() -> None:
    wheel = make()
    wheel.load(4096)
    assert not wheel.exists
    wheel.load(0)
    assert not wheel.exists


def test_a_full_disk_is_an_error_before_anything_is_written() -> None:
    wheel = make(MemoryFiles(capacity=4096))
    with pytest.raises(StoreFull):
        wheel.prepare()
