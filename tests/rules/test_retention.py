from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.retention import (
    FORCED_FILES_MAX,
    HOUR_MS,
    DiskUsage,
    FileAge,
    RetentionClock,
    RetentionPolicy,
    deletable_files,
    must_refuse_writes,
    required_free_bytes,
)

NOW = 1_000 * HOUR_MS
POLICY = RetentionPolicy()
ROOMY, FILLING, PRESSING, FULL = (DiskUsage(100, free) for free in (50, 20, 12, 5))


def aged(*hours: int) -> list[FileAge]:
    return [FileAge(start, NOW - age * HOUR_MS) for start, age in enumerate(hours)]


def starts(
    files: list[FileAge], hour: int = 4, usage: DiskUsage = ROOMY, policy: RetentionPolicy = POLICY
) -> list[int]:
    return [file.start for file in deletable_files(files, NOW, hour, usage, policy)]


def test_old_files_go_at_their_hour() -> None:
    assert starts(aged(100, 73, 72, 71, 1)) == [0, 1, 2]


def test_at_other_hours_they_stay_while_there_is_room() -> None:
    assert starts(aged(100, 73, 1), hour=5) == []


def test_a_filling_disk_lets_old_files_go_at_any_hour() -> None:
    assert starts(aged(100, 73, 10, 1), hour=5, usage=FILLING) == [0, 1]


def test_a_pressed_disk_lets_young_files_go_as_well() -> None:
    assert starts(aged(3, 2, 1, 0), hour=5, usage=PRESSING) == [0, 1, 2]


def test_pressure_takes_a_few_files_at_a_time() -> None:
    assert len(starts(aged(*range(40, 0, -1)), usage=PRESSING)) == FORCED_FILES_MAX


def test_pressure_takes_young_files_as_far_as_they_are_read() -> None:
    files = aged(3, 2, 1, 0)  # of one byte each
    for read_to, gone in ((0, 0), (1, 1), (2, 2), (9, 3), (None, 3)):
        assert len(deletable_files(files, NOW, 5, PRESSING, POLICY, read_to)) == gone
    assert len(deletable_files(aged(100, 99, 1), NOW, 5, PRESSING, POLICY, 0)) == 2


def test_a_young_file_protects_those_behind_it() -> None:
    assert starts(aged(100, 1, 100, 1)) == [0]


def test_the_newest_file_never_goes() -> None:
    assert starts(aged(1000), usage=FULL) == []


def test_writes_are_refused_above_the_ratio_only() -> None:
    assert [must_refuse_writes(usage, POLICY) for usage in (ROOMY, FILLING, PRESSING, FULL)] == [
        False, False, False, True,
    ]  # fmt: skip


def test_a_floor_of_free_bytes_replaces_the_ratios() -> None:
    policy = RetentionPolicy(free_min=10)
    assert must_refuse_writes(DiskUsage(100_000, 9), policy)
    assert not must_refuse_writes(DiskUsage(100, 10), policy)
    assert starts(aged(3, 2, 1), hour=5, usage=DiskUsage(100, 19), policy=policy) == [0, 1]
    assert starts(aged(3, 2, 1), hour=5, usage=DiskUsage(100, 21), policy=policy) == []
    assert starts(aged(99, 2, 1), hour=5, usage=DiskUsage(100, 29), policy=policy) == [0]


def test_a_disk_of_no_size_is_not_full() -> None:
    assert DiskUsage(0, 0).ratio == 0


@given(st.lists(st.integers(0, 200), max_size=30), st.integers(0, 23), st.integers(0, 100))
def test_only_a_prefix_of_the_files_is_deletable(hours: list[int], hour: int, free: int) -> None:
    files = aged(*hours)
    gone = list(deletable_files(files, NOW, hour, DiskUsage(100, free), POLICY))
    assert gone == files[: len(gone)]
    assert len(gone) < max(len(files), 1)


def test_by_a_clock_that_has_jumped_nothing_is_old_for_an_hour() -> None:
    clock = RetentionClock()
    ahead = 30 * 24 * HOUR_MS
    assert clock.believed_ms(NOW, 0) == NOW
    assert clock.believed_ms(NOW + 10_500, 10_000) == NOW + 10_500
    assert clock.believed_ms(NOW + ahead + 20_000, 20_000) == NOW + 20_500
    half = HOUR_MS // 2
    assert clock.believed_ms(NOW + ahead + half, half) == NOW + half + 500
    assert clock.believed_ms(NOW + half + 10, half + 10) == NOW + half + 10, "it is right again"
    late = 2 * HOUR_MS
    assert clock.believed_ms(NOW + ahead + late, late) == NOW + late
    later = late + HOUR_MS
    assert clock.believed_ms(NOW + ahead + later, later) == NOW + ahead + later, "it is meant"
    assert clock.believed_ms(NOW, later) == NOW, "a clock that is behind deletes nothing"


def test_how_much_has_to_be_free_is_told() -> None:
    assert required_free_bytes(DiskUsage(1_000, 500), RetentionPolicy(refuse_ratio=0.9)) == 100
    assert required_free_bytes(DiskUsage(1_000, 500), RetentionPolicy(free_min=700)) == 700
