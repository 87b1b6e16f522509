"""Ranges of a stream follow one another, and each can be read again."""

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from roquet.spark import stream
from roquet.spark.cluster import DataLost
from roquet.spark.options import parse
from roquet.spark.plan import Piece
from roquet.spark.stream import StreamReader

ALL = ReadAllAvailable()
ZERO = {"orders": {"broker-a": {"0": 0, "1": 0}, "broker-b": {"0": 0, "1": 0}}}


@pytest.fixture(autouse=True)
def no_idling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "IDLE_MS", 0)


def reader(canned: Any, **options: str) -> StreamReader:
    given = {"namesrv": canned.namesrv, "topic": "orders", **options}
    return StreamReader(parse(given, {}), ("body",))


def pieces(found: StreamReader, start: Any, end: Any) -> list[Piece]:
    return [piece for task in found.partitions(start, end) for piece in task.value]


def test_a_new_query_begins_where_it_was_told_however_often_spark_asks(canned: Any) -> None:
    canned.send("broker-a", 0, b"old")
    assert reader(canned).initialOffset() == ZERO
    latest = reader(canned, startingOffsets="latest")
    first = latest.initialOffset()
    canned.send("broker-a", 0, b"new")
    assert first["orders"]["broker-a"]["0"] == 1
    assert latest.initialOffset() == first


def test_batches_follow_one_another(canned: Any) -> None:
    found = reader(canned)
    canned.send("broker-a", 0, b"one", b"two")
    middle = found.latestOffset(ZERO, ALL)
    canned.send("broker-a", 0, b"three")
    canned.send("broker-b", 1, b"four")
    end = found.latestOffset(middle, ALL)
    assert pieces(found, ZERO, middle) == [Piece("orders", "broker-a", 0, 0, 2)]
    assert pieces(found, middle, end) == [
        Piece("orders", "broker-a", 0, 2, 3),
        Piece("orders", "broker-b", 1, 0, 1),
    ]
    assert pieces(found, ZERO, middle) == [Piece("orders", "broker-a", 0, 0, 2)], "again the same"
    assert found.reportLatestOffset() == end


def test_nothing_new_is_the_start_itself(canned: Any) -> None:
    found = reader(canned)
    canned.send("broker-a", 0, b"one")
    end = found.latestOffset(ZERO, ALL)
    assert found.latestOffset(end, ALL) == end
    assert list(found.partitions(end, end)) == []


def test_an_idle_query_is_kept_for_a_moment(canned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "IDLE_MS", 60_000)
    found = reader(canned)
    monkeypatch.setattr(found._cluster, "pause", lambda ms: canned.send("broker-b", 0, b"at last"))
    assert found.latestOffset(ZERO, ALL)["orders"]["broker-b"]["0"] == 1


def test_a_batch_is_limited_as_spark_says(canned: Any) -> None:
    found = reader(canned, maxOffsetsPerTrigger="10")
    assert found.getDefaultReadLimit() == ReadMaxRows(10)
    assert isinstance(reader(canned).getDefaultReadLimit(), ReadAllAvailable)
    for queue in canned.queues:
        canned.send(*queue, *[b"x"] * 100)
    end = found.latestOffset(ZERO, ReadMaxRows(10))
    assert sum(map(len, pieces(found, ZERO, end))) == 10
    assert sum(map(len, pieces(found, ZERO, found.latestOffset(ZERO, ALL)))) == 400


def test_available_now_reads_what_was_there_and_no_more(canned: Any) -> None:
    found = reader(canned)
    canned.send("broker-a", 0, *[b"x"] * 5)
    found.prepareForTriggerAvailableNow()
    canned.send("broker-a", 0, b"too late")
    canned.addresses["broker-c"] = "broker-c:10911"
    canned.queues |= {("broker-c", i): type(canned.queues["broker-a", 0])() for i in (0, 1)}
    middle = found.latestOffset(ZERO, ReadMaxRows(3))
    end = found.latestOffset(middle, ReadMaxRows(3))
    assert end == {"orders": {**ZERO["orders"], "broker-a": {"0": 5, "1": 0}}}
    assert found.latestOffset(end, ReadMaxRows(3)) == end


def test_queues_of_a_new_broker_are_read_from_their_first_message(canned: Any) -> None:
    found = reader(canned)
    canned.addresses["broker-c"] = "broker-c:10911"
    canned.queues |= {("broker-c", i): type(canned.queues["broker-a", 0])() for i in (0, 1)}
    canned.send("broker-c", 1, b"one", b"two")
    end = found.latestOffset(ZERO, ALL)
    assert pieces(found, ZERO, end) == [Piece("orders", "broker-c", 1, 0, 2)]


def test_a_broker_that_is_gone_stops_the_query_unless_loss_is_allowed(canned: Any) -> None:
    canned.send("broker-b", 0, b"one")
    end = reader(canned).latestOffset(ZERO, ALL)
    del canned.addresses["broker-b"]
    with pytest.raises(DataLost, match="queue 0 of broker 'broker-b', read up to offset 1"):
        reader(canned).latestOffset(end, ALL)
    canned.send("broker-a", 0, b"two")
    found = reader(canned, failOnDataLoss="false")
    after = found.latestOffset(end, ALL)
    assert after == {"orders": {**end["orders"], "broker-a": {"0": 1, "1": 0}}}, (
        "its queues wait where they were"
    )
    assert pieces(found, end, after) == [Piece("orders", "broker-a", 0, 0, 1)]


def test_a_topic_made_anew_is_read_from_its_beginning_when_loss_is_allowed(canned: Any) -> None:
    canned.send("broker-a", 0, *[b"x"] * 9)
    end = reader(canned).latestOffset(ZERO, ALL)
    canned.queues["broker-a", 0].records.clear()
    canned.send("broker-a", 0, b"new")
    with pytest.raises(DataLost, match="ends at offset 1, but was read up to 9"):
        reader(canned).latestOffset(end, ALL)
    found = reader(canned, failOnDataLoss="false")
    after = found.latestOffset(end, ALL)
    assert pieces(found, end, after) == [Piece("orders", "broker-a", 0, 0, 1)]


def test_a_worker_reads_what_was_planned(canned: Any) -> None:
    canned.send("broker-a", 0, b"one")
    found = reader(canned)
    (task,) = found.partitions(ZERO, found.latestOffset(ZERO, ALL))
    (batch,) = found.read(task)
    assert batch.to_pydict() == {"body": [b"one"]}
