"""A task sends all its rows: in batches, singly, in order, and to two topics."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.spark.sink.conftest import SinkCluster

from roquet.model.errors import CallRefused, MessageIllegal, UsageError
from roquet.spark.sink import delivery, task
from roquet.spark.sink.commit_records import from_bytes, refs_of
from roquet.spark.sink.delivery import DeliveredRequest
from roquet.spark.sink.options import SinkOptions
from roquet.spark.sink.row_encoder import PartitionOrigin
from roquet.spark.sink.task import send_partition, unique_key_maker

ORIGIN = PartitionOrigin("q", 0, 3)


def write(options: SinkOptions, *batches: dict[str, Any]) -> tuple[int, bytes]:
    made = [pa.RecordBatch.from_pydict(batch) for batch in batches]
    return send_partition(iter(made), options, made[0].schema.names, ORIGIN)


def test_rows_are_spread_over_all_queues_and_none_is_missing(sink_cluster: SinkCluster) -> None:
    bodies = [b"%05d" % at for at in range(3_000)]
    halves = {"body": bodies[:1_500]}, {"body": bodies[1_500:]}
    options = sink_cluster.new_topic("spread", batch_bytes=20_000)
    assert write(options, *halves) == (3_000, b"")
    table = sink_cluster.read("spread")
    assert sorted(table["body"].to_pylist()) == bodies
    used = set(zip(table["broker"].to_pylist(), table["queue_id"].to_pylist(), strict=True))
    assert len(used) == 4
    rows = [dict(pairs)["ROQUET_ROW"] for pairs in table["properties"].to_pylist()]
    assert sorted(rows) == sorted(f"q/0/3/{at}" for at in range(3_000))
    assert len({dict(pairs)["UNIQ_KEY"] for pairs in table["properties"].to_pylist()}) == 3_000


def test_a_topic_of_a_typing_error_is_not_made(
    sink_cluster: SinkCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "UNKNOWN_TOPIC_MS", 0)
    sink_cluster.create("orders-of-today")
    options = sink_cluster.options(topic="orders-of-tody")
    with pytest.raises(UsageError, match="did you mean 'orders-of-today'"):
        write(options, {"body": [b"1"]})
    with pytest.raises(UsageError, match="is unknown to"):
        sink_cluster.read("orders-of-tody")
    made = msgspec.structs.replace(options, creates_topics=True)
    assert write(made, {"body": [b"1"]})[0] == 1, "brokers make it when they are asked to"


def test_every_column_of_a_row_arrives(sink_cluster: SinkCluster) -> None:
    properties = pa.array([[("colour", "red")]], pa.map_(pa.string(), pa.string()))
    row = {"body": ["é"], "key": ["k"], "tag": ["t"], "flag": [7], "properties": properties}
    write(sink_cluster.new_topic("said"), row)
    (stored_row,) = sink_cluster.read("said").to_pylist()
    assert (stored_row["body"], stored_row["flag"]) == ("é".encode(), 7)
    expected = {"KEYS": "k", "TAGS": "t", "colour": "red", "ROQUET_ROW": "q/0/3/0"}
    assert expected.items() <= dict(stored_row["properties"]).items()


def test_rows_of_one_order_key_stay_in_their_order(sink_cluster: SinkCluster) -> None:
    sink_cluster.create("ordered", 3)
    count = 4_000
    columns = {
        "body": [b"%d" % at for at in range(count)],
        "order_key": [f"k{at % 17}" for at in range(count)],
    }
    batch = pa.RecordBatch.from_pydict(columns)
    batches = [batch.slice(at, 900) for at in range(0, count, 900)]
    send_partition(
        iter(batches),
        sink_cluster.options(topic="ordered", batch_bytes=3_000),
        batch.schema.names,
        ORIGIN,
    )
    lines: dict[str, list[tuple[str, int, int, int]]] = {}
    for row in sink_cluster.read("ordered").to_pylist():
        key = dict(row["properties"])["__SHARDINGKEY"]
        place = (row["broker"], row["queue_id"], row["queue_offset"], int(row["body"]))
        lines.setdefault(key, []).append(place)
    assert sum(map(len, lines.values())) == count
    for line in lines.values():
        assert len({place[:2] for place in line}) == 1
        numbers = [place[3] for place in sorted(line)]
        assert numbers == sorted(numbers)


def test_delayed_rows_wait_and_others_do_not(sink_cluster: SinkCluster) -> None:
    sink_cluster.create("later")
    delays = [None, 3_600, None]
    write(sink_cluster.options(topic="later"), {"body": ["a", "b", "c"], "delay": delays})
    assert sink_cluster.bodies("later") == [b"a", b"c"]
    write(sink_cluster.options(topic="later"), {"body": ["d"], "delay_level": [18]})
    assert sink_cluster.bodies("later") == [b"a", b"c"]
    at = pa.array([1_000_000], pa.timestamp("us", "UTC"))
    write(sink_cluster.options(topic="later"), {"body": ["past"], "deliver_at": at})
    assert sink_cluster.bodies("later") == [b"a", b"c", b"past"]


def test_topics_come_from_their_column(sink_cluster: SinkCluster) -> None:
    for topic in ("left", "right"):
        sink_cluster.create(topic)
    write(sink_cluster.options(), {"body": ["a", "b", "c"], "topic": ["left", "right", "left"]})
    assert (sink_cluster.bodies("left"), sink_cluster.bodies("right")) == ([b"a", b"c"], [b"b"])


def test_a_batch_with_a_wrong_row_is_not_sent_at_all(sink_cluster: SinkCluster) -> None:
    with pytest.raises(MessageIllegal, match="row 3 of partition 3 of batch 0 has no body"):
        write(sink_cluster.new_topic("wrong"), {"body": ["a", "b"]}, {"body": ["c", None]})
    assert sink_cluster.bodies("wrong") in ([b"a", b"b"], [])


def test_a_permanent_refusal_names_its_rows(sink_cluster: SinkCluster) -> None:
    body = b"x" * (4 * 1024 * 1024 + 1)
    options = sink_cluster.new_topic("small", body_bytes_max=8 * 1024 * 1024)
    with pytest.raises(CallRefused, match="this broker takes") as caught:
        write(options, {"body": [b"a", body]})
    (note,) = caught.value.__notes__
    assert "row 1 of this partition could not be sent" in note
    assert "if the broker's limits are lower, set maxMessageSize and batchBytes" in note


def test_half_messages_are_invisible_and_their_places_are_known(sink_cluster: SinkCluster) -> None:
    count, data = write(sink_cluster.new_topic("halves", transactional=True), {"body": ["a", "b"]})
    assert count == 2
    assert sink_cluster.bodies("halves") == []
    table = from_bytes(data)
    assert table["row"].to_pylist() == [0, 1]
    assert set(table["broker"].to_pylist()) <= {"broker-a", "broker-b"}


def test_a_task_remembers_the_places_of_its_half_messages_and_not_their_bodies(
    sink_cluster: SinkCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[DeliveredRequest] = []

    def seen(sent: Sequence[DeliveredRequest], partition: int) -> pa.Table:
        kept.extend(sent)
        return refs_of(sent, partition)

    monkeypatch.setattr(task, "refs_of", seen)
    write(sink_cluster.new_topic("lean", transactional=True), {"body": ["a" * 1000, "b" * 1000]})
    assert [(one.request.body, one.request.properties) for one in kept] == [(b"", None)] * 2


def test_a_task_without_rows_sends_nothing(sink_cluster: SinkCluster) -> None:
    names = ["body"]
    assert send_partition(iter([]), sink_cluster.options(topic="none"), names, ORIGIN) == (0, b"")
    assert (
        send_partition(
            iter([]), sink_cluster.options(topic="none", transactional=True), names, ORIGIN
        )[0]
        == 0
    )


def test_two_tasks_have_other_keys() -> None:
    assert not set(unique_key_maker()(0, 9).to_pylist()) & set(unique_key_maker()(0, 9).to_pylist())
