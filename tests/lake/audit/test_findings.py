"""Findings of one queue, and the comparison of counts by hour."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from roquet.lake.audit.file_summary import SequenceSummary
from roquet.lake.audit.findings import (
    AuditedQueue,
    AuditFinding,
    CountDifference,
    HourlyCount,
    count_by_hour,
    count_differences,
    count_waiting,
    find_in_queue,
)
from roquet.lake.intervals import OffsetCounts, count_offsets


def counts(*numbers: int) -> OffsetCounts:
    return count_offsets(np.array(numbers, np.int64))


def queue(*numbers: int, **known: Any) -> AuditedQueue:
    return AuditedQueue(broker="a", queue_id=3, counts=counts(*numbers), **known)


def texts_of(one: AuditedQueue) -> list[tuple[str, str]]:
    return [(finding.what, finding.offsets) for finding in find_in_queue(one)]


def test_a_whole_queue_has_no_findings() -> None:
    assert find_in_queue(queue(0, 1, 2, begin=0, end=3, first=0, next=5)) == []


def test_three_that_were_removed_and_two_that_were_doubled_are_named() -> None:
    there = [*range(2), *range(3, 10), 4, 5, *range(12, 20)]
    one = queue(*there, begin=0, end=20, first=0, next=20)
    assert texts_of(one) == [("missing", "2"), ("doubled", "4..5"), ("missing", "10..11")]
    assert sum(finding.messages for finding in find_in_queue(one)) == 5


def test_the_first_and_the_last_can_be_missing() -> None:
    assert texts_of(queue(1, 2, begin=0, end=4, first=0, next=4)) == [
        ("missing", "0"),
        ("missing", "3"),
    ]
    assert texts_of(queue(begin=0, end=2, first=0, next=2)) == [("missing", "0..1")]


def test_without_a_known_beginning_the_first_row_counts_as_that() -> None:
    assert texts_of(queue(5, 7, end=8, first=0, next=8)) == [("missing", "6")]


def test_rows_that_the_topic_no_longer_has_are_lost() -> None:
    assert texts_of(queue(0, 1, 6, begin=0, end=7, first=4, next=9)) == [
        ("lost", "2..3"),
        ("missing", "4..5"),
    ]


def test_messages_deleted_before_they_were_archived_are_lost() -> None:
    one = queue(0, 1, begin=0, end=2, first=5, next=9)
    assert texts_of(one) == [("lost", "2..4")]
    assert count_waiting(one) == 4


def test_messages_not_archived_yet_are_waiting() -> None:
    assert count_waiting(queue(0, 1, begin=0, end=2, first=0, next=9)) == 7
    assert count_waiting(queue(0, 1, first=0, next=9)) == 7
    assert count_waiting(queue(0, 1, end=2)) == 0, "the topic was not asked"


def test_rows_beyond_the_topics_end_are_of_another_topic() -> None:
    assert texts_of(queue(0, 1, 2, 3, begin=0, end=2, first=0, next=2)) == [("unknown", "2..3")]


def test_a_row_in_three_copies_is_two_too_many() -> None:
    [finding] = find_in_queue(queue(0, 1, 1, 1, begin=0, end=2))
    assert (finding.times, finding.messages) == (3, 2)


def test_the_hour_of_a_finding_is_known_while_the_topic_has_it() -> None:
    one = AuditedQueue(
        broker="a",
        queue_id=0,
        counts=counts(0, 1, 5, 9),
        begin=0,
        end=10,
        first=4,
        next=10,
        hour_starts=((100, 4), (102, 6)),
    )
    assert [(finding.start, finding.hour) for finding in find_in_queue(one)] == [
        (2, None), (4, 100), (6, 102),
    ]  # fmt: skip


def test_hours_are_counted_on_all_sides() -> None:
    one = AuditedQueue(broker="a", queue_id=0, first=4, next=10, hour_starts=((100, 4), (102, 6)))
    table = SequenceSummary(name="a", counts=OffsetCounts(), hours={99: 4, 100: 2, 102: 3, -1: 1})
    assert count_by_hour([table], [one], {99: 4, 101: 1}) == [
        HourlyCount(hour=99, producer=4, topic=None, table=4),
        HourlyCount(hour=100, producer=0, topic=2, table=2),
        HourlyCount(hour=101, producer=1, topic=0, table=0),
        HourlyCount(hour=102, producer=0, topic=4, table=3),
    ]
    assert count_by_hour([table], [], None)[0] == HourlyCount(hour=99, table=4)


def test_messages_on_the_edge_of_an_hour_are_no_difference() -> None:
    assert count_differences({1: 10, 2: 10, 5: 3}, {1: 9, 2: 11, 5: 2}) == [
        CountDifference(first=5, last=5, more=-1)
    ]
    assert count_differences({1: 10}, {1: 10, 2: 2}) == [CountDifference(first=2, last=2, more=2)]
    assert count_differences({1: 10}, {1: 10}) == []


@given(st.sets(st.integers(0, 30)), st.integers(0, 30))
def test_every_offset_is_in_the_table_or_in_a_finding(there: set[int], first: int) -> None:
    one = queue(*there, begin=0, end=31, first=first, next=31)
    offsets = {n for finding in find_in_queue(one) for n in range(finding.start, finding.end)}
    assert offsets == set(range(31)) - there
    assert all((finding.what == "lost") == (finding.end <= first) for finding in find_in_queue(one))


def test_a_finding_names_its_place() -> None:
    finding = AuditFinding(what="lost", broker="a", queue_id=0, start=1, end=4)
    assert (finding.offsets, finding.messages) == ("1..3", 3)
