"""A topic with the original messages of a table is recognized by the messages."""

from typing import Any

import pyarrow as pa
import pytest
from tests.spark.jobs.conftest import ArchivedTopic

from roquet.lake.snapshot import read_snapshot
from roquet.spark.jobs.replay.archive_scan import RowFilter, scan_files
from roquet.spark.jobs.replay.origin_check import (
    is_original,
    may_hold_originals,
    queue_with_originals,
)

MAP = pa.map_(pa.string(), pa.string())


def row(body: bytes = b"a", message_id: str | None = "1", **message: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "broker": ["broker-a"],
            "queue_id": [0],
            "queue_offset": [5],
            "body": [body],
            "message_id": [message_id],
            "properties": pa.array([list(message.items())], MAP),
        }
    )


@pytest.mark.parametrize(
    ("rows", "is_it"),
    [
        (row(), True),
        (row(b"b"), False),
        (row(message_id="2"), False),
        (row(ROQUET_FROM="orders/broker-a/0/5"), False),
        (row(ROQUET_FROM="orders/broker-a/0/4"), True),
    ],
)
def test_a_message_is_recognized_by_its_content_and_not_by_its_offset(
    rows: pa.RecordBatch, is_it: bool
) -> None:
    assert is_original(row(), rows, "orders") is is_it


def test_a_table_without_ids_is_compared_by_bodies() -> None:
    assert is_original(row().drop_columns(["message_id"]), row(message_id="2"), "orders")


def queue_of(archived_topic: ArchivedTopic, topic: str) -> Any:
    """The queue that is found in a topic for the whole of an archive."""
    cluster = archived_topic.cluster(topic)
    snapshot = read_snapshot(str(archived_topic.root))
    wanted = scan_files(snapshot.paths, snapshot.topic, RowFilter(), {})
    return queue_with_originals(cluster, cluster.bounds(), wanted, RowFilter(), {})


def test_only_the_topic_itself_holds_them(archived_topic: ArchivedTopic) -> None:
    archived_topic.topic.send(3)
    archived_topic.archive()
    assert queue_of(archived_topic, "orders") == ("orders", "broker-a", 0)
    assert queue_of(archived_topic, archived_topic.again) is None


def test_a_recreated_topic_holds_none_of_the_originals(archived_topic: ArchivedTopic) -> None:
    archived_topic.topic.send(3)
    archived_topic.archive()
    snapshot = read_snapshot(str(archived_topic.root))
    queue_rows, *_ = scan_files(snapshot.paths, snapshot.topic, RowFilter(), {})
    assert may_hold_originals(archived_topic.cluster("orders").bounds(), queue_rows, snapshot)
    archived_topic.topic.recreate()
    archived_topic.topic.send(3)
    assert not may_hold_originals(archived_topic.cluster("orders").bounds(), queue_rows, snapshot)
