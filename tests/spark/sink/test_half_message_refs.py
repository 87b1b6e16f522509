"""References to half messages survive serialization between task, driver and disk."""

import pyarrow as pa
import pytest

from roquet.model.errors import RecordError
from roquet.model.queue import MessageQueue
from roquet.spark.sink.delivery import DeliveredRequest
from roquet.spark.sink.half_message_refs import (
    SCHEMA,
    concat,
    from_bytes,
    refs_of,
    row_codes,
    to_bytes,
)
from roquet.spark.sink.send_requests import SendRequest
from roquet.wire.calls.send import SendReply
from roquet.wire.records.message_id import offset_message_id


def half_message_ref(row: int, *, ordered: bool = False) -> DeliveredRequest:
    queue = MessageQueue("orders", "broker-a", 3) if ordered else None
    request = SendRequest("orders", row, 1, b"x", queue, "")
    place = offset_message_id(b"\x7f\0\0\1\0\0\x2a\x9f", 1_000 + row)
    reply = SendReply(msg_id=place, queue_id=3, queue_offset=50 + row, transaction_id=f"U{row}")
    return DeliveredRequest(request, "broker-a", reply)


def test_references_are_kept_in_the_order_of_the_rows() -> None:
    table = refs_of([half_message_ref(2), half_message_ref(0, ordered=True)], 7)
    assert table.to_pylist() == [
        {"partition": 7, "row": 0, "topic": "orders", "broker": "broker-a", "queue_id": 3,
         "half_offset": 50, "position": 1_000, "unique_key": "U0", "ordered": True},
        {"partition": 7, "row": 2, "topic": "orders", "broker": "broker-a", "queue_id": 3,
         "half_offset": 52, "position": 1_002, "unique_key": "U2", "ordered": False},
    ]  # fmt: skip


def test_a_table_survives_its_bytes() -> None:
    table = refs_of([half_message_ref(row) for row in range(5_000)], 1)
    data = to_bytes(table)
    assert from_bytes(data).equals(table)
    assert len(data) < 20 * 5_000
    with pytest.raises(RecordError, match="no table of half messages"):
        from_bytes(b"nonsense")


def test_partitions_are_put_together() -> None:
    assert concat([]).schema == SCHEMA
    both = concat(
        [refs_of([half_message_ref(0)], 0), refs_of([half_message_ref(0), half_message_ref(1)], 1)]
    )
    assert both["partition"].to_pylist() == [0, 1, 1]


def test_each_row_of_a_batch_has_a_number_of_its_own() -> None:
    partitions, rows = [0, 0, 1, 1, 2], [0, 1, 0, 2**39, 5]
    codes = row_codes(pa.array(partitions, pa.int32()), pa.array(rows))
    assert len(set(codes.tolist())) == 5
