"""Visibility: the rows of a batch are recognized by their keys."""

import pyarrow as pa
import pytest
from tests.spark.sink.conftest import SinkCluster, write_rows

from roquet.lake.queue_offsets import QueueOffsets
from roquet.model.errors import ConnectFailed
from roquet.model.names import CHECK_MAX_TIME_TOPIC
from roquet.spark.cluster.cluster_client import ClusterClient, OffsetBounds
from roquet.spark.sink import visibility
from roquet.spark.sink.commit_records import PARTITION_SHIFT
from roquet.spark.sink.visibility import VisibilityReader, rows_of

MAP = pa.map_(pa.string(), pa.string())


def test_rows_of_other_batches_are_ignored() -> None:
    keys = [
        "q/1/0/5", "q/1/2/7", "q/11/0/1", "q/2/0/1", "p/1/0/1", "q/1/0", "q/1/0/x", "q/1/0/5/6",
        None,
    ]  # fmt: skip
    properties = pa.array([[("ROQUET_ROW", key)] if key else [("a", "b")] for key in keys], MAP)
    assert rows_of(properties, "q/1/").tolist() == [5, 2 << PARTITION_SHIFT | 7]
    assert rows_of(pa.array([], MAP), "q/1/").tolist() == []
    assert rows_of(pa.array([[], None], MAP), "q/1/").tolist() == []


def test_only_messages_stored_since_the_decision_are_read(sink_cluster: SinkCluster) -> None:
    options = sink_cluster.new_topic("watched")

    write_rows(options, 1, body=["x"] * 3)
    reader = VisibilityReader(options, ["watched"])
    ends = reader.ends(["broker-a", "broker-b"])
    assert set(ends) == {"watched", CHECK_MAX_TIME_TOPIC}
    write_rows(options, 1, body=["x"] * 2)
    write_rows(options, 2, body=["x"] * 2)
    rows = reader.since(ends, "q/1/")
    assert (sorted(rows.visible.tolist()), rows.discarded.tolist()) == ([0, 1], [])
    assert reader.since(rows.ends, "q/1/").visible.tolist() == []


def test_rows_that_a_master_hides_are_waited_for(
    sink_cluster: SinkCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are stored, but a replica is behind: each would be committed twice."""
    options = sink_cluster.new_topic("hidden")
    reader = VisibilityReader(options, ["hidden"])
    ends = reader.ends(["broker-a", "broker-b"])
    write_rows(options, 1, body=["x"] * 3)
    hidden, bounds = [True], ClusterClient.bounds

    def read_bounds(self: ClusterClient) -> OffsetBounds:
        found = bounds(self)
        none = QueueOffsets.fromkeys(found.latest, 0)
        return OffsetBounds(none, none) if hidden else found

    def wait(_cluster: ClusterClient, _broker: str) -> bool:
        hidden.clear()
        return True

    monkeypatch.setattr(ClusterClient, "bounds", read_bounds)
    monkeypatch.setattr(visibility, "wait_for_dispatch", wait)
    assert sorted(reader.since(ends, "q/1/").visible.tolist()) == [0, 1, 2]


def test_a_master_that_changes_while_rows_are_looked_for_is_asked_again(
    sink_cluster: SinkCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink_cluster.create("moving")
    reader = VisibilityReader(sink_cluster.options(), ["moving"])
    ends, waits, bounds = reader.ends(["broker-a"]), list[str](), ClusterClient.bounds

    def read_bounds(self: ClusterClient) -> OffsetBounds:
        found = bounds(self)
        if waits == ["broker-a", "broker-b"]:
            self._addresses["broker-b"] = "127.0.0.1:1"
        return found

    monkeypatch.setattr(ClusterClient, "bounds", read_bounds)
    monkeypatch.setattr(
        visibility, "wait_for_dispatch", lambda _cluster, broker: waits.append(broker)
    )
    reader.since(ends, "q/1/")
    assert waits[:4] == ["broker-a", "broker-b"] * 2


def test_a_missing_queue_is_not_taken_for_empty(sink_cluster: SinkCluster) -> None:
    sink_cluster.create("gone")
    reader = VisibilityReader(sink_cluster.options(timeout_ms=0), ["gone"])
    ends = reader.ends(["broker-a"])
    ends["gone"]["broker-z"] = {"0": 0}
    with pytest.raises(ConnectFailed, match="queue 0 of broker 'broker-z' is not in the route"):
        reader.since(ends, "q/1/")


def test_a_topic_whose_broker_is_away_is_waited_for(sink_cluster: SinkCluster) -> None:
    reader = VisibilityReader(
        sink_cluster.options(), ["away"], pause=lambda _ms: sink_cluster.create("away")
    )
    assert set(reader.ends(["broker-a"])) == {"away", CHECK_MAX_TIME_TOPIC}
    with pytest.raises(ConnectFailed, match="topic 'not-there' is unknown"):
        VisibilityReader(sink_cluster.options(timeout_ms=0), ["not-there"]).since({}, "q/1/")


def test_a_queue_that_is_new_is_read_from_its_first_message(sink_cluster: SinkCluster) -> None:
    sink_cluster.create("grown")
    reader = VisibilityReader(sink_cluster.options(), ["grown"])
    ends = reader.ends(["broker-a"])
    del ends["grown"]["broker-b"]
    options = sink_cluster.options(topic="grown")
    write_rows(options, 1, body=["x"] * 4, order_key=["1", "2", "3", "4"])
    assert sorted(reader.since(ends, "q/1/").visible.tolist()) == [0, 1, 2, 3]


def test_a_queue_whose_end_was_lost_is_read_from_its_first_message(
    sink_cluster: SinkCluster,
) -> None:
    """Its rows were stored again, at the offsets of what was lost."""
    options = sink_cluster.new_topic("cut")
    reader = VisibilityReader(options, ["cut"])
    ends = reader.ends(["broker-a", "broker-b"])
    for broker in ("broker-a", "broker-b"):
        ends["cut"][broker] = {"0": 1_000, "1": 1_000}
        ends[CHECK_MAX_TIME_TOPIC][broker] = {"0": 1_000}
    write_rows(options, 1, body=["x"] * 3)
    assert sorted(reader.since(ends, "q/1/").visible.tolist()) == [0, 1, 2]
