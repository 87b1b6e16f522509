"""Row encoder: rows are numbered, checked before sending, and assigned to topics and queues."""

from typing import Any

import pyarrow as pa
import pytest

from roquet.model.errors import MessageIllegal
from roquet.model.queue import MessageQueue
from roquet.spark.sink.options import SinkOptions
from roquet.spark.sink.property_columns import unique_keys
from roquet.spark.sink.row_encoder import PartitionOrigin, RowEncoder
from roquet.spark.sink.send_requests import TopicRows
from roquet.wire.java_hash import hash_code
from roquet.wire.records.property_text import decode_properties

pytestmark = pytest.mark.usefixtures("form")

QUEUES = [MessageQueue("orders", "broker-a", queue_id) for queue_id in range(3)]


class PartitionEncoder:
    def __init__(self, **options: Any) -> None:
        self._options = SinkOptions(**{"namesrv": ("a:1",), "topic": "orders", **options})
        self._encoder: RowEncoder | None = None

    def __call__(self, **columns: Any) -> list[TopicRows]:
        batch = pa.RecordBatch.from_pydict(columns)
        if self._encoder is None:
            keys = unique_keys(b"\x7f\0\0\1", 1, 1, 0)
            origin = PartitionOrigin("q", 4, 2)
            self._encoder = RowEncoder(
                self._options, batch.schema.names, origin, keys, lambda _: QUEUES
            )
        return list(self._encoder.rows(batch))


def properties(rows: TopicRows) -> list[dict[str, str]]:
    return [decode_properties(text) for text in rows.texts.to_pylist()]


def test_rows_are_numbered_through_their_partition() -> None:
    shape = PartitionEncoder()
    (first,) = shape(body=["a", "b"])
    (second,) = shape(body=[b"c".decode()])
    assert (first.topic, first.numbers.tolist(), second.numbers.tolist()) == ("orders", [0, 1], [2])
    assert [one["ROQUET_ROW"] for one in properties(first) + properties(second)] == [
        "q/4/2/0", "q/4/2/1", "q/4/2/2",
    ]  # fmt: skip
    assert first.bodies.to_pylist() == [b"a", b"b"]
    assert shape(body=[]) == []


def test_the_topic_may_be_a_column_and_an_option_goes_before_it() -> None:
    columns = {"body": ["a", "b", "c"], "topic": ["x", "y", "x"], "flag": [1, None, 3]}
    x, y = PartitionEncoder(topic=None)(**columns)
    assert (x.topic, x.numbers.tolist(), x.flags.tolist()) == ("x", [0, 2], [1, 3])
    assert (y.topic, y.numbers.tolist(), y.bodies.to_pylist()) == ("y", [1], [b"b"])
    (all_,) = PartitionEncoder()(**columns)
    assert all_.topic == "orders"


def test_an_order_key_selects_the_queue_as_java_does() -> None:
    keys = ["k1", "k2", "k1", "é"]
    (rows,) = PartitionEncoder()(body=["a"] * 4, order_key=keys)
    assert rows.places is not None
    assert rows.places.tolist() == [abs(hash_code(key)) % 3 for key in keys]
    by_topic = PartitionEncoder(topic=None)(
        body=["a"] * 3, order_key=keys[:3], topic=["x", "y", "y"]
    )
    assert [part.places.tolist() for part in by_topic if part.places is not None] == [
        [abs(hash_code("k1")) % 3], [abs(hash_code("k2")) % 3, abs(hash_code("k1")) % 3],
    ]  # fmt: skip


def test_delays_are_kept_apart_from_the_property_text() -> None:
    (rows,) = PartitionEncoder()(body=["a", "b", "c"], delay_level=[None, 0, 3])
    assert rows.later is not None
    assert rows.later.to_pylist() == [None, None, "DELAY\x013\x02"]
    (rows,) = PartitionEncoder()(body=["a"], delay_level=[0])
    assert rows.later is None


def test_half_messages_have_the_property_of_a_transaction() -> None:
    (rows,) = PartitionEncoder(transactional=True)(body=["a"])
    assert properties(rows)[0]["TRAN_MSG"] == "true"


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"body": ["a", None]}, "row 1 of partition 2 of batch 4 has no body"),
        ({"body": ["", "a"]}, "row 0 .* empty body"),
        ({"body": ["a", "x" * 21]}, "row 1 .* a body of 21 bytes, over the limit of 20"),
        ({"body": ["a", "b"], "order_key": ["k", None]}, "row 1 .* no order key"),
        ({"body": ["a", "b"], "order_key": ["k", ""]}, "row 1 .* no order key"),
        ({"body": ["a", "b"], "topic": ["k", None]}, "row 1 .* has no topic"),
        ({"body": ["a", "b"], "topic": ["k", "a b"]}, "row 1 .* an illegal topic: .*'a b'"),
        ({"body": ["a"], "topic": ["RMQ_SYS_TRANS_HALF_TOPIC"]}, "row 0 .* the broker's own"),
        ({"body": ["a", "b"], "delay": [1, -1]}, "row 1 .* a delay before now"),
        ({"body": ["a", "b"], "delay": [1.0, float("nan")]}, "row 1 .* delay that is not finite"),
        ({"body": ["a"], "delay": [float("inf")]}, "row 0 .* delay that is not finite"),
        ({"body": ["a"], "delay": [2**62]}, "row 0 .* delay that is not finite"),
        ({"body": ["a"], "delay": [1], "delay_level": [1]}, "row 0 .* two delays"),
        ({"body": ["a", "b"], "tag": ["", "x" * 33_000]}, "row 1 .* properties of 33.* 32767 fit"),
        ({"body": ["a"], "tag": ["\x02"]}, "row 0 of partition 2 of batch 4: .* separate"),
        ({"body": ["a"] * 9, "tag": ["t"] * 6 + ["\x01"] * 3}, "row 6 .* separate properties"),
    ],
)
def test_a_wrong_row_is_named(columns: dict[str, list[Any]], error: str) -> None:
    topic = None if "topic" in columns else "orders"
    with pytest.raises(MessageIllegal, match=error):
        PartitionEncoder(topic=topic, body_bytes_max=20)(**columns)


def test_the_number_of_a_wrong_row_counts_earlier_batches() -> None:
    shape = PartitionEncoder()
    shape(body=["a"] * 10)
    with pytest.raises(MessageIllegal, match="row 11 "):
        shape(body=["a", None])
