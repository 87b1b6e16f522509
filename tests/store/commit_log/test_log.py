import errno
import os
from itertools import pairwise
from pathlib import Path

import pytest
from tests.store.conftest import DataDir, fill

from roquet.model.errors import MessageIllegal, StoreFull
from roquet.rules.retention import DiskUsage
from roquet.store.commit_log.log import WRITE_PAST_MAP_MIN, CommitLog
from roquet.store.filesystem.files import FileWriter, RealFiles
from roquet.store.filesystem.mapped_file import MapPool
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.wire.records.record import MAGIC_BLANK, TOTAL_AND_MAGIC, SplitRecord, pack

SIZE = 8192


@pytest.fixture
def log() -> CommitLog:
    return CommitLog(MapPool(MemoryFiles(), 9), Path("/log"), SIZE, 4096)


def append(log: CommitLog, body: bytes, stored_ms: int = 1) -> int:
    size = len(pack_at(0, body, stored_ms))
    position = log.reserve(size)
    log.write(position, pack_at(position, body, stored_ms))
    log.last, log.end = position, position + size
    return position


def pack_at(position: int, body: bytes, stored_ms: int = 1) -> bytes:
    return pack(0, 0, 0, position, 0, 1, bytes(8), stored_ms, bytes(8), 0, 0, body, b"T", b"")


def walked(log: CommitLog, start: int = 0, durable: int = 0) -> list[tuple[int, int]]:
    limit = log.segments.limit
    return [(e, p) for e, p, _ in log.walk(start, limit, durable, check_crc=True)]


def test_records_are_adjacent(log: CommitLog) -> None:
    first, second = append(log, b"a"), append(log, b"bb")
    assert (first, second) == (0, 93)
    assert bytes(log.record(93, 94) or b"") == pack_at(93, b"bb")
    assert walked(log) == [(0, 0), (93, 93)]


def test_large_writes_bypass_the_map_and_are_visible_through_it(tmp_path: Path) -> None:
    log = CommitLog(MapPool(RealFiles(), 9), tmp_path, 1 << 20, 1 << 18)
    bodies = [b"%d" % n * WRITE_PAST_MAP_MIN for n in range(3)]
    places = [append(log, body) for body in bodies]
    for place, body in zip(places, bodies, strict=True):
        assert bytes(log.record(place, len(pack_at(0, body))) or b"") == pack_at(place, body)


@pytest.mark.parametrize("size", [9, WRITE_PAST_MAP_MIN])
def test_a_record_in_three_parts_is_written_without_a_gap(tmp_path: Path, size: int) -> None:
    log = CommitLog(MapPool(RealFiles(), 9), tmp_path, 1 << 20, 1 << 18)
    whole = pack_at(0, b"x" * size)
    log.reserve(len(whole))
    log.write(0, SplitRecord(whole[:88], whole[88:-4], whole[-4:]))
    log.end = len(whole)
    assert bytes(log.record(0, len(whole)) or b"") == whole


def grown(free: int) -> list[int]:
    """Where the blocks of a log end as it grows, on a disk with that much free space."""
    files = MemoryFiles()
    files.capacity = free
    log = CommitLog(MapPool(files, 9), Path("/log"), 1 << 20, 4096)
    ends = []
    while log.end < 40_000:
        append(log, b"x" * 1_000)
        assert log.tail is not None
        ends.append(log.tail.allocated)
    return sorted(set(ends))


def test_a_log_allocates_about_as_much_again_as_it_has() -> None:
    assert grown(1 << 30) == [4096, 8192, 16384, 32768, 65536]


def test_a_log_that_grows_ahead_is_a_small_share_of_what_is_free() -> None:
    steps = grown(170_000)
    assert steps[:3] == [4096, 8192, 12288]
    assert steps == [4096 * (number + 1) for number in range(len(steps))]


@pytest.mark.parametrize("size_max", [0, 8192])
def test_growth_has_a_limit(monkeypatch: pytest.MonkeyPatch, size_max: int) -> None:
    monkeypatch.setattr("roquet.store.commit_log.log.GROWTH_MAX", size_max)
    ends = grown(1 << 30)
    assert max(right - left for left, right in pairwise(ends)) == max(size_max, 4096)


class QuotaFiles(MemoryFiles):
    """A disk with much free space, of which little may be used; or one that does not tell."""

    def usage(self, _directory: Path) -> DiskUsage:
        if not self.capacity % 2:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return DiskUsage(1 << 40, 1 << 40)


@pytest.mark.parametrize("capacity", [45_057, 45_056])
def test_a_log_grows_by_steps_where_there_is_no_room_for_more(capacity: int) -> None:
    files = QuotaFiles(capacity)
    log = CommitLog(MapPool(files, 9), Path("/log"), 1 << 20, 4096)
    while log.end < 44_000:
        append(log, b"x" * 1_000)
    with pytest.raises(StoreFull):
        append(log, b"x" * 1_000)
    assert log.tail is not None
    assert log.tail.allocated == 45_056


class CountingFiles(MemoryFiles):
    """Counts the files that are open for writing; opening, writing or closing may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = 0
        self.open: list[str] = []
        self.failing = ""

    def fail(self, call: str) -> None:
        if call == self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def open_writer(self, path: Path) -> FileWriter:
        self.fail("open")
        self.opened += 1
        self.open.append(path.name)
        return CountedWriter(self, path)


class CountedWriter:
    """A file open for writing."""

    def __init__(self, files: CountingFiles, path: Path) -> None:
        self._files, self._path = files, path

    def write(self, start: int, data: bytes | memoryview) -> None:
        if self._files.failing == "write":
            self._files.write(self._path, start, b"torn")
        self._files.fail("write")
        self._files.write(self._path, start, data)

    def close(self) -> None:
        self._files.open.remove(self._path.name)
        self._files.fail("close")


FIRST, SECOND = f"{0:020d}", f"{1 << 16:020d}"

LARGE = b"x" * WRITE_PAST_MAP_MIN


def counted_log() -> tuple[CountingFiles, CommitLog]:
    files = CountingFiles()
    return files, CommitLog(MapPool(files, 9), Path("/log"), 1 << 16, 1 << 13)


def test_large_writes_open_a_file_of_the_log_once() -> None:
    files, log = counted_log()
    append(log, b"small")
    assert files.opened == 0
    for _ in range(9):
        append(log, LARGE)
        append(log, b"small")
    assert (files.opened, files.open) == (1, [FIRST])
    log.close_writer()
    log.close_writer()
    assert files.open == []


def test_a_full_file_is_closed() -> None:
    files, log = counted_log()
    while log.end < 1 << 16:
        append(log, LARGE)
    assert (files.opened, files.open) == (2, [SECOND])


def test_a_file_that_another_logs_bytes_fill_is_closed() -> None:
    files, log = counted_log()
    log.append_bytes(memoryview(LARGE))
    assert files.open == [FIRST]
    log.append_bytes(bytes((1 << 16) - len(LARGE)))
    assert files.open == []
    log.append_bytes(LARGE)
    assert files.open == [SECOND]
    assert log.segments.files[0].view()[: len(LARGE)] == LARGE


@pytest.mark.parametrize("end", [0, 93])
def test_a_truncated_log_has_no_file_open(end: int) -> None:
    files, log = counted_log()
    append(log, b"a")
    append(log, LARGE)
    log.truncate(end)
    assert files.open == []
    position = append(log, LARGE)
    assert bytes(log.record(position, len(pack_at(0, LARGE))) or b"") == pack_at(end, LARGE)


def test_a_log_begun_elsewhere_has_no_file_of_before_open() -> None:
    files, log = counted_log()
    log.write(log.reserve(len(LARGE)), LARGE)  # an append that was undone
    assert files.open == [FIRST]
    log.begin_at(1 << 16)
    assert files.open == []
    assert append(log, LARGE) == 1 << 16
    assert files.open == [SECOND]


@pytest.mark.parametrize("call", ["open", "write", "close"])
def test_a_write_that_fails_without_the_map_goes_through_it(call: str) -> None:
    files, log = counted_log()
    files.failing = call
    while log.end < 1 << 16:
        position = append(log, LARGE)
        whole = pack_at(position, LARGE)
        assert bytes(log.record(position, len(whole)) or b"") == whole
    log.close_writer()
    assert files.open == []


def test_the_writes_after_a_failed_one_open_the_file_again() -> None:
    files, log = counted_log()
    files.failing = "write"
    append(log, LARGE)
    files.failing = ""
    append(log, LARGE)
    assert (files.opened, files.open) == (2, [FIRST])
    assert [position for _, position in walked(log)] == [0, len(pack_at(0, LARGE))]


def test_large_writes_use_the_map_if_it_would_not_show_bypassing_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("roquet.store.commit_log.log.SEES_WRITES", False)
    monkeypatch.setattr(MemoryFiles, "open_writer", None)
    log = CommitLog(MapPool(MemoryFiles(), 9), Path("/log"), 1 << 20, 1 << 18)
    body = b"x" * WRITE_PAST_MAP_MIN
    assert bytes(log.record(append(log, body), len(pack_at(0, body))) or b"") == pack_at(0, body)


def test_a_record_that_does_not_fit_begins_a_file_after_a_blank(log: CommitLog) -> None:
    append(log, bytes(7900))
    assert append(log, bytes(300)) == SIZE
    assert TOTAL_AND_MAGIC.unpack_from(log.segments.files[0].view(), 7992) == (200, MAGIC_BLANK)
    assert walked(log) == [(0, 0), (SIZE, SIZE)]


@pytest.mark.parametrize(("spare", "position"), [(8, 4092), (7, SIZE)])
def test_eight_bytes_are_left_for_the_blank(log: CommitLog, spare: int, position: int) -> None:
    append(log, bytes(4000))
    assert append(log, bytes(SIZE - 4092 - 92 - spare)) == position


def test_the_greatest_record_fills_a_file(log: CommitLog) -> None:
    append(log, bytes(SIZE - 92 - 8))
    with pytest.raises(MessageIllegal, match="does not fit into a file of the log"):
        append(log, bytes(SIZE - 92 - 7))


def test_positions_outside_the_log_give_no_record(log: CommitLog) -> None:
    position = append(log, b"body")
    assert log.record(position, 95) is None
    assert log.record(position + 1, 96) is None
    assert log.record(position, 10_000) is None
    assert log.record(-5, 96) is None
    assert log.record(99_999, 96) is None
    log.segments.files[0].view()[4] = 0
    assert log.record(position, 96) is None
    assert log.stored_ms(position) is None


def test_store_times_are_read_in_place(log: CommitLog) -> None:
    append(log, b"a", stored_ms=5)
    assert append(log, b"b", stored_ms=6) == 93
    assert (log.stored_ms(0), log.stored_ms(93), log.stored_ms(92)) == (5, 6, None)
    assert log.stored_ms(log.end) is None


def test_a_walk_continues_after_a_hole(log: CommitLog) -> None:
    for n in range(4):
        append(log, b"%d" % n)
    log.segments.files[0].view()[93:186] = b"\xda\xa3\x20\xa7" * 23 + b"x"
    assert walked(log) == [(0, 0), (93, 186), (279, 279)]


def test_a_walk_continues_in_the_next_file(log: CommitLog) -> None:
    append(log, bytes(4000))
    append(log, bytes(4000))
    append(log, bytes(4000))
    log.segments.files[0].view()[4092:SIZE] = b"x" * (SIZE - 4092)
    assert walked(log) == [(0, 0), (4092, SIZE)]


def test_zeros_up_to_a_files_end_are_a_blank_where_the_log_is_durable(log: CommitLog) -> None:
    append(log, bytes(4000))
    append(log, bytes(4000))
    append(log, bytes(4000))
    log.segments.files[0].view()[4092:SIZE] = bytes(SIZE - 4092)
    assert walked(log, durable=SIZE) == [(0, 0), (SIZE, SIZE)]
    assert walked(log, durable=0) == [(0, 0), (4092, SIZE)]


def test_a_walk_stops_at_the_given_position(log: CommitLog) -> None:
    for n in range(4):
        append(log, b"%d" % n)
    found = log.walk(93, 187, 0, check_crc=True)
    assert [position for _, position, _ in found] == [93, 186]


def test_truncation_leaves_nothing_after_the_end(log: CommitLog) -> None:
    for n in range(200):
        append(log, b"%d" % n)
    assert log.truncate(93)
    assert not log.truncate(93)
    assert walked(log) == [(0, 0)]
    assert len(log.segments.files) == 1
    assert append(log, b"next") == 93


def test_a_record_of_another_position_is_not_valid(log: CommitLog) -> None:
    append(log, b"a")
    view = log.segments.files[0].view()
    view[93:186] = view[0:93]
    assert walked(log) == [(0, 0)]
    assert log.skim_at(93) is None


def test_the_next_file_begins_after_a_blank(log: CommitLog) -> None:
    append(log, bytes(7900))
    append(log, bytes(300))
    assert log.behind_blank(7992, SIZE) == SIZE
    assert log.behind_blank(7992, SIZE - 1) == 7992
    assert log.behind_blank(SIZE, 3 * SIZE) == SIZE


def test_an_entry_that_leads_over_a_files_end_is_refused(log: CommitLog) -> None:
    append(log, bytes(7900))
    append(log, bytes(4000))
    assert log.record(0, SIZE + 10) is None
    assert log.record(0, 50) is None


def test_records_are_all_there_or_are_not(log: CommitLog) -> None:
    places = [append(log, b"x") for _ in range(3)]
    assert log.has_all(places, (93, 93, 93))
    assert not log.has_all(places, (93, 93, 94))
    assert not log.has_all([*places, log.end], (93,) * 4)
    assert not log.has_all([places[0], places[1] + 1], (93, 93))
    assert not log.has_all([-93], (93,))
    log.segments.files[0].view()[93:97] = bytes(4)
    assert not log.has_all(places, (93, 93, 93))


@pytest.mark.parametrize("count", [1, 3, 300])
def test_extents_hold_the_bytes_of_their_positions(log: CommitLog, count: int) -> None:
    places = [append(log, b"x") for _ in range(count)]  # 300 of them lie in several files
    found = log.read_ranges(places, [at + 93 for at in places])
    assert found == b"".join(pack_at(at, b"x") for at in places)


def test_a_hole_ends_at_the_next_record_or_at_a_bound(store_dir: DataDir) -> None:
    store, opened = store_dir.open_parts()
    appended = fill(store, 5)
    for one in appended[1:3]:
        store_dir.bytes_at(one.position, one.size)[:] = bytes(one.size)
    hole, behind = appended[1].position, appended[3].position
    assert opened.log.hole_end(hole, 1 << 20) == behind
    assert opened.log.hole_end(hole, 50) == hole + 50
    assert opened.log.hole_end(opened.log.end, 50) == opened.log.end + 1
