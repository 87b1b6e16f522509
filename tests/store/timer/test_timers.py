"""Timer files: saved, and read again after a stop, a kill and a loss of power."""

import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from tests.store.conftest import NOW, DataDir, PowerLossFiles

from roquet.model.errors import StoreError, StoreFull
from roquet.rules.delay.timer import DELETE
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.timer.layout import CHECKPOINT, TimerUnit, unpack_checkpoint
from roquet.store.timer.timers import CURSOR_NOT_BEGUN, TimerConfig, TimerStore

ROOT = Path("/data")
SMALL = TimerConfig(wheel_slots=256, log_file_size=4096, log_step=1024)
STORES = Path(__file__).parents[2] / "vectors" / "store"


def opened(files: MemoryFiles, now_ms: int = NOW, config: TimerConfig = SMALL) -> TimerStore:
    return TimerStore(ROOT, files, lambda unit: unit.position // 100, now_ms, config)


def unit(offset: int, second: int, magic: int = 1) -> TimerUnit:
    return TimerUnit(magic, NOW, NOW + second * 1_000, offset * 100, 100, 7)


def add(timers: TimerStore, offset: int, second: int) -> int:
    position = timers.add(unit(offset, second))
    timers.advance_offset(offset + 1)
    return position


def save(timers: TimerStore, now_ms: int = NOW) -> None:
    work = timers.save_task(now_ms)
    assert work is not None
    work()


def chain(timers: TimerStore, second: int) -> list[int]:
    """The offsets of a second's messages, oldest first."""
    slot = timers.slot(NOW + second * 1_000)
    at, found = slot.last if slot else -1, []
    while (one := timers.unit(at)) is not None:
        found.append(one.position // 100)
        at = one.before
    return found[::-1]


def ends(timers: TimerStore, second: int, held: list[int]) -> bool:
    """Whether a second's messages end with these."""
    found = chain(timers, second)
    return found[len(found) - len(held) :] == held


def test_there_are_no_files_before_the_first_message() -> None:
    files = MemoryFiles()
    timers = opened(files, NOW + 999)
    assert not timers.exists
    assert (timers.offset, timers.read_ms, timers.cursor) == (0, NOW, (0, 0))
    timers.advance_to(NOW + 3_600_000)
    assert timers.save_task(NOW) is None
    assert timers.expire(10**9) is None
    timers.close()
    assert files.contents == {}


def test_a_second_holds_its_messages_in_a_chain() -> None:
    timers = opened(MemoryFiles())
    for offset, second in enumerate((5, 7, 5)):
        add(timers, offset, second)
    assert timers.exists
    assert (chain(timers, 5), chain(timers, 7), chain(timers, 6)) == ([0, 2], [1], [])
    slot = timers.slot(NOW + 5_000)
    assert slot is not None
    assert (slot.first, slot.last, slot.count) == (0, 104, 2)
    assert timers.count(NOW, NOW + 7_000) == 2
    assert timers.count(NOW + 5_000, NOW + 8_000) == 3
    timers.add(unit(3, 5, magic=5))
    slot = timers.slot(NOW + 5_000)
    assert slot is not None
    assert slot.count == 1
    timers.add(unit(4, 8, magic=5))
    slot = timers.slot(NOW + 8_000)
    assert slot is not None
    assert slot.count == -1


def test_a_clean_stop_continues_at_the_same_state() -> None:
    files = MemoryFiles()
    timers = opened(files)
    position = add(timers, 0, 5)
    add(timers, 1, 5)
    timers.advance_to(NOW + 5_000)
    timers.note_delivered(NOW + 5_400, position)
    save(timers)
    assert timers.save_task(NOW) is None
    timers.close()
    again = opened(files, NOW + 60_000)
    assert (again.offset, again.read_ms) == (2, NOW + 5_000)
    assert again.cursor == (NOW + 5_400, position)
    assert again.replayed == (2, NOW + 5_000)
    assert chain(again, 5) == [0, 1]
    assert not again.unsaved


def test_the_checkpoint_equals_that_of_apaches_broker() -> None:
    files = MemoryFiles()
    timers = opened(files)
    add(timers, 0, 5)
    save(timers, NOW + 1)
    timers.advance_to(NOW + 5_000)
    timers.unsaved = True
    save(timers, NOW + 2)
    page = bytes(files.contents[ROOT / "config" / "timercheck"])
    assert CHECKPOINT.unpack_from(page) == (NOW + 5_000, 52, 1, 1, 0, NOW + 2, 2)
    assert timers.checkpoint() == unpack_checkpoint(page)


def test_an_idle_wheel_saves_the_time_at_intervals() -> None:
    timers = opened(MemoryFiles())
    add(timers, 0, 5)
    save(timers)
    timers.advance_to(NOW + 30_000)
    assert timers.save_task(NOW) is None
    timers.advance_to(NOW + 60_000)
    save(timers)


def test_a_slot_is_kept_until_its_delivery_is_saved() -> None:
    timers = opened(MemoryFiles())
    assert timers.free_slot_ms(NOW + 10**9) == NOW + 10**9  # nothing waits
    add(timers, 0, 5)
    assert timers.free_slot_ms(NOW + 255_000) == NOW + 255_000
    assert timers.free_slot_ms(NOW + 256_000) is None
    save(timers)
    timers.advance_to(NOW + 100_000)
    assert timers.free_slot_ms(NOW + 256_000) is None
    save(timers)
    assert timers.free_slot_ms(NOW + 256_000) == NOW + 256_000


def test_the_longest_wait_is_known() -> None:
    timers = opened(MemoryFiles())
    assert not timers.has_wait_over(0)
    add(timers, 0, 100)
    add(timers, 1, 10)
    assert timers.has_wait_over(99_999)
    assert not timers.has_wait_over(100_000)
    timers.advance_to(NOW + 101_000)
    assert not timers.has_wait_over(0)


def test_the_first_waiting_message_and_those_in_front_of_a_position_are_known() -> None:
    timers = opened(MemoryFiles())
    assert (timers.first_waiting(), timers.waiting_before(10_000)) == (None, 0)
    for offset, second in enumerate((3, 90, 4, 80)):
        add(timers, offset, second)
    timers.add(unit(4, 90, magic=1 | DELETE))  # takes another message back
    first = timers.first_waiting()
    assert first is not None
    assert (first.position, timers.waiting_before(10_000), timers.waiting_before(200)) == (0, 4, 2)
    timers.advance_to(NOW + 50_000)
    first = timers.first_waiting()
    assert first is not None
    assert first.position == 100
    assert (timers.waiting_before(10_000), timers.waiting_before(300)) == (2, 1)


def back(timers: TimerStore, second: int) -> None:
    for _ in timers.rewind(NOW + second * 1_000):
        pass


def test_a_clock_that_was_set_back_empties_what_was_delivered() -> None:
    files = MemoryFiles()
    timers = opened(files)
    for offset, second in enumerate((5, 90, 100, 110)):
        add(timers, offset, second)
    timers.advance_to(NOW + 100_000)
    save(timers)
    back(timers, 50)
    assert [chain(timers, second) for second in (5, 90, 100, 110)] == [[0], [], [2], [3]]
    assert (timers.read_ms, timers.cursor, timers.unsaved) == (NOW + 50_000, (0, 0), True)
    save(timers)
    again = opened(files)
    assert again.read_ms == NOW + 50_000
    assert [chain(again, second) for second in (90, 100)] == [[], [2]]


def test_no_second_is_emptied_before_its_delivery_is_saved() -> None:
    timers = opened(MemoryFiles())
    add(timers, 0, 5)
    timers.advance_to(NOW + 100_000)
    with pytest.raises(AssertionError, match="unsaved deliveries"):
        back(timers, 50)
    assert chain(timers, 5) == [0]


def test_a_slot_of_a_later_second_is_not_cleared() -> None:
    """256 seconds are a turn of the wheel: the clock was set back by nearly two."""
    timers = opened(MemoryFiles())
    add(timers, 0, 1)
    timers.advance_to(NOW + 500_000)
    save(timers)
    for offset, second in enumerate((520, 521, 523), 1):
        add(timers, offset, second)
    save(timers)
    back(timers, 0)
    assert timers.free_slot_ms(NOW + 8_000) == NOW + 10_000
    add(timers, 4, 10)
    assert timers.free_slot_ms(NOW + 9_000) == NOW + 10_000
    assert timers.free_slot_ms(NOW + 11_000) == NOW + 12_000
    assert timers.free_slot_ms(NOW + 256_000) is None
    save(timers)
    assert timers.free_slot_ms(NOW + 255_000) == NOW + 255_000
    assert [chain(timers, second) for second in (520, 521, 523)] == [[1], [2], [3]]


def test_a_missing_or_empty_checkpoint_begins_with_the_first_slot() -> None:
    files = MemoryFiles()
    timers = opened(files)
    add(timers, 0, 5)
    save(timers)
    files.remove(ROOT / "config" / "timercheck")
    assert opened(files.copy(), NOW + 60_000).offset == 0
    files.create(ROOT / "config" / "timercheck", 4096)
    files.map(ROOT / "config" / "timercheck", 4096)[:56] = CHECKPOINT.pack(0, 0, 1, 1, 0, 0, 0)
    again = opened(files.copy(), NOW + 60_000)
    assert (again.read_ms, again.offset, chain(again, 5)) == (NOW + 5_000, 1, [0])


@pytest.mark.parametrize(
    "head",
    [
        bytes(range(56)),
        b'{"dataVersion":{"counter":1},"offsetTable":{"orders@billing":{"0"'[:56],
        CHECKPOINT.pack(NOW + 15 * 86_400_000, 104, 2, 2, 0, 0, 0),
        CHECKPOINT.pack(-NOW, 104, 2, 2, 0, 0, 0),
        CHECKPOINT.pack(NOW, 104, 1 << 60, 2, 0, 0, 0),
    ],
)
def test_a_damaged_checkpoint_calls_nothing_delivered(
    head: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    files = MemoryFiles()
    timers = opened(files)
    add(timers, 0, 5)
    add(timers, 1, 7)
    save(timers)
    files.map(ROOT / "config" / "timercheck", 4096)[:56] = head
    again = opened(files.copy(), NOW + 1_000)
    assert (again.offset, again.replayed) == (0, (0, 0))
    assert "timercheck is damaged: waiting messages are read again from their topic" in caplog.text


def test_a_checkpoint_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()

    def broken(_path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files, "read", broken)
    with pytest.raises(
        StoreError, match="timercheck cannot be used: Permission denied; let the user"
    ):
        opened(files)


def test_a_full_disk_takes_nothing_and_loses_nothing() -> None:
    files = MemoryFiles(capacity=256 * 32 + 1024)
    timers = opened(files)
    for offset in range(1024 // 52):
        add(timers, offset, 5)
    with pytest.raises(StoreFull):
        add(timers, timers.offset, 5)
    assert chain(timers, 5) == list(range(timers.offset))
    assert timers.offset > 0


def test_a_disk_that_fails_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    timers = opened(files)
    add(timers, 0, 5)
    work = timers.save_task(NOW)
    assert work is not None

    def broken(_path: Path, _view: memoryview | None = None) -> None:
        raise OSError("input/output error")

    monkeypatch.setattr(files, "sync", broken)
    told: list[str] = []
    timers.on_failure = told.append
    with pytest.raises(StoreError, match="could not be made durable"):
        work()
    assert len(told) == 1
    assert "could not be made durable" in told[0]
    monkeypatch.undo()
    with pytest.raises(StoreError, match="could not be made durable"):
        timers.save_task(NOW)


def test_a_file_deleted_by_retention_during_a_save_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = MemoryFiles()
    timers = opened(files)
    add(timers, 0, 5)
    work = timers.save_task(NOW)
    assert work is not None

    def gone(path: Path, _view: memoryview | None = None) -> None:
        if path.parent.name == "timerlog":
            raise FileNotFoundError(path)

    monkeypatch.setattr(files, "sync", gone)
    work()
    assert timers.is_saved


def test_a_start_on_a_disk_that_fails_names_the_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    timers = opened(files)
    add(timers, 0, 5)

    def broken(_path: Path, _view: memoryview | None = None) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files, "sync", broken)
    with pytest.raises(StoreError, match="cannot be used: Input/output error"):
        opened(files)


def test_changes_of_a_failed_save_are_saved_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    timers = opened(files)
    add(timers, 0, 5)
    assert timers.save_task(NOW) is not None  # and then the commit log could not be flushed
    timers.unsaved = True
    synced: list[str] = []
    monkeypatch.setattr(files, "sync", lambda path, _view=None: synced.append(path.name))
    save(timers)
    assert synced[:2] == [f"{0:020d}", "timerwheel"]
    assert synced[-1] == "timercheck"


def test_the_checkpoint_is_written_after_everything_it_covers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = MemoryFiles()
    timers = opened(files)
    for offset in range(100):
        add(timers, offset, 5)
    order: list[str] = []
    monkeypatch.setattr(files, "sync", lambda path, _view=None: order.append(path.name))
    save(timers)
    assert sorted(order[:3]) == [f"{0:020d}", f"{4096:020d}", "timerwheel"]
    assert order[3:] == ["timerlog", "data", "data", "config", "data", "timercheck"]
    order.clear()
    add(timers, 100, 9)
    save(timers)
    assert order == [f"{4096:020d}", "timerwheel", "timercheck"]


def test_units_of_expired_messages_are_removed_from_the_timer_log() -> None:
    files = MemoryFiles()
    timers = opened(files)
    for offset in range(200):
        add(timers, offset, 5)
    assert timers.expire(78 * 100) == ROOT / "timerlog" / f"{0:020d}"
    assert timers.expire(78 * 100) is None
    assert chain(timers, 5) == list(range(78, 200))
    save(timers)
    assert chain(opened(files.copy()), 5) == list(range(78, 200))


class RandomTimerRun:
    """Random operations on timers, with a model of what was saved and what was delivered."""

    def __init__(self, files: PowerLossFiles, random: Random) -> None:
        self.files, self.random = files, random
        # Clocks go back by less than a wheel: else its slots no longer tell what was delivered.
        self.config = msgspec.structs.replace(SMALL, wheel_slots=8_192)
        self.timers = opened(files, config=self.config)
        self.waiting: dict[int, list[int]] = {}
        self.delivered: set[int] = set()
        self.saved: tuple[int, int, dict[int, list[int]]] = (0, self.second(), {})

    def second(self) -> int:
        return (self.timers.read_ms - NOW) // 1_000

    def work(self) -> None:
        timers, random = self.timers, self.random
        for _ in range(random.randrange(120)):
            match random.randrange(20):
                case 0:
                    save(timers) if timers.unsaved else None
                    waiting = {second: list(held) for second, held in self.waiting.items()}
                    self.saved = (timers.offset, self.second(), waiting)
                case 1 if self.waiting:
                    first = min(self.waiting)
                    self.delivered.update(self.waiting.pop(first))
                    timers.advance_to(NOW + first * 1_000 + 1_000)
                    timers.unsaved = True
                case 2 if timers.exists and timers.is_saved:
                    back(timers, self.second() - random.randrange(1, 300))
                    assert all(ends(timers, one, held) for one, held in self.waiting.items())
                case _:
                    second = self.second() + random.randrange(1, 60)
                    if timers.free_slot_ms(NOW + second * 1_000) == NOW + second * 1_000:
                        add(timers, timers.offset, second)
                        self.waiting.setdefault(second, []).append(timers.offset - 1)

    def crash(self, *, power: bool) -> None:
        """Let another process open the files and continue."""
        self.files = self.files.after_power_loss(self.random) if power else self.files.copy()
        self.timers = timers = opened(self.files, config=self.config)
        offset, second, waiting = self.saved
        assert timers.offset == offset
        if timers.exists or waiting:
            assert self.second() == second
        for one, held in waiting.items():
            if one >= second:
                assert ends(timers, one, held)
        for one in set(self.waiting) | set(waiting):
            # If a chain is broken, messages delivered before a clock was set back may come again.
            more = set(chain(timers, one)) - set(waiting.get(one, ())) if one >= second else set()
            assert more <= self.delivered
        self.waiting = {one: list(held) for one, held in waiting.items()}


@pytest.mark.parametrize("seed", range(60))
def test_whatever_a_crash_leaves_is_what_was_saved(seed: int) -> None:
    random = Random(seed)
    run = RandomTimerRun(DataDir().files, random)
    for _ in range(6):
        run.work()
        run.crash(power=random.random() < 0.7)
        assert run.timers.offset == run.saved[0]


# -- directories of Apache's brokers ---------------------------------------------------------


@pytest.fixture(scope="module")
def genuine() -> dict[str, dict[str, bytes]]:
    """The timer files of each captured directory; only the log's beginning is not empty."""
    found: dict[str, dict[str, bytes]] = {}
    for kind in ("clean", "killed", "torn"):
        with tarfile.open(STORES / f"5.5.0-{kind}.tar.xz") as archive:
            found[kind] = dict(_read(archive))
    return found


def _read(archive: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    for member in archive:
        name = member.name.removeprefix("./")
        if member.isfile() and name.split("/")[0] in ("timerwheel", "timerlog"):
            file = archive.extractfile(member)
            assert file is not None
            yield name, file.read(1 << 20 if name.startswith("timerlog") else -1)
        elif name == "config/timercheck":
            file = archive.extractfile(member)
            assert file is not None
            yield name, file.read()


def placed(contents: dict[str, bytes]) -> MemoryFiles:
    files = MemoryFiles()
    for name, data in contents.items():
        size = 100 << 20 if name.startswith("timerlog") else len(data)
        files.create(ROOT / name, size)
        files.map(ROOT / name, size)[: len(data)] = data
        files.blocks[ROOT / name] = len(data)
    return files


UNITS = {"clean": 4, "killed": 8, "torn": 8}


@pytest.mark.parametrize("kind", UNITS)
def test_an_apache_directory_is_continued(genuine: dict[str, dict[str, bytes]], kind: str) -> None:
    contents = genuine[kind]
    read_ms, log_end, offset, *_ = struct.unpack_from(">7q", contents["config/timercheck"])
    offsets = {}
    for number in range(UNITS[kind]):
        (position,) = struct.unpack_from(">q", contents[f"timerlog/{0:020d}"], number * 52 + 28)
        offsets[position] = number
    files = placed(contents)
    timers = TimerStore(ROOT, files, lambda one: offsets.get(one.position), read_ms + 60_000)
    assert (timers.offset, timers.read_ms) == (offset, read_ms) == (UNITS[kind], read_ms)
    assert timers.log_end == log_end
    assert timers.cursor == (0, 0)
    waiting = [at for at in (1_795_251_169_000, 1_795_254_769_000) if timers.slot(at)]
    assert len(waiting) == 2
    for at in waiting:
        slot = timers.slot(at)
        assert slot is not None
        one = timers.unit(slot.last)
        assert one is not None
        assert (one.slot_ms, one.before, one.position in offsets) == (at, -1, True)
    assert all(bytes(files.contents[ROOT / name][: len(data)]) == data
               for name, data in contents.items())  # fmt: skip


def test_files_equal_those_of_apaches_broker(genuine: dict[str, dict[str, bytes]]) -> None:
    contents = genuine["clean"]
    log = contents[f"timerlog/{0:020d}"]
    files = MemoryFiles()
    timers = TimerStore(ROOT, files, lambda _: None, NOW)
    for number in range(UNITS["clean"]):
        row: tuple[Any, ...] = struct.unpack_from(">iqiqiqiiq", log, number * 52)
        _, _, magic, write_ms, delay, position, size, code, _ = row
        timers.add(TimerUnit(magic, write_ms, write_ms + delay, position, size, code))
    assert bytes(files.contents[ROOT / "timerlog" / f"{0:020d}"][: 4 * 52]) == log[: 4 * 52]
    assert bytes(files.contents[ROOT / "timerwheel"]) == contents["timerwheel"]


def test_seconds_ahead_are_listed_and_cleared_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("roquet.store.timer.timers.SLOTS_PER_STEP", 2)
    files = MemoryFiles()
    timers = opened(files)
    for offset, second in enumerate((5, 90, 100, 110, 120)):
        add(timers, offset, second)
    found = list(timers.seconds_from(NOW + 100_000))
    assert sorted(one for one in found if one) == [NOW + s * 1_000 for s in (100, 110, 120)]
    assert found.count(None) == 2
    assert timers.next_used_ms(NOW + 6_000, NOW + 200_000) == NOW + 90_000
    assert timers.next_used_ms(NOW + 121_000, NOW + 200_000) == NOW + 200_000
    with pytest.raises(AssertionError, match="are durable"):
        next(timers.clear_seconds([NOW + 100_000]))
    save(timers)
    assert len(list(timers.clear_seconds([NOW + 100_000, NOW + 120_000]))) == 1
    assert [chain(timers, s) for s in (5, 90, 100, 110, 120)] == [[0], [1], [], [3], []]
    assert timers.unsaved


def test_the_progress_of_a_master_is_taken_even_if_it_is_behind() -> None:
    timers = opened(MemoryFiles())
    add(timers, 0, 10)
    timers.advance_to(NOW + 20_000)
    save(timers)
    timers.follow(7, NOW + 5_000)
    assert (timers.read_ms, timers.replayed) == (NOW + 5_000, (7, NOW + 5_000))
    assert timers.unsaved
    assert chain(timers, 10) == [0]
    save(timers)
    timers.follow(7, NOW + 5_000)
    assert timers.is_saved, "nothing is new"


def test_own_deliveries_since_the_same_progress_was_taken_do_not_count() -> None:
    timers = opened(MemoryFiles())
    position = add(timers, 0, 10)
    timers.follow(7, NOW + 5_000)
    save(timers)
    timers.note_delivered(NOW + 5_500, position)
    timers.follow(7, NOW + 5_000)
    assert (timers.read_ms, timers.cursor, timers.unsaved) == (NOW + 5_000, CURSOR_NOT_BEGUN, True)
    timers.advance_to(NOW + 20_000)
    timers.follow(7, NOW + 5_000)
    assert timers.read_ms == NOW + 5_000


def test_a_wheel_without_messages_has_nothing_to_save_of_a_master() -> None:
    timers = opened(MemoryFiles())
    timers.follow(0, NOW)
    assert not timers.unsaved


def test_what_a_master_had_not_taken_is_remembered_in_the_files() -> None:
    files = MemoryFiles()
    timers = opened(files)
    for offset in range(3):
        add(timers, offset, 10)
    timers.note_untaken(5)
    save(timers)
    timers.note_untaken(3)
    assert timers.save_task(NOW) is None, "all of them are taken"
    timers.follow(1, NOW + 5_000)
    timers.note_untaken(1)
    save(timers, NOW + 8_000)
    timers.close()
    again = opened(files, NOW + 7_000)
    assert (again.offset, again.untaken, again.replayed) == (3, 1, (1, NOW + 5_000))
    assert again.reached_ms == NOW + 8_000, "no second after the last save was reached"
    assert chain(again, 10) == [0, 1, 2]
    again.note_untaken(None)
    assert again.unsaved
    save(again)
    assert (opened(files).untaken, opened(files).reached_ms) == (None, 0)


def test_apaches_offset_of_a_master_is_not_taken_for_its_own() -> None:
    files = MemoryFiles()
    timers = opened(files)
    add(timers, 0, 10)
    save(timers)
    timers.close()
    page = files.contents[ROOT / "config" / "timercheck"]
    fields = list(CHECKPOINT.unpack_from(page))
    fields[3] = 0  # and our note does not cover that
    CHECKPOINT.pack_into(page, 0, *fields)
    again = opened(files)
    assert (again.untaken, again.replayed[0]) == (None, 1)


def test_a_save_that_is_late_brings_nothing_back_that_was_discarded() -> None:
    files = MemoryFiles()
    timers = opened(files)
    for offset in range(3):
        add(timers, offset, 5)
    late = timers.save_task(NOW)
    assert late is not None
    timers.discard_behind(2, NOW)
    late()
    assert (timers.offset, timers.replayed, chain(timers, 5)) == (0, (2, NOW), [])
    again = opened(files.copy())
    assert (again.offset, again.replayed, chain(again, 5)) == (0, (2, NOW), [])
    assert timers.unsaved
    save(timers)
    assert unpack_checkpoint(files.read(ROOT / "config" / "timercheck")).log_end == 0


def test_what_was_delivered_is_remembered_while_the_topic_is_read_again() -> None:
    timers = opened(MemoryFiles())
    for offset in range(3):
        add(timers, offset, 5)
    timers.discard_behind(2, NOW)
    add(timers, 0, 5)
    assert timers.replayed == (2, NOW)
    timers.discard_behind(0, NOW)
    assert timers.replayed == (0, NOW), "all of it is cut now"


def test_nothing_is_discarded_for_a_cut_behind_what_was_taken() -> None:
    timers = opened(MemoryFiles())
    add(timers, 0, 5)
    timers.discard_behind(1, NOW)
    assert (timers.offset, chain(timers, 5)) == (1, [0])


def test_a_disk_that_fails_puts_a_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    timers = opened(files)
    add(timers, 0, 5)
    save(timers)

    def broken(_path: Path, _view: memoryview | None = None) -> None:
        raise OSError("input/output error")

    monkeypatch.setattr(files, "sync", broken)
    with pytest.raises(StoreError, match="could not be made durable"):
        timers.discard_behind(0, NOW)
    assert (timers.offset, chain(timers, 5)) == (1, [0])
