"""Filter pushdown: conditions narrow a read and never drop a matching row."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from roquet.lake.queue_offsets import OffsetRange, QueueKey
from roquet.spark.options import SourceOptions
from roquet.spark.source.pushdown import (
    NO_FILTERS,
    SLACK_MS,
    narrow_ranges,
    pushed_filters,
    with_tags,
)

PIECES = [OffsetRange("orders", "a", 0, 10, 50), OffsetRange("orders", "b", 1, 0, 20)]
SETTINGS = SourceOptions(namesrv=("a:1",), topics=("orders",))
BEGAN = datetime(2026, 1, 31, tzinfo=UTC)
SECONDS = SLACK_MS // 1000


class FakeLookup:
    """Message `n` of each queue was stored `n` seconds after BEGAN."""

    def now_ms(self) -> int:
        raise AssertionError

    def committed(self, queue: QueueKey, group: str) -> int | None:
        raise AssertionError

    def first_since(self, _queue: QueueKey, span: tuple[int, int], ms: int) -> int:
        at = -(-(ms - int(BEGAN.timestamp() * 1000)) // 1000)
        return min(max(at, span[0]), span[1])


def left(*filters: Filter) -> list[tuple[str, int, int]]:
    narrowed = narrow_ranges(PIECES, pushed_filters(filters), FakeLookup())
    return [(piece.broker, piece.start, piece.end) for piece in narrowed]


BOTH = [("a", 10, 50), ("b", 0, 20)]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], BOTH),
        ([EqualTo(("broker",), "a")], BOTH[:1]),
        ([In(("broker",), ("b", "c"))], BOTH[1:]),
        ([EqualTo(("topic",), "paid")], []),
        ([EqualNullSafe(("queue_id",), 1)], BOTH[1:]),
        ([GreaterThan(("queue_id",), 0), IsNotNull(("queue_id",))], BOTH[1:]),
        ([LessThanOrEqual(("queue_id",), 0)], BOTH[:1]),
        ([EqualTo(("queue_offset",), 15)], [("a", 15, 16), ("b", 15, 16)]),
        ([In(("queue_offset",), (12, 17, None))], [("a", 12, 18), ("b", 12, 18)]),
        ([GreaterThanOrEqual(("queue_offset",), 19)], [("a", 19, 50), ("b", 19, 20)]),
        ([GreaterThan(("queue_offset",), 19)], [("a", 20, 50)]),
        ([LessThan(("queue_offset",), 10)], [("b", 0, 10)]),
        ([EqualTo(("queue_id",), 0), EqualTo(("queue_id",), 1)], []),
        ([EqualTo(("tag",), "x"), EqualTo(("tag",), "y")], []),
        ([Not(EqualTo(("broker",), "a"))], BOTH),
        ([StringStartsWith(("topic",), "x")], BOTH),
        ([EqualTo(("queue_id",), "1")], BOTH),
        ([EqualTo(("properties", "a"), "1")], BOTH),
        ([EqualTo(("key",), "k")], BOTH),
        ([EqualNullSafe(("tag",), None)], BOTH),
    ],
)
def test_conditions_that_are_understood_lessen_the_read(
    filters: list[Any], expected: list[tuple[str, int, int]]
) -> None:
    assert left(*filters) == expected


def test_conditions_on_time_are_applied_approximately() -> None:
    after = GreaterThan(("stored_at",), BEGAN + timedelta(seconds=30))
    assert left(after) == [("a", 30 - SECONDS, 50)]
    before = LessThan(("stored_at",), BEGAN + timedelta(seconds=5))
    assert left(before) == [("a", 10, 5 + SECONDS + 1), ("b", 0, 5 + SECONDS + 1)]
    at = EqualTo(("stored_at",), BEGAN + timedelta(seconds=40))
    assert left(at) == [("a", 40 - SECONDS, 50)]
    assert left(GreaterThan(("stored_at",), datetime(2030, 1, 1))) == BOTH, "of no time zone"  # noqa: DTZ001
    assert left(Not(at)) == BOTH


def test_tags_go_to_the_broker() -> None:
    assert with_tags(SETTINGS, pushed_filters([In(("tag",), ("b", "a"))])).tags == ("a", "b")
    assert with_tags(SETTINGS, NO_FILTERS) == SETTINGS
    some = SourceOptions(namesrv=("a:1",), topics=("orders",), tags=("a", "c"))
    assert with_tags(some, pushed_filters([In(("tag",), ("b", "a"))])).tags == ("a",)
    assert with_tags(some, pushed_filters([EqualTo(("tag",), "b")])).tags == ("a", "c")


@pytest.mark.parametrize("tag", ["*", " a", "a||b", "", "a | b"])
def test_a_tag_that_an_expression_cannot_name_is_left_to_spark(tag: str) -> None:
    assert with_tags(SETTINGS, pushed_filters([EqualTo(("tag",), tag)])) == SETTINGS


def test_a_broker_takes_one_expression() -> None:
    chosen = SourceOptions(namesrv=("a:1",), topics=("orders",), sql92="n > 1")
    assert with_tags(chosen, pushed_filters([EqualTo(("tag",), "a")])) == chosen


NUMBERS = st.integers(-5, 60)
CONDITIONS = st.lists(
    st.one_of(
        st.builds(EqualTo, st.just(("queue_offset",)), NUMBERS),
        st.builds(In, st.just(("queue_offset",)), st.lists(NUMBERS, min_size=1).map(tuple)),
        st.builds(GreaterThan, st.sampled_from([("queue_offset",), ("queue_id",)]), NUMBERS),
        st.builds(LessThanOrEqual, st.sampled_from([("queue_offset",), ("queue_id",)]), NUMBERS),
    ),
    max_size=4,
)


@given(CONDITIONS)
def test_no_matching_row_is_left_out(conditions: list[Any]) -> None:
    narrowed = {
        (piece.broker, at)
        for piece in narrow_ranges(PIECES, pushed_filters(conditions), FakeLookup())
        for at in range(piece.start, piece.end)
    }
    wanted = {
        (piece.broker, at)
        for piece in PIECES
        for at in range(piece.start, piece.end)
        if all(holds(one, {"queue_offset": at, "queue_id": piece.queue_id}) for one in conditions)
    }
    assert wanted <= narrowed <= {(p.broker, at) for p in PIECES for at in range(p.start, p.end)}


def holds(condition: Any, row: dict[str, int]) -> bool:
    value = row[condition.attribute[0]]
    match condition:
        case EqualTo():
            return bool(value == condition.value)
        case In():
            return value in condition.value
        case GreaterThan():
            return bool(value > condition.value)
        case _:
            return bool(value <= condition.value)
