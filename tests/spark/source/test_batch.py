"""A batch read is fixed when it is planned."""

from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceReader, EqualTo

from roquet.model.errors import ConfigError, ConnectFailed, UsageError
from roquet.spark.options import parse
from roquet.spark.queue_offsets import OffsetRange
from roquet.spark.source.batch import BatchReader, PushdownReader


def reader(canned: Any, **options: str) -> BatchReader:
    given = {"namesrv": canned.namesrv, "topic": "orders", **options}
    return BatchReader(parse(given, {}), ("queue_offset", "body"))


def test_everything_there_is_when_the_read_is_planned(canned: Any) -> None:
    canned.send("broker-a", 0, b"one")
    canned.send("broker-b", 1, b"two", b"three")
    found = reader(canned)
    tasks = found.partitions()
    canned.send("broker-a", 0, b"too late")
    bodies = [body for task in tasks for batch in found.read(task) for body in batch["body"]]
    assert [body.as_py() for body in bodies] == [b"one", b"two", b"three"]


def test_the_users_edges(canned: Any) -> None:
    canned.send("broker-a", 0, *[b"x"] * 10)
    canned.send("broker-b", 1, *[b"y"] * 10)
    (task,) = reader(
        canned,
        startingOffsets='{"orders": {"broker-a": {"0": 4}, "broker-b": {"1": -1}}}',
        endingOffsets='{"orders": {"broker-a": {"0": 6}}}',
    ).partitions()
    assert task.value == (OffsetRange("orders", "broker-a", 0, 4, 6),)


def test_an_empty_topic_has_no_tasks(canned: Any) -> None:
    assert list(reader(canned).partitions()) == []


def test_an_end_that_is_not_there_yet_is_refused(canned: Any) -> None:
    with pytest.raises(ConfigError, match="up to 5, but has messages up to 0"):
        reader(canned, endingOffsets='{"orders": {"broker-a": {"0": 5}}}').partitions()


def test_a_beginning_that_is_not_there_yet_is_refused(canned: Any) -> None:
    with pytest.raises(ConfigError, match="is to be read from 5, but has messages up to 0"):
        reader(canned, startingOffsets='{"broker-a": {"0": 5}}').partitions()


def test_a_pattern_reads_what_matches_and_says_so_when_nothing_does(canned: Any) -> None:
    canned.send("broker-a", 0, b"one")
    given = {"namesrv": canned.namesrv, "topicPattern": "ord.*"}
    (task,) = BatchReader(parse(given, {}), ("body",)).partitions()
    assert task.value == (OffsetRange("orders", "broker-a", 0, 0, 1),)
    given["topicPattern"] = "order"
    with pytest.raises(UsageError, match="no topic matches topicPattern 'order'"):
        BatchReader(parse(given, {}), ("body",)).partitions()


def test_a_broker_that_is_away_for_a_minute_is_waited_for(
    canned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    canned.send("broker-a", 0, b"one")
    canned.failures += [ConnectFailed("starting again")] * 30
    waited: list[float] = []
    monkeypatch.setattr("roquet.spark.cluster.cluster_client.time.sleep", waited.append)
    (task,) = reader(canned).partitions()
    canned.failures += [ConnectFailed("starting again")] * 30
    assert sum(batch.num_rows for batch in reader(canned).read(task)) == 1
    assert 20 < sum(waited) < 60


def test_conditions_of_a_query_lessen_the_read_of_one_that_takes_them(canned: Any) -> None:
    for queue_id in (0, 1):
        canned.send("broker-a", queue_id, *[b"x"] * 10)
    given = {"namesrv": canned.namesrv, "topic": "orders", "pushdown": "true"}
    found = PushdownReader(parse(given, {}), ("body",))
    conditions: Any = [EqualTo(("queue_id",), 1), EqualTo(("queue_offset",), 4)]
    assert list(found.pushFilters(conditions)) == conditions, "Spark looks again"
    (task,) = found.partitions()
    assert task.value == (OffsetRange("orders", "broker-a", 1, 4, 5),)


def test_only_that_one_takes_conditions() -> None:
    # Spark refuses every read of a class with `pushFilters` where its setting is off.
    assert BatchReader.pushFilters is DataSourceReader.pushFilters
