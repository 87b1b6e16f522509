from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.recovery import (
    LogDamage,
    LostMessages,
    RecordRange,
    UncleanStop,
    end_runs,
    find_log_end,
    first_file_to_scan,
    is_torn_tail,
)


def test_whole_records_end_where_the_last_one_does() -> None:
    verdict = find_log_end([RecordRange(0, 500)], start=0, durable=300)
    assert (verdict.end, verdict.damage, verdict.cut) == (500, (), ())


def test_nothing_scanned_ends_at_the_start() -> None:
    assert find_log_end([], start=700, durable=700).end == 700


def test_a_hole_behind_the_durable_position_is_the_end() -> None:
    verdict = find_log_end([RecordRange(0, 500), RecordRange(600, 900)], start=0, durable=400)
    assert (verdict.end, verdict.damage, verdict.cut) == (500, (), (RecordRange(600, 900),))


def test_a_hole_in_front_of_it_is_damage_and_the_rest_stays() -> None:
    verdict = find_log_end([RecordRange(0, 500), RecordRange(600, 900)], start=0, durable=501)
    assert (verdict.end, verdict.damage, verdict.cut) == (900, (RecordRange(500, 600),), ())


def test_a_hole_up_to_the_durable_position_is_never_written_again() -> None:
    verdict = find_log_end([RecordRange(0, 500)], start=0, durable=800)
    assert (verdict.end, verdict.damage) == (800, (RecordRange(500, 800),))


def test_a_hole_at_the_very_start_is_seen() -> None:
    verdict = find_log_end([RecordRange(0, 0), RecordRange(100, 300)], start=0, durable=200)
    assert (verdict.end, verdict.damage) == (300, (RecordRange(0, 100),))


@given(st.lists(st.integers(1, 50), min_size=2, max_size=20), st.integers(0, 1000))
def test_everything_is_whole_damaged_or_behind_the_end(steps: list[int], durable: int) -> None:
    edges = [sum(steps[: i + 1]) for i in range(len(steps))]
    runs = [RecordRange(0, edges[0])] + [
        RecordRange(a, b) for a, b in zip(edges[1::2], edges[2::2], strict=False)
    ]
    verdict = find_log_end(runs, 0, durable)
    covered = sorted([*(r for r in runs if r.start < verdict.end), *verdict.damage],
                     key=lambda run: run.start)  # fmt: skip
    assert covered[0].start == 0
    assert covered[-1].stop == verdict.end
    assert all(a.stop == b.start for a, b in pairwise(covered))
    assert verdict.end >= durable or not verdict.damage or verdict.end > verdict.damage[-1].start
    assert all(not is_torn_tail(hole.start, durable) for hole in verdict.damage)


def test_a_scan_begins_with_the_last_file_that_began_in_safety() -> None:
    firsts = (1_000, 20_000, 30_000, 40_000)
    assert first_file_to_scan(UncleanStop(firsts, safe_ms=33_000)) == 2
    assert first_file_to_scan(UncleanStop(firsts, safe_ms=32_999)) == 1
    assert first_file_to_scan(UncleanStop(firsts, safe_ms=0)) == 0


def test_files_without_a_record_are_no_place_to_begin() -> None:
    assert first_file_to_scan(UncleanStop((1_000, 20_000, None), safe_ms=90_000)) == 1


def test_damage_says_which_messages_are_gone() -> None:
    damage = LogDamage(100, 300, (LostMessages("T", 1, 5, 8),))
    assert str(damage) == "positions 100 to 299: T queue 1 offsets 5 to 7"
    assert str(LogDamage(1, 3, ())) == "positions 1 to 2: no message known"


def test_a_run_ends_at_each_range_that_is_lost() -> None:
    scanned = [RecordRange(0, 10)]
    assert end_runs(scanned, 20, ()) == 20
    assert end_runs(scanned, 20, (RecordRange(50, 60), RecordRange(60, 70))) == 70
    assert scanned == [RecordRange(0, 10), RecordRange(20, 50), RecordRange(60, 60)]
