"""A batch read is fixed when it is planned."""

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import DataSourceReader, EqualTo

from roquet.lake.queue_offsets import OffsetRange
from roquet.model.errors import ConfigError, ConnectFailed, UsageError
from roquet.spark.options import parse
from roquet.spark.source.batch import BatchReader, PushdownReader

if TYPE_CHECKING:
    from tests.spark.conftest import CannedCluster


def reader(canned: "CannedCluster", **options: str) -> BatchReader:
    options_of_read = {"namesrv": canned.namesrv, "topic": "orders", **options}
    return BatchReader(parse(options_of_read, {}), ("queue_offset", "body"))


def test_everything_there_is_when_the_read_is_planned(canned: "CannedCluster") -> None:
    canned.send("broker-a", 0, b"one")
    canned.send("broker-b", 1, b"two", b"three")
    batch_reader = reader(canned)
    tasks = batch_reader.partitions()
    canned.send("broker-a", 0, b"too late")
    bodies = [body for task in tasks for batch in batch_reader.read(task) for body in batch["body"]]
    assert [body.as_py() for body in bodies] == [b"one", b"two", b"three"]


def test_the_users_edges(canned: "CannedCluster") -> None:
    canned.send("broker-a", 0, *[b"x"] * 10)
    canned.send("broker-b", 1, *[b"y"] * 10)
    (task,) = reader(
        canned,
        startingOffsets='{"orders": {"broker-a": {"0": 4}, "broker-b": {"1": -1}}}',
        endingOffsets='{"orders": {"broker-a": {"0": 6}}}',
    ).partitions()
    assert task.value == (OffsetRange("orders", "broker-a", 0, 4, 6),)


def test_an_empty_topic_has_no_tasks(canned: "CannedCluster") -> None:
    assert list(reader(canned).partitions()) == []


def test_an_end_that_is_not_there_yet_is_refused(canned: "CannedCluster") -> None:
    with pytest.raises(ConfigError, match="up to 5, but has messages up to 0"):
        reader(canned, endingOffsets='{"orders": {"broker-a": {"0": 5}}}').partitions()


def test_a_beginning_that_is_not_there_yet_is_refused(canned: "CannedCluster") -> None:
    with pytest.raises(ConfigError, match="is to be read from 5, but has messages up to 0"):
        reader(canned, startingOffsets='{"broker-a": {"0": 5}}').partitions()


def test_a_pattern_reads_matching_topics_and_fails_without_a_match(
    canned: "CannedCluster",
) -> None:
    canned.send("broker-a", 0, b"one")
    options_of_read = {"namesrv": canned.namesrv, "topicPattern": "ord.*"}
    (task,) = BatchReader(parse(options_of_read, {}), ("body",)).partitions()
    assert task.value == (OffsetRange("orders", "broker-a", 0, 0, 1),)
    options_of_read["topicPattern"] = "order"
    with pytest.raises(UsageError, match="no topic matches topicPattern 'order'"):
        BatchReader(parse(options_of_read, {}), ("body",)).partitions()


def test_a_broker_that_is_away_for_a_minute_is_waited_for(
    canned: "CannedCluster", monkeypatch: pytest.MonkeyPatch
) -> None:
    canned.send("broker-a", 0, b"one")
    canned.failures += [ConnectFailed("starting again")] * 30
    waited: list[float] = []
    monkeypatch.setattr("roquet.spark.cluster.cluster_client.time.sleep", waited.append)
    (task,) = reader(canned).partitions()
    canned.failures += [ConnectFailed("starting again")] * 30
    assert sum(batch.num_rows for batch in reader(canned).read(task)) == 1
    assert 20 < sum(waited) < 60


def test_conditions_of_a_query_narrow_a_read_with_pushdown(
    canned: "CannedCluster",
) -> None:
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
