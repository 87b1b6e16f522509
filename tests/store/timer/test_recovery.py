"""Wheel and timer log agree again after a crash, whatever was on the disk."""

from collections.abc import Callable
from pathlib import Path

import pytest

from roquet.store.filesystem.mapped_file import MapPool
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.timer.layout import TimerCheckpoint, TimerSlot, TimerUnit
from roquet.store.timer.log import TimerLog
from roquet.store.timer.recovery import TimerRecoveryResult, recover
from roquet.store.timer.wheel import TimerWheel

ROOT = Path("/data")
SECOND = 1_700_000_000_000
SLOTS = 256


class TimerFiles:
    """A wheel and a timer log; the message of offset n lies at position 100 n."""

    def __init__(self, files: MemoryFiles | None = None) -> None:
        self.files = files or MemoryFiles()
        pool = MapPool(self.files, 8)
        self.wheel = TimerWheel(pool, ROOT / "timerwheel", SLOTS)
        self.log = TimerLog(pool, ROOT / "timerlog", 4096, 1024)
        self.wheel.load(self.files.list(ROOT).get("timerwheel"))
        self.log.load(self.files.list(ROOT / "timerlog"))
        if self.files.contents:
            return
        self.log.truncate(0)

    def add(self, offset: int, second: int, magic: int = 1) -> int:
        self.wheel.prepare()
        time_ms = SECOND + second * 1_000
        slot = self.wheel.slot(time_ms)
        before = slot.last if slot else -1
        at = self.log.append(TimerUnit(magic, SECOND, time_ms, 100 * offset, 100, 0), before)
        worth = -1 if magic & 4 else 1
        first, count = (slot.first, slot.count) if slot else (at, 0)
        self.wheel.put(time_ms, TimerSlot(first, at, count + worth))
        return at

    def chain(self, second: int) -> list[int]:
        """The offsets of a second's messages, oldest first."""
        slot = self.wheel.slot(SECOND + second * 1_000)
        at, found = slot.last if slot else -1, []
        while at >= 0:
            unit = self.log.unit(at)
            assert unit is not None
            found.append(unit.position // 100)
            at = unit.before
        return found[::-1]

    def count(self, second: int) -> int:
        slot = self.wheel.slot(SECOND + second * 1_000)
        return slot.count if slot else 0

    def next_process(self) -> "TimerFiles":
        return TimerFiles(self.files.copy())

    def recover(self, **checkpoint: object) -> TimerRecoveryResult:
        said = TimerCheckpoint(**checkpoint)  # type: ignore[arg-type]
        return recover(self.wheel, self.log, said, lambda unit: unit.position // 100)

    def unit_bytes(self, at: int) -> memoryview:
        start = at // 4096 * 4096
        return memoryview(self.files.contents[ROOT / "timerlog" / f"{start:020d}"])[
            at - start : at - start + 52
        ]


@pytest.fixture
def timer_files() -> TimerFiles:
    """Offsets 0 to 3 are saved, 4 to 6 are not: in seconds 5 and 7, and a new one, 9."""
    timer_files = TimerFiles()
    for offset, second in enumerate((5, 7, 5, 7)):
        timer_files.add(offset, second)
    return timer_files


SAVED = {"log_end": 4 * 52, "offset": 4, "read_ms": SECOND, "cursor": (0, 0)}


def test_an_empty_timer_stays_empty() -> None:
    timer_files = TimerFiles()
    assert timer_files.recover() == TimerRecoveryResult(0, 0)
    assert timer_files.files.contents == {}


def test_saved_units_are_not_changed(timer_files: TimerFiles) -> None:
    found = timer_files.next_process()
    assert found.recover(**SAVED) == TimerRecoveryResult(4, SECOND + 5_000)
    assert (found.chain(5), found.chain(7), found.log.end) == ([0, 2], [1, 3], 208)


def test_unsaved_units_are_dropped_and_written_again(timer_files: TimerFiles) -> None:
    for offset, second in ((4, 5), (5, 9), (6, 5)):
        timer_files.add(offset, second)
    found = timer_files.next_process()
    assert found.recover(**SAVED).offset == 4
    assert (found.chain(5), found.chain(7), found.chain(9)) == ([0, 2], [1, 3], [])
    assert (found.count(5), found.log.end) == (2, 208)
    assert not bytes(found.files.contents[ROOT / "timerlog" / f"{0:020d}"][208:]).strip(b"\0")


def test_a_repeated_recovery_changes_nothing(timer_files: TimerFiles) -> None:
    timer_files.add(4, 5)
    found = timer_files.next_process()
    for _ in range(3):
        assert found.recover(**SAVED).offset == 4
        found = found.next_process()
    assert found.chain(5) == [0, 2]


def test_a_torn_chain_is_found_again_in_the_log(timer_files: TimerFiles) -> None:
    places = [timer_files.add(4, 5), timer_files.add(5, 5), timer_files.add(6, 9)]
    for at in places:
        timer_files.unit_bytes(at)[:] = bytes(52)  # the wheel reached the disk, the log did not
    found = timer_files.next_process()
    assert found.recover(**SAVED).offset == 4
    assert (found.chain(5), found.chain(9)) == ([0, 2], [])
    assert found.count(5) == 2


def test_a_message_that_takes_another_back_counts_the_other_way(timer_files: TimerFiles) -> None:
    timer_files.add(4, 5, magic=5)
    timer_files.add(5, 5)
    assert timer_files.count(5) == 2
    torn = timer_files.next_process()
    timer_files.unit_bytes(5 * 52)[:] = bytes(52)
    found = timer_files.next_process()
    for one in (torn, found):
        one.recover(**SAVED)
        assert one.count(5) == 2


def test_a_chain_outside_the_log_is_not_followed(timer_files: TimerFiles) -> None:
    at = timer_files.add(4, 5)
    timer_files.unit_bytes(at)[:] = TimerUnit(1, SECOND, SECOND + 7_000, 400, 100, 0).pack(52)
    found = timer_files.next_process()
    found.recover(**SAVED)
    assert found.chain(5) == [0, 2]


def test_a_wheel_that_is_gone_is_made_again_from_the_log(
    timer_files: TimerFiles, caplog: pytest.LogCaptureFixture
) -> None:
    timer_files.add(4, 9)
    timer_files.files.remove(ROOT / "timerwheel")
    found = timer_files.next_process()
    assert found.recover(**SAVED | {"read_ms": SECOND + 6_000}).offset == 4
    assert "the timer wheel is missing" in caplog.text
    assert (found.chain(5), found.chain(7), found.chain(9)) == ([], [1, 3], [])


def test_a_log_that_is_gone_has_everything_read_again(
    timer_files: TimerFiles, caplog: pytest.LogCaptureFixture
) -> None:
    timer_files.files.remove(ROOT / "timerlog")
    found = timer_files.next_process()
    assert found.recover(**SAVED) == TimerRecoveryResult(0, 0)
    assert "the timer log contradicts its checkpoint" in caplog.text
    assert (found.chain(5), found.log.end, list(found.wheel.used())) == ([], 0, [])
    both = TimerFiles()
    assert both.recover(**SAVED) == TimerRecoveryResult(0, 0)


def test_a_log_without_checkpoint_is_written_again_from_the_beginning(
    timer_files: TimerFiles,
) -> None:
    found = timer_files.next_process()
    assert found.recover().offset == 0
    assert (found.chain(5), found.log.end) == ([], 0)


class TestOfAGenuineBroker:
    """Its checkpoint: the present offset with an earlier end of the log."""

    def test_units_after_the_end_count_if_their_messages_exist(
        self, timer_files: TimerFiles
    ) -> None:
        found = timer_files.next_process()
        assert found.recover(log_end=104, offset=4, read_ms=SECOND).offset == 4
        assert (found.chain(5), found.chain(7), found.log.end) == ([0, 2], [1, 3], 208)

    def test_units_of_later_messages_are_written_again(self, timer_files: TimerFiles) -> None:
        found = timer_files.next_process()
        assert found.recover(log_end=104, offset=3, read_ms=SECOND).offset == 3
        assert (found.chain(5), found.chain(7), found.log.end) == ([0, 2], [1], 156)

    def test_messages_without_a_unit_are_read_again(self, timer_files: TimerFiles) -> None:
        found = timer_files.next_process()
        assert found.recover(log_end=208, offset=9, read_ms=SECOND).offset == 4
        cut = timer_files.next_process()
        cut.unit_bytes(156)[:] = bytes(52)
        assert cut.recover(log_end=104, offset=9, read_ms=SECOND).offset == 3
        assert (cut.chain(5), cut.chain(7)) == ([0, 2], [1])

    def test_the_wheel_learns_of_units_that_it_does_not_know(self, timer_files: TimerFiles) -> None:
        wheel = timer_files.wheel
        wheel.blank(SECOND + 5_000)
        wheel.put(SECOND + 7_000, TimerSlot(52, 52, 1))
        found = timer_files.next_process()
        assert found.recover(log_end=0, offset=4, read_ms=SECOND + 6_000).offset == 4
        assert (found.chain(5), found.chain(7)) == ([], [1, 3])

    def test_a_slot_of_an_earlier_log_is_rebuilt(self, timer_files: TimerFiles) -> None:
        timer_files.wheel.put(SECOND + 5_000, TimerSlot(900, 950, 1))
        found = timer_files.next_process()
        assert found.recover(log_end=0, offset=4, read_ms=SECOND).offset == 4
        assert found.chain(5) == [0, 2]

    def test_a_unit_whose_message_is_gone_ends_the_log(self, timer_files: TimerFiles) -> None:
        found = timer_files.next_process()
        said = TimerCheckpoint(log_end=104, offset=4, read_ms=SECOND)
        assert recover(found.wheel, found.log, said, lambda _: None) == TimerRecoveryResult(
            4, SECOND + 5_000
        )
        assert found.log.end == 104


def lose_wheel(timer_files: TimerFiles) -> None:
    memoryview(timer_files.files.contents[ROOT / "timerwheel"])[:] = bytes(SLOTS * 32)


def spoil_slots(timer_files: TimerFiles) -> None:
    """Slots that lead to units of other seconds."""
    five = timer_files.wheel.slot(SECOND + 5_000)
    assert five is not None
    timer_files.wheel.put(SECOND + 7_000, five)


def spoil_last_unit(timer_files: TimerFiles) -> None:
    timer_files.unit_bytes(3 * 52)[:] = bytes(52)


def spoil_chain(timer_files: TimerFiles) -> None:
    """A unit that does not lead to the one before it in its second."""
    timer_files.unit_bytes(3 * 52)[4:12] = (0).to_bytes(8, "big")


def invent_second(timer_files: TimerFiles) -> None:
    """A slot for a second without units."""
    timer_files.wheel.put(SECOND + 9_000, TimerSlot(0, 0, 1))


@pytest.mark.parametrize(
    "damage", [lose_wheel, spoil_slots, spoil_last_unit, spoil_chain, invent_second]
)
def test_a_wheel_and_a_log_that_contradict_each_other_are_made_again(
    timer_files: TimerFiles, damage: Callable[[TimerFiles], None], caplog: pytest.LogCaptureFixture
) -> None:
    damage(timer_files)
    after = timer_files.next_process()
    assert after.recover(**SAVED) == TimerRecoveryResult(0, 0)
    assert (after.log.end, list(after.wheel.used())) == (0, [])
    assert "the timer log or its wheel is damaged: both are rebuilt" in caplog.text


def test_an_end_in_the_middle_of_a_unit_is_not_believed(timer_files: TimerFiles) -> None:
    after = timer_files.next_process()
    assert after.recover(**{**SAVED, "log_end": 4 * 52 - 8}) == TimerRecoveryResult(0, 0)
    assert after.log.end == 0
