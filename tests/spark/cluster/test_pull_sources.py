"""Pulls of a task go to replicas for what these have, and else to the master."""

import logging
from typing import Any

import msgspec
import pytest
from tests.spark.conftest import CannedCluster, CannedReplica, PausedClock

from roquet.lake.queue_offsets import OffsetRange
from roquet.model.errors import CallRefused, CallTimeout, ConnectFailed, ConnectionLost
from roquet.rules.replication.read_from import AVOID_MS, ReadFrom
from roquet.spark.cluster import pull_sources, range_reader
from roquet.spark.cluster.cluster_client import ClusterClient, DataLost
from roquet.spark.cluster.range_reader import RangeReader
from roquet.spark.options import SourceOptions, parse
from roquet.spark.source.batch import BatchReader
from roquet.spark.source.stream import StreamReader
from roquet.spark.source.tasks import read_task
from roquet.wire.calls.offset import MaxOffset
from roquet.wire.codes import ResponseCode

OPTIONS = {"topic": "orders", "readFrom": "replica", "timeout": "1ms"}
ALL = OffsetRange("orders", "broker-a", 0, 0, 100)


@pytest.fixture
def copy(canned: CannedCluster, monkeypatch: pytest.MonkeyPatch) -> CannedReplica:
    """A replica with the first half of its master's messages."""
    for broker, queue_id in canned.queues:
        canned.send(broker, queue_id, *(b"body %d" % at for at in range(100)))
    replica = canned.add_replica("broker-a")
    replica.copy("broker-a", 50)
    monkeypatch.setattr(range_reader, "BATCH_BYTES", 1000)
    return replica


def options(canned: CannedCluster, **changes: Any) -> SourceOptions:
    settings = parse({"namesrv": canned.namesrv, **OPTIONS}, {})
    return msgspec.structs.replace(settings, **changes)


def routed(canned: CannedCluster, **changes: Any) -> ClusterClient:
    cluster = ClusterClient(options(canned, **changes), pause=lambda ms: None)
    cluster.route("orders")
    return cluster


def offsets(canned: CannedCluster, *ranges: OffsetRange, **changes: Any) -> list[int]:
    cluster = routed(canned, **changes)
    batches = RangeReader(cluster, ("queue_offset", "body")).batches(ranges or [ALL])
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert all(row["body"] == b"body %d" % row["queue_offset"] for row in rows)
    return [row["queue_offset"] for row in rows]


def test_a_range_is_read_from_a_replica_while_it_has_messages_and_then_from_the_master(
    copy: CannedReplica,
) -> None:
    assert offsets(copy.cluster) == list(range(100))
    assert max(call.queue_offset for call in copy.calls) == 50
    assert min(call.queue_offset for call in copy.cluster.pulls()) == 50


def test_the_next_pull_is_sent_ahead_to_the_broker_that_will_answer_it(copy: CannedReplica) -> None:
    offsets(copy.cluster)
    assert {call.queue_offset < 50 for call in copy.asked_ahead[:-1]} == {True}
    assert {call.queue_offset > 50 for call in copy.cluster.asked_ahead} == {True}


def test_by_default_replicas_are_not_asked(copy: CannedReplica) -> None:
    assert offsets(copy.cluster, read_from=ReadFrom.MASTER) == list(range(100))
    assert not copy.calls


@pytest.mark.parametrize(
    "failure",
    [
        ConnectFailed("away"),
        ConnectionLost("gone"),
        CallTimeout("frozen"),
        CallRefused(ResponseCode.TOPIC_NOT_EXIST, "not copied yet"),
        CallRefused(ResponseCode.SYSTEM_ERROR, "not now"),
    ],
    ids=lambda each: str(each),
)
def test_a_failing_replica_is_replaced_by_the_master_within_the_task(
    copy: CannedReplica, failure: Any
) -> None:
    copy.failures.append(failure)
    assert offsets(copy.cluster) == list(range(100))
    assert len(copy.calls) == 1


def test_a_replica_that_cannot_be_reached_is_not_asked_about_other_queues(
    copy: CannedReplica,
) -> None:
    copy.failures.append(ConnectFailed("away"))
    other = OffsetRange("orders", "broker-a", 1, 0, 100)
    assert sorted(offsets(copy.cluster, ALL, other)) == sorted([*range(100), *range(100)])
    assert len(copy.calls) == 1


def test_a_replica_without_old_messages_makes_nobody_skip_them(copy: CannedReplica) -> None:
    queue = copy.queues[0]
    queue.forget(20)
    copy.empty_code = ResponseCode.PULL_OFFSET_MOVED
    assert offsets(copy.cluster) == list(range(100))


def test_a_replica_that_caught_up_is_asked_again(
    copy: CannedReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = PausedClock()
    monkeypatch.setattr(pull_sources, "SYSTEM_CLOCK", clock)
    cluster = routed(copy.cluster)
    reader = RangeReader(cluster, ("queue_offset",))
    copy.cluster.pull_max = 10
    batches = reader.batches([ALL])
    seen = [row["queue_offset"] for row in next(batches).to_pylist()]
    while seen[-1] < 60:
        seen += [row["queue_offset"] for row in next(batches).to_pylist()]
    copy.copy("broker-a", 100)
    clock.ms += AVOID_MS
    seen += [row["queue_offset"] for batch in batches for row in batch.to_pylist()]
    assert seen == list(range(100))
    assert max(call.queue_offset for call in copy.calls) > 60


@pytest.mark.parametrize("damage", ["gap", "bytes"])
def test_damaged_messages_of_a_replica_are_read_from_the_master(
    copy: CannedReplica, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    records = copy.queues[0].records
    if damage == "gap":
        del records[7]
    else:
        records[7] = records[7][:-30] + bytes(30)
    with caplog.at_level(logging.WARNING):
        assert offsets(copy.cluster) == list(range(100))
    assert "broker-a-copy:10911 are damaged; the master is read" in caplog.text


def test_messages_that_the_master_lacks_too_are_reported_once(
    copy: CannedReplica, caplog: pytest.LogCaptureFixture
) -> None:
    del copy.cluster.queues["broker-a", 0].records[7]
    del copy.queues[0].records[7]
    first = OffsetRange("orders", "broker-a", 0, 0, 30)
    with pytest.raises(DataLost, match="lacks 1 of its messages: offsets 7;"):
        offsets(copy.cluster, first)
    with caplog.at_level(logging.WARNING):
        found = offsets(copy.cluster, first, fail_on_data_loss=False)
    assert found == [at for at in range(30) if at != 7]
    assert caplog.text.count("lacks 1 of its messages") == 1


def test_filtered_messages_of_a_replica_are_passed(copy: CannedReplica) -> None:
    assert offsets(copy.cluster, tags=("none",)) == []
    assert copy.calls


def test_a_batch_ends_where_the_master_says_although_tasks_read_replicas(
    copy: CannedReplica,
) -> None:
    settings = options(copy.cluster, max_partitions=1)
    batch = BatchReader(settings, ("queue_offset",))
    (task,) = batch.partitions()
    rows = sum(part.num_rows for part in read_task(settings, ("queue_offset",), task))
    assert rows == 400
    assert copy.calls


def test_tasks_of_a_stream_know_the_replicas(copy: CannedReplica) -> None:
    stream = StreamReader(options(copy.cluster), ("queue_offset",), pause=lambda ms: None)
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    tasks: Any = stream.partitions(start, end)
    assert {task.replicas["broker-a"][1] for task in tasks} == {copy.address}
    assert sum(batch.num_rows for task in tasks for batch in stream.read(task)) == 400


def test_replicas_are_asked_for_messages_alone(copy: CannedReplica) -> None:
    cluster = routed(copy.cluster)
    assert cluster.ask("broker-a", MaxOffset(topic="orders", queue_id=0)).offset == 100
    assert not copy.calls
