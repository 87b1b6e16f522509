"""Queue cursors advance without gaps; several queues share a pull only when it pays."""

import pytest

from roquet.arrow.records import RecordColumns
from roquet.lake.queue_offsets import OffsetRange
from roquet.spark.cluster import queue_cursors
from roquet.spark.cluster.queue_cursors import (
    SINGLE_QUEUE_BLOCKS,
    TOGETHER_MAX,
    TOGETHER_ROWS_MIN,
    QueueCursors,
    group_ranges,
)
from roquet.wire.records import record

HOST = bytes(8)
MANY = TOGETHER_ROWS_MIN


def piece(queue_id: int, start: int = 0, end: int = MANY, broker: str = "a") -> OffsetRange:
    return OffsetRange("orders", broker, queue_id, start, end)


def records_at(*places: tuple[int, int]) -> RecordColumns:
    """Records of these queues and offsets, as they lie in the log."""
    packed = [
        record.pack(queue_id, 0, offset, at, 0, 0, HOST, 0, HOST, 0, 0, b"b", b"t", b"")
        for at, (queue_id, offset) in enumerate(places)
    ]
    return RecordColumns.of(b"".join(packed))


def accepted(cursors: QueueCursors, *places: tuple[int, int]) -> list[tuple[int, int]]:
    return [
        place
        for place, is_wanted in zip(places, cursors.advance(records_at(*places)), strict=True)
        if is_wanted
    ]


def test_the_next_message_is_accepted_and_none_twice() -> None:
    cursors = QueueCursors([piece(0, 5), piece(1, 7)])
    assert accepted(cursors, (0, 4), (1, 7), (0, 5), (1, 8)) == [(1, 7), (0, 5), (1, 8)]
    assert accepted(cursors, (1, 8), (0, 6), (1, 9)) == [(0, 6), (1, 9)]


def test_behind_a_gap_nothing_is_taken() -> None:
    cursors = QueueCursors([piece(0), piece(1)])
    assert accepted(cursors, (0, 0), (1, 1), (0, 2), (0, 3)) == [(0, 0)]
    assert accepted(cursors, (0, 1), (1, 0), (1, 1)) == [(0, 1), (1, 0), (1, 1)]


def test_offsets_that_jump_back_do_not_pass() -> None:
    cursors = QueueCursors([piece(0), piece(1)])
    assert accepted(cursors, (0, 1), (0, 0), (1, 0), (1, 2), (1, 1)) == [(1, 0)]


def test_a_message_after_the_end_of_a_range_is_dropped_and_its_offset_noted() -> None:
    cursors = QueueCursors([piece(0, 0, 2), piece(1), piece(2)])
    assert accepted(cursors, (0, 0), (0, 1), (0, 2), (1, 0), (2, 0)) == [
        (0, 0),
        (0, 1),
        (1, 0),
        (2, 0),
    ]
    leading = cursors.leading()
    assert leading is not None
    assert leading.range.queue_id == 1
    assert cursors.other_offsets(leading) == {0: 3, 2: 1}


def test_the_queue_that_is_furthest_behind_in_the_log_leads() -> None:
    cursors = QueueCursors([piece(0), piece(1), piece(2)])
    order = []
    for places in ([(0, 0), (1, 0), (2, 0)], [(0, 1), (2, 1), (1, 1)]):
        leading = cursors.leading()
        assert leading is not None
        order.append(leading.range.queue_id)
        accepted(cursors, *places)
    assert order == [0, 0]
    accepted(cursors, (0, 2), (1, 2))
    leading = cursors.leading()
    assert leading is not None
    assert leading.range.queue_id in (0, 2)


@pytest.mark.parametrize(
    ("pieces", "worth"),
    [
        ([piece(0), piece(1)], True),
        ([piece(0)], False),
        ([piece(0, 0, 10), piece(1, 0, 10)], False),
        ([piece(0), piece(1, 5, 5)], False),
        ([piece(0), piece(1), piece(2, 5, 5)], True),
        ([piece(0), piece(1), piece(2, 5, 5), piece(3, 5, 5)], False),
    ],
)
def test_others_are_asked_for_while_most_have_much_to_come(
    pieces: list[OffsetRange], worth: bool
) -> None:
    cursors = QueueCursors(pieces)
    leading = cursors.leading()
    assert leading is not None
    assert bool(cursors.other_offsets(leading)) is worth


@pytest.mark.parametrize("places", [[(0, 0), (0, 1)], [(0, 0), (1, 0), (5, 1), (5, 2), (5, 3)], []])
def test_a_pull_that_brought_little_of_others_is_followed_by_a_pause(
    places: list[tuple[int, int]],
) -> None:
    cursors = QueueCursors([piece(0), piece(1)])
    leading = cursors.leading()
    assert leading is not None
    accepted(cursors, *places)
    for _ in range(SINGLE_QUEUE_BLOCKS):
        assert cursors.other_offsets(leading) == {}
        cursors.count_single_pull()
    assert cursors.other_offsets(leading)


def test_nothing_leads_when_all_are_at_their_end() -> None:
    cursors = QueueCursors([piece(0, 0, 1)])
    accepted(cursors, (0, 0))
    assert cursors.leading() is None


def test_a_group_is_of_one_broker_and_of_different_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    a0, a1, b0, again = piece(0), piece(1), piece(0, broker="b"), piece(0, MANY, 2 * MANY)
    assert group_ranges([a0, b0, again, a1]) == [[a0, a1], [b0], [again]]
    monkeypatch.setattr(queue_cursors, "TOGETHER_MAX", 1)
    assert group_ranges([a0, a1]) == [[a0], [a1]]
    assert TOGETHER_MAX == 64
