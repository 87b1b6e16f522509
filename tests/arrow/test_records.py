"""Record columns equal what `wire` decodes record by record."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.arrow.records import COLUMNS, SCHEMA, RecordColumns
from roquet.model.errors import RecordError
from roquet.model.message import StoredMessage
from roquet.wire.records import record
from roquet.wire.records.compression import Compression, compress, with_compression
from roquet.wire.records.property_text import encode_properties

pytestmark = pytest.mark.usefixtures("form")

VECTORS = Path(__file__).parents[1] / "vectors" / "records.jsonl"
LINES = [json.loads(line) for line in VECTORS.read_text().splitlines()]
GENUINE = [
    bytes.fromhex(line["in"]["record"])
    for line in LINES
    if line["in"]["op"] == "decode" and line["in"]["decompress"] and line["out"]
]
ALL = tuple(SCHEMA.names)
PLAIN = ALL[: ALL.index("message_type")]
"""Columns stored in the record; `message_types` derives the others."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

hosts = st.sampled_from([8, 20]).flatmap(lambda size: st.binary(min_size=size, max_size=size))
longs = st.integers(-(2**63), 2**63 - 1)
ints = st.integers(-(2**31), 2**31 - 1)
times = st.one_of(longs, st.integers(0, 2_000_000_000_000))
words = st.text(st.characters(codec="utf-8", exclude_characters="\x00\x01\x02"), min_size=1)
texts = st.dictionaries(
    st.one_of(st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY"]), words), words, max_size=4
).map(encode_properties)


@st.composite
def packed(draw: st.DrawFn) -> bytes:
    born, store = draw(hosts), draw(hosts)
    sys_flag = 16 * (len(born) == 20) | 32 * (len(store) == 20)
    body = draw(st.binary(max_size=40))
    kind = draw(st.sampled_from([None, *Compression]))
    if kind:
        body, sys_flag = compress(body, kind), with_compression(sys_flag, kind)
    topic = draw(st.sampled_from([b"orders", b"t" * 127, b"t" * 128, b"t" * 300]))
    return record.pack(
        draw(ints), draw(ints), draw(longs), draw(longs), sys_flag, draw(times), born,
        draw(times), store, draw(ints), draw(longs), body, topic, draw(texts),
    )  # fmt: skip


def moment(ms: int) -> datetime | None:
    try:
        return EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return None


def row(message: StoredMessage) -> dict[str, Any]:
    keys = message.properties.get("KEYS")
    return {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "message_id": message.message_id,
        "key": message.key,
        "tag": message.tag,
        "body": message.body,
        "properties": sorted(message.properties.items()),
        "born_at": moment(message.born_ms),
        "stored_at": moment(message.stored_ms),
        "keys": keys,
        "offset_message_id": message.offset_message_id,
        "position": message.position,
        "size": message.size,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "reconsume_times": message.reconsume_times,
    }


def rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    rows = batch.to_pylist()
    for each in rows:
        each["properties"] = sorted(each["properties"])
    return rows  # type: ignore[no-any-return]


def assert_equals_wire(block: bytes) -> None:
    expected = [row(record.to_message(r, broker="b")) for r in record.decode_many(block)]
    assert rows(RecordColumns.of(block, broker="b").batch(PLAIN)) == expected


def test_genuine_records_of_every_shape_in_one_block() -> None:
    assert_equals_wire(b"".join(GENUINE))


@given(st.lists(packed(), max_size=6))
def test_any_records_become_the_rows_that_the_loop_makes(records: list[bytes]) -> None:
    assert_equals_wire(b"".join(records))


@settings(max_examples=25)
@given(st.lists(packed(), max_size=6))
def test_a_property_is_the_same_with_and_without_the_others(records: list[bytes]) -> None:
    block = b"".join(records)
    together = RecordColumns.of(block).batch(["properties", "key", "tag"])
    for name in ("key", "tag"):
        alone = RecordColumns.of(block).batch([name])
        assert alone.column(name).equals(together.column(name))


def test_properties_are_not_parsed_for_one_that_no_record_has() -> None:
    text = encode_properties({"UNIQ_KEY": "1", "a": "KEYS"})
    host = bytes(8)
    block = record.pack(0, 0, 0, 0, 0, 0, host, 0, host, 0, 0, b"", b"orders", text)
    records = RecordColumns.of(block)
    assert records.batch(["key"]).to_pylist() == [{"key": None}]
    assert "properties" not in vars(records)
    assert records.property("a").to_pylist() == ["KEYS"]


def test_an_empty_block_is_an_empty_batch() -> None:
    batch = RecordColumns.of(b"").batch(ALL)
    assert (batch.num_rows, batch.schema) == (0, SCHEMA)


def test_columns_are_the_requested_ones_in_their_order() -> None:
    batch = RecordColumns.of(GENUINE[0]).batch(["body", "queue_offset"])
    assert batch.schema.names == ["body", "queue_offset"]
    assert RecordColumns.of(GENUINE[0]).batch().schema.names == list(COLUMNS)


def test_spark_accepts_the_types() -> None:
    batch = RecordColumns.of(GENUINE[0]).batch(ALL)
    assert batch.schema == SCHEMA
    for field in SCHEMA:
        assert field.nullable
        assert field.type in {
            pa.string(), pa.binary(), pa.int32(), pa.int64(), pa.timestamp("us", "UTC"),
            pa.map_(pa.string(), pa.string()),
        }  # fmt: skip


def test_a_part_of_the_rows() -> None:
    records = RecordColumns.of(b"".join(GENUINE[:4]), broker="b").between(1, 3)
    expected = [record.decode(raw).queue_offset for raw in GENUINE[1:3]]
    assert records.queue_offsets.tolist() == expected
    assert rows(records.batch(ALL))[0]["broker"] == "b"


def test_compressed_bodies_stay_compressed_on_request() -> None:
    squeezed = compress(b"body" * 9)
    raw = squeezed_record(squeezed)
    assert RecordColumns.of(raw).batch(["body"])["body"].to_pylist() == [b"body" * 9]
    assert RecordColumns.of(raw, restore=False).batch(["body"])["body"].to_pylist() == [squeezed]


def test_a_body_that_cannot_be_restored_is_named() -> None:
    with pytest.raises(RecordError, match="queue 3 offset 77 of broker 'b': body is not zlib"):
        RecordColumns.of(squeezed_record(b"nonsense"), broker="b").batch(["body"])


def test_bodies_that_cannot_be_restored_are_listed() -> None:
    packed = [squeezed_record(body) for body in (compress(b"one"), b"two", compress(b"three"))]
    records = RecordColumns.of(b"".join(packed))
    ((row, why),) = records.unreadable()
    assert row == 1
    assert why.startswith("queue 3 offset 77: body is not zlib")
    assert bytes(records.raw(row)) == packed[1]
    assert not list(RecordColumns.of(b"".join(packed), restore=False).unreadable())
    bodies = records.keeping_unreadable().batch(["body"])["body"].to_pylist()
    assert bodies == [b"one", b"two", b"three"]


def squeezed_record(body: bytes) -> bytes:
    return record.pack(3, 0, 77, 0, 1, 0, bytes(8), 0, bytes(8), 0, 0, body, b"t", b"")


def test_places_and_picked_rows() -> None:
    packed = [
        record.pack(queue, 0, offset, position, 0, 0, bytes(8), 0, bytes(8), 0, 0, b"%d" % offset,
                    b"t", b"")
        for queue, offset, position in ((1, 5, 100), (2, 9, 200), (1, 6, 300))
    ]  # fmt: skip
    columns = RecordColumns.of(b"".join(packed), broker="b")
    assert columns.queue_ids.tolist() == [1, 2, 1]
    assert columns.queue_offsets.tolist() == [5, 9, 6]
    assert columns.positions.tolist() == [100, 200, 300]
    picked = columns.where(np.array([True, False, True])).batch(("broker", "body"))
    assert picked.to_pydict() == {"broker": ["b", "b"], "body": [b"5", b"6"]}


@pytest.mark.parametrize(("position", "is_contiguous"), [(1, True), (0, False), (2**40, False)])
def test_a_run_is_made_of_records_that_know_where_they_lie(
    position: int, is_contiguous: bool
) -> None:
    def one(at: int) -> bytes:
        return record.pack(0, 0, 0, at, 0, 0, bytes(8), 0, bytes(8), 0, 0, b"b", b"t", b"")

    size = len(one(0))
    columns = RecordColumns.of(one(7000) + one(7000 + position * size) + one(7000 + 2 * size))
    assert columns.is_contiguous is is_contiguous
    assert RecordColumns.of(b"").is_contiguous


def test_offsets_and_positions_are_available_without_columns() -> None:
    block = b"".join(GENUINE)
    messages = [record.to_message(r, broker="b") for r in record.decode_many(block)]
    records = RecordColumns.of(block)
    assert records.stored_ms.tolist() == [message.stored_ms for message in messages]
    assert records.sys_flags.tolist() == [message.sys_flag for message in messages]


def test_the_first_key_ends_at_u_0020_alone() -> None:
    host = bytes(8)
    texts = ["lot\u3000A b", "lot\tA", "\xa0lot", "  x  y", " "]
    block = b"".join(
        record.pack(
            0, 0, 0, 0, 0, 0, host, 0, host, 0, 0, b"", b"orders", encode_properties({"KEYS": keys})
        )
        for keys in texts
    )
    keys = RecordColumns.of(block).batch(["key"]).column("key").to_pylist()
    assert keys == ["lot\u3000A", "lot\tA", "\xa0lot", "x", None]


def test_properties_that_are_not_utf_8_are_the_same_in_columns_and_in_messages() -> None:
    host, text = (
        bytes(8),
        "UNIQ_KEY\x01k\x02TAGS\x01标签\x02KEYS\x01标签 k\x02标\x01签\x02".encode("gbk"),
    )
    gbk = record.pack(0, 0, 0, 0, 0, 0, host, 0, host, 0, 0, b"", b"orders", text)
    assert_equals_wire(gbk + GENUINE[0] + gbk)
