"""Batch planning: no row twice, none left out, no partition too large."""

from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from roquet.lake.queue_offsets import OffsetRange, QueueKey, QueueOffsets, ranges
from roquet.model.errors import ConfigError
from roquet.spark.source import plan
from roquet.spark.source.plan import PARTITION_ROWS_MIN

A0, A1, B0 = ("orders", "a", 0), ("orders", "a", 1), ("orders", "b", 0)
queues = st.tuples(
    st.sampled_from(["orders", "payments"]), st.sampled_from(["a", "b", "c"]), st.integers(0, 12)
)
offsets = st.integers(0, 2**62)
spans = st.dictionaries(queues, st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=8)


a0, a1, b0 = (partial(OffsetRange, *queue) for queue in (A0, A1, B0))


def split(bounds: dict[QueueKey, tuple[int, int]]) -> tuple[QueueOffsets, QueueOffsets]:
    start = {queue: first for queue, (first, _) in bounds.items()}
    return start, {queue: first + count for queue, (first, count) in bounds.items()}


def rows(pieces: list[OffsetRange]) -> list[tuple[QueueKey, int]]:
    return [(p.queue, at) for p in pieces for at in range(p.start, p.end)]


@given(spans, st.integers(1, 7))
def test_partitions_hold_every_row_once_and_are_even(
    bounds: dict[QueueKey, tuple[int, int]], count: int
) -> None:
    pieces = ranges(*split(bounds))
    packed = plan.pack(pieces, count)
    assert rows([piece for part in packed for piece in part]) == rows(pieces)
    sizes = [sum(map(len, part)) for part in packed]
    assert len(packed) <= count
    assert not sizes or max(sizes) - min(sizes) <= 1


def test_a_full_queue_is_cut_and_small_ones_share() -> None:
    pieces = [a0(100, 106), a1(0, 1), b0(0, 1)]
    assert plan.pack(pieces, 2) == [(a0(100, 104),), (a0(104, 106), a1(0, 1), b0(0, 1))]


@pytest.mark.parametrize(
    ("count", "least", "most", "wanted"),
    [
        (0, 1, 8, 1),
        (1, 1, 8, 1),
        (PARTITION_ROWS_MIN, 1, 8, 1),
        (PARTITION_ROWS_MIN + 1, 1, 8, 2),
        (PARTITION_ROWS_MIN * 100, 1, 8, 8),
        (1, 4, 8, 4),
    ],
)
def test_few_rows_deserve_few_partitions(count: int, least: int, most: int, wanted: int) -> None:
    assert plan.partition_count(count, least, most) == wanted


@given(spans, st.integers(1, 60))
def test_a_bounded_batch_moves_on_by_just_the_limit(
    bounds: dict[QueueKey, tuple[int, int]], rows_max: int
) -> None:
    start, latest = split(bounds)
    end = plan.limit_rows(start, latest, rows_max)
    pieces = ranges(start, latest)
    assert sum(map(len, ranges(start, end))) == min(sum(map(len, pieces)), rows_max)
    assert all(start[queue] <= end[queue] <= latest[queue] for queue in latest)
    moved = [piece for piece in pieces if end[piece.queue] > piece.start]
    assert len(moved) == min(len(pieces), rows_max), "each moves where the limit has room for it"


@given(spans, st.integers(1, 60))
def test_bounded_batches_reach_the_end(
    bounds: dict[QueueKey, tuple[int, int]], rows_max: int
) -> None:
    start, latest = split(bounds)
    steps = 0
    while start != latest:
        start, steps = plan.limit_rows(start, latest, rows_max), steps + 1
        assert steps <= 401


@given(spans, st.integers(1, 20))
def test_no_partition_has_more_rows_than_allowed(
    bounds: dict[QueueKey, tuple[int, int]], rows_max: int
) -> None:
    pieces = ranges(*split(bounds))
    count = plan.partition_count(sum(map(len, pieces)), 1, 2, rows_max)
    assert all(sum(map(len, part)) <= rows_max for part in plan.pack(pieces, count))


def test_a_limit_is_shared_in_proportion_to_lag() -> None:
    end = plan.limit_rows({A0: 0, A1: 0, B0: 9}, {A0: 300, A1: 100, B0: 9}, 40)
    assert end == {A0: 30, A1: 10, B0: 9}


@given(st.integers(1, 9), st.integers(1, 9))
def test_a_queue_gets_a_share_however_busy_the_others_are(queues: int, rows_max: int) -> None:
    start: QueueOffsets = {("orders", "a", number): 0 for number in range(queues)}
    latest = {queue: 1_000_000 * number + 100 for number, queue in enumerate(start)}
    for _ in range(-(-queues // rows_max)):
        start = plan.limit_rows(start, latest, rows_max)
        latest = {queue: offset + 1 for queue, offset in latest.items()}
    assert all(start.values())


def test_a_target_caps_later_messages_and_hides_new_queues() -> None:
    assert plan.cap_at({A0: 9, A1: 5, B0: 2}, {A0: 7, A1: 5}, {A0: 3}) == {A0: 7, A1: 5}
    assert plan.cap_at({A0: 9}, None, {}) == {A0: 9}
    assert plan.cap_at({A0: 9}, {A0: 7}, {A0: 8}) == {A0: 8}, "never back"


def test_growth_is_no_loss() -> None:
    assert plan.lost_queues({A0: 5}, {A0: 5, A1: 2}) == []


def test_a_queue_that_is_gone_or_went_back_is_a_loss() -> None:
    assert plan.lost_queues({A0: 5, B0: 3}, {A0: 4}) == [
        (A0, "topic 'orders', queue 0 of broker 'a' ends at offset 4, but was read up to 5"),
        (B0, "topic 'orders', queue 0 of broker 'b', read up to offset 3, is gone"),
    ]


def test_nothing_is_lost_of_a_broker_that_is_away() -> None:
    assert plan.lost_queues({A0: 5, B0: 3}, {A0: 5}, away={"b"}) == []


def test_messages_deleted_before_they_were_read_are_reported() -> None:
    assert plan.deleted_texts({A0: 5, A1: 7, B0: 1}, {A0: 9, A1: 7}) == [
        "topic 'orders', queue 0 of broker 'a' has no messages from offset 5 to 8 any more"
    ]


def test_new_and_recreated_queues_begin_at_their_first_message() -> None:
    before, latest = {A0: 5, A1: 8}, {A0: 9, A1: 4, B0: 3}
    begins = plan.new_queue_starts(before, {A0: 1, A1: 2, B0: 0}, latest)
    assert begins == {A1: 2, B0: 0}
    assert ranges(before, {**latest, **begins}) == [a0(5, 9)], (
        "the batch that notes where they begin brings nothing of them"
    )


def test_a_batch_range_must_be_there_and_in_order() -> None:
    assert plan.checked_range({A0: 3}, {A0: 5}, {A0: 9}) == [a0(3, 5)]
    with pytest.raises(ConfigError, match="from 6, but only up to 5"):
        plan.checked_range({A0: 6}, {A0: 5}, {A0: 9})
    with pytest.raises(ConfigError, match="up to 10, but has messages up to 9"):
        plan.checked_range({A0: 6}, {A0: 10}, {A0: 9})


def test_large_queues_are_cut_so_that_a_partition_has_messages_of_the_same_time() -> None:
    ten = 10 * PARTITION_ROWS_MIN
    pieces = [a0(0, ten), a1(7, 7 + ten), b0(0, ten + 1)]
    first, second = plan.pack(pieces, 2)
    half = ten // 2
    assert first == (a0(0, half), a1(7, 7 + half), b0(0, half + 1))
    assert second == (a0(half, ten), a1(7 + half, 7 + ten), b0(half + 1, ten + 1))


wide = st.lists(st.integers(1, 40 * PARTITION_ROWS_MIN), min_size=1, max_size=6)


@given(wide, st.integers(1, 7))
@example([1, 1, 1, 10 * PARTITION_ROWS_MIN], 5)
def test_large_queues_are_dealt_evenly_too(sizes: list[int], count: int) -> None:
    pieces = [
        OffsetRange("orders", "a", queue_id, 3, 3 + size) for queue_id, size in enumerate(sizes)
    ]
    packed = plan.pack(pieces, count)
    held = [sum(map(len, part)) for part in packed]
    assert sum(held) == sum(sizes)
    assert max(held) - min(held) <= 1
    for piece in pieces:
        parts = [p for part in packed for p in part if p.queue_id == piece.queue_id]
        assert [p.start for p in parts] == [piece.start, *(p.end for p in parts[:-1])]
        assert parts[-1].end == piece.end


def test_only_queues_that_were_read_of_another_topic_are_recreated() -> None:
    known, now = {("t", "a"): "1-1", ("t", "b"): "1-1"}, {("t", "a"): "2-2", ("t", "b"): "1-1"}
    start = {("t", "a", 0): 5, ("t", "a", 1): 0, ("t", "b", 0): 5}
    earliest = dict.fromkeys(start, 0)
    assert plan.recreated_queues(start, earliest, known, now) == {("t", "a", 0)}
    assert plan.recreated_queues(start, earliest, {}, now) == set(), (
        "of an unknown one nothing is certain"
    )
    assert plan.recreated_queues(start, {}, known, now) == set(), "its broker is away"


def test_a_part_of_a_range_is_of_the_same_topic() -> None:
    (piece,) = plan.with_topic_ids([OffsetRange("t", "a", 0, 0, 9)], {("t", "a"): "1-1"})
    assert piece.cut(3, 5) == OffsetRange("t", "a", 0, 3, 5, "1-1")


def test_tasks_for_unknown_cores_are_those_of_this_machine_or_more_for_many_rows() -> None:
    assert plan.tasks_max(10, 4) == 4
    assert plan.tasks_max(4 * plan.TASK_ROWS, 4) == 4
    assert plan.tasks_max(4 * plan.TASK_ROWS + 1, 4) == 5
    assert plan.tasks_max(0, 0) == 1
