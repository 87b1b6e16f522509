"""A batch read is fixed when it is planned."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    DataSourceReader,
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
from tests.spark.conftest import CannedCluster

from roquet.lake.queue_offsets import OffsetRange, QueueKey
from roquet.model.errors import ConfigError, ConnectFailed, UsageError
from roquet.spark.options import SourceOptions, parse
from roquet.spark.source.batch import (
    NO_FILTERS,
    SLACK_MS,
    BatchReader,
    PushdownReader,
    narrow_ranges,
    pushed_filters,
    with_tags,
)


def reader(canned: CannedCluster, **options: str) -> BatchReader:
    options_of_read = {"namesrv": canned.namesrv, "topic": "orders", **options}
    return BatchReader(parse(options_of_read, {}), ("queue_offset", "body"))


def test_everything_there_is_when_the_read_is_planned(canned: CannedCluster) -> None:
    canned.send("broker-a", 0, b"one")
    canned.send("broker-b", 1, b"two", b"three")
    batch_reader = reader(canned)
    tasks = batch_reader.partitions()
    canned.send("broker-a", 0, b"too late")
    bodies = [body for task in tasks for batch in batch_reader.read(task) for body in batch["body"]]
    assert [body.as_py() for body in bodies] == [b"one", b"two", b"three"]


def test_the_users_edges(canned: CannedCluster) -> None:
    canned.send("broker-a", 0, *[b"x"] * 10)
    canned.send("broker-b", 1, *[b"y"] * 10)
    (task,) = reader(
        canned,
        startingOffsets='{"orders": {"broker-a": {"0": 4}, "broker-b": {"1": -1}}}',
        endingOffsets='{"orders": {"broker-a": {"0": 6}}}',
    ).partitions()
    assert task.value == (OffsetRange("orders", "broker-a", 0, 4, 6),)


def test_an_empty_topic_has_no_tasks(canned: CannedCluster) -> None:
    assert list(reader(canned).partitions()) == []


def test_an_end_that_is_not_there_yet_is_refused(canned: CannedCluster) -> None:
    with pytest.raises(ConfigError, match="up to 5, but has messages up to 0"):
        reader(canned, endingOffsets='{"orders": {"broker-a": {"0": 5}}}').partitions()


def test_a_beginning_that_is_not_there_yet_is_refused(canned: CannedCluster) -> None:
    with pytest.raises(ConfigError, match="is to be read from 5, but has messages up to 0"):
        reader(canned, startingOffsets='{"broker-a": {"0": 5}}').partitions()


def test_a_pattern_reads_matching_topics_and_fails_without_a_match(canned: CannedCluster) -> None:
    canned.send("broker-a", 0, b"one")
    options_of_read = {"namesrv": canned.namesrv, "topicPattern": "ord.*"}
    (task,) = BatchReader(parse(options_of_read, {}), ("body",)).partitions()
    assert task.value == (OffsetRange("orders", "broker-a", 0, 0, 1),)
    options_of_read["topicPattern"] = "order"
    with pytest.raises(UsageError, match="no topic matches topicPattern 'order'"):
        BatchReader(parse(options_of_read, {}), ("body",)).partitions()


def test_a_broker_that_is_away_for_a_minute_is_waited_for(
    canned: CannedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    canned.send("broker-a", 0, b"one")
    canned.failures += [ConnectFailed("starting again")] * 30
    waited: list[float] = []
    monkeypatch.setattr("roquet.spark.cluster.cluster_client.time.sleep", waited.append)
    (task,) = reader(canned).partitions()
    canned.failures += [ConnectFailed("starting again")] * 30
    assert sum(batch.num_rows for batch in reader(canned).read(task)) == 1
    assert 20 < sum(waited) < 60


def test_conditions_of_a_query_narrow_a_read_with_pushdown(canned: CannedCluster) -> None:
    for queue_id in (0, 1):
        canned.send("broker-a", queue_id, *[b"x"] * 10)
    options_of_read = {"namesrv": canned.namesrv, "topic": "orders", "pushdown": "true"}
    batch_reader = PushdownReader(parse(options_of_read, {}), ("body",))
    conditions: Any = [EqualTo(("queue_id",), 1), EqualTo(("queue_offset",), 4)]
    assert list(batch_reader.pushFilters(conditions)) == conditions, "Spark looks again"
    (task,) = batch_reader.partitions()
    assert task.value == (OffsetRange("orders", "broker-a", 1, 4, 5),)


def test_only_a_reader_with_pushdown_accepts_conditions() -> None:
    # Spark refuses every read of a class with `pushFilters` where its setting is off.
    assert BatchReader.pushFilters is DataSourceReader.pushFilters


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
