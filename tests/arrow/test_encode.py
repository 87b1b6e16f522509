"""Batch bodies made from columns equal what `wire` encodes message by message."""

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.arrow.encode import (
    batch_bodies,
    batch_body,
    encode,
    join_properties,
    property_texts,
    split_evenly,
)
from roquet.model.errors import MessageIllegal
from roquet.wire.records import speedups
from roquet.wire.records.batch import BatchItem, decode_batch, encode_batch
from roquet.wire.records.property_text import decode_properties, encode_properties

pytestmark = pytest.mark.usefixtures("form")
needs_compiled = pytest.mark.skipif(
    not speedups.COMPILED, reason="needs the compiled forms: make install"
)

words = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=6)
maybe = st.one_of(st.none(), words)
SCHEMA = pa.schema(
    {
        "body": pa.binary(),
        "key": pa.string(),
        "tag": pa.string(),
        "message_id": pa.string(),
        "row": pa.string(),
        "order_key": pa.string(),
        "flag": pa.int32(),
        "properties": pa.map_(pa.string(), pa.string()),
    }
)
rows = st.fixed_dictionaries(
    {
        "body": st.one_of(st.none(), st.binary(max_size=20)),
        "key": maybe,
        "tag": maybe,
        "message_id": maybe,
        "row": maybe,
        "order_key": maybe,
        "flag": st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
        "properties": st.one_of(
            st.none(), st.dictionaries(st.one_of(words, st.just("KEYS")), words, max_size=3)
        ),
    }
)


def batch_of(given_rows: list[dict[str, Any]]) -> pa.RecordBatch:
    columns = {name: [row[name] for row in given_rows] for name in SCHEMA.names}
    columns["properties"] = [p if p is None else list(p.items()) for p in columns["properties"]]
    return pa.RecordBatch.from_pydict(columns, SCHEMA)


def item(row: dict[str, Any]) -> BatchItem:
    properties = {
        "UNIQ_KEY": row["message_id"], "ROQUET_ROW": row["row"], "KEYS": row["key"],
        "TAGS": row["tag"], "__SHARDINGKEY": row["order_key"],
    }  # fmt: skip
    expected = {name: value for name, value in properties.items() if value}
    expected |= {k: v for k, v in (row["properties"] or {}).items() if k not in properties}
    return BatchItem(row["flag"] or 0, row["body"] or b"", encode_properties(expected))


@given(st.lists(rows, max_size=6), st.integers(0, 2))
def test_any_batch_is_encoded_as_the_loop_does(given_rows: list[dict[str, Any]], skip: int) -> None:
    items = encode(batch_of(given_rows).slice(skip))
    assert b"".join(items.to_pylist()) == encode_batch(item(row) for row in given_rows[skip:])


def test_bodies_alone_are_enough() -> None:
    batch = pa.RecordBatch.from_pydict({"body": [b"one", b"two"]})
    (body,) = batch_bodies(encode(batch), 1000)
    assert [i.body for i in decode_batch(body)] == [b"one", b"two"]
    assert property_texts(batch).to_pylist() == [b"", b""]


def test_a_body_may_be_text() -> None:
    (body,) = batch_bodies(encode(pa.RecordBatch.from_pydict({"body": ["één"]})), 1000)
    assert [i.body for i in decode_batch(body)] == ["één".encode()]


def test_several_keys_go_before_a_single_key() -> None:
    batch = pa.RecordBatch.from_pydict({"body": [b""], "key": ["a"], "keys": ["a b"]})
    assert decode_properties(property_texts(batch)[0].as_py()) == {"KEYS": "a b"}


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(62, 200))
def test_bodies_fill_up_to_the_limit_in_order(bodies: list[bytes], size_max: int) -> None:
    items = encode(pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())}))
    made = list(batch_bodies(items, size_max))
    assert all(len(body) <= size_max for body in made)
    assert [i.body for body in made for i in decode_batch(body)] == bodies
    for first, second in itertools.pairwise(made):
        assert len(first) + int.from_bytes(second[:4], "big") > size_max


def test_a_message_over_the_limit_is_named() -> None:
    items = encode(pa.RecordBatch.from_pydict({"body": [b"", bytes(100)]}))
    with pytest.raises(MessageIllegal, match="row 1 makes a message of 122 bytes"):
        list(batch_bodies(items, 50))


@pytest.mark.parametrize("value", ["a\x01b", "a\x02b"])
def test_a_separator_in_a_value_is_refused(value: str) -> None:
    with pytest.raises(MessageIllegal, match="separate"):
        encode(pa.RecordBatch.from_pydict({"body": [b""], "tag": [value]}))


def test_properties_over_the_limit_are_refused() -> None:
    with pytest.raises(MessageIllegal, match="32767 fit"):
        encode(pa.RecordBatch.from_pydict({"body": [b""], "tag": ["x" * 32_767]}))


@given(st.lists(st.integers(1, 500), max_size=40), st.integers(50, 400), st.integers(1, 9))
def test_cuts_are_within_both_limits_and_about_even(
    sizes: list[int], size_max: int, count_max: int
) -> None:
    made = list(split_evenly(np.array(sizes, np.int64), size_max, count_max))
    assert [at for first, last in made for at in range(first, last)] == list(range(len(sizes)))
    for first, last in made:
        assert last - first == 1 or sum(sizes[first:last]) <= size_max
        assert last - first <= count_max


def test_rows_slightly_over_the_limit_are_cut_in_halves() -> None:
    assert list(split_evenly(np.full(12, 10), 100, 1_000)) == [(0, 6), (6, 12)]


BINARY = pa.binary()
batch_rows = st.lists(
    st.tuples(st.binary(max_size=20), st.binary(max_size=20), st.integers(-(2**31), 2**31 - 1)),
    max_size=8,
)


@given(batch_rows, st.integers(0, 2), st.data())
def test_a_batch_has_the_chosen_rows_in_the_chosen_order(
    given_rows: list[tuple[bytes, bytes, int]], skip: int, data: st.DataObject
) -> None:
    bodies, texts = (pa.array([row[at] for row in given_rows], BINARY)[skip:] for at in (0, 1))
    flags = np.array([row[2] for row in given_rows], np.int32)[skip:]
    sliced = given_rows[skip:]
    every = list(range(len(sliced)))
    any_order = st.lists(st.sampled_from(every), max_size=8) if every else st.just(every)
    chosen = data.draw(st.one_of(st.just(every), any_order))
    body = batch_body(bodies, texts, flags, np.array(chosen, np.int64))
    items = [BatchItem(sliced[at][2], sliced[at][0], sliced[at][1]) for at in chosen]
    assert body == encode_batch(items)


def test_a_large_body_is_encoded_as_it_is() -> None:
    bodies = [bytes(4 << 20), b"\x01\x02", b""]
    texts = [b"", "K\x01\ud800\x02".encode("utf-8", "surrogatepass"), b"x" * 32_767]
    flags, chosen = np.array([1, -2, 3], np.int32), np.array([2, 0, 1])
    body = batch_body(pa.array(bodies, BINARY), pa.array(texts, BINARY), flags, chosen)
    items = list(map(BatchItem, flags.tolist(), bodies, texts))
    assert body == encode_batch([items[at] for at in (2, 0, 1)])


@pytest.mark.parametrize(
    ("flags", "chosen"),
    [
        (np.array([1, 2, 3], np.int8), np.array([0, 2])),
        (np.array([1, 2, 3], ">i4"), np.array([0, 2])),
        (np.array([1, 9, 2, 9, 3, 9], np.int32)[::2], np.array([0, 9, 2])[::2]),
        (np.array([1, 2, 3], np.int32), np.array([0, 2], np.int32)),
    ],
)
def test_numbers_of_any_layout_are_taken(flags: Any, chosen: Any) -> None:
    bodies, texts = pa.array([b"a", b"b", b"c"]), pa.array([b""] * 3)
    body = batch_body(bodies, texts, flags, chosen)
    assert [(item.flag, item.body) for item in decode_batch(body)] == [(1, b"a"), (3, b"c")]


def test_a_row_that_does_not_exist_is_refused() -> None:
    column, flags = pa.array([b"a"]), np.zeros(1, np.int32)
    for row in (1, -2):
        with pytest.raises(IndexError):
            batch_body(column, column, flags, np.array([0, row]))


def test_text_of_other_peers_may_hold_lone_surrogates() -> None:
    lone = "\ud800".encode("utf-8", "surrogatepass")
    batch = pa.RecordBatch.from_pydict({"tag": pa.array([lone], BINARY), "body": [b""]})
    assert property_texts(batch).to_pylist() == [b"TAGS\x01" + lone + b"\x02"]


def test_bytes_behind_a_null_are_neither_checked_nor_sent() -> None:
    edges = np.array([0, 1, 3, 4], np.int32)
    buffers = [pa.py_buffer(b"\x05"), pa.py_buffer(edges), pa.py_buffer(b"a\x01\x02b")]
    column = pa.Array.from_buffers(BINARY, 3, buffers)
    for tag, texts in ((column, [b"a", None, b"b"]), (column[1:], [None, b"b"])):
        batch = pa.RecordBatch.from_pydict({"tag": tag})
        expected = [b"" if text is None else b"TAGS\x01" + text + b"\x02" for text in texts]
        assert property_texts(batch).to_pylist() == expected


def test_columns_of_different_length_are_refused() -> None:
    columns = [pa.array([b"a"]), pa.array([b"a", b"b"])]
    with pytest.raises(pa.ArrowInvalid):
        join_properties([b"A", b"B"], columns)


def column_with_edges(values: list[bytes], edges: list[int]) -> pa.Array:
    """A column whose offsets have become others since Arrow saw them."""
    offsets = np.array([0, *itertools.accumulate(map(len, values))], np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    column = pa.Array.from_buffers(BINARY, len(values), buffers)
    offsets[:] = edges
    return column


@needs_compiled
@pytest.mark.parametrize(
    "edges",
    [[0, -9, 2, 3], [-1, 1, 2, 3], [0, 2, 1, 3], [0, 1, 2, 4], [0, 2**31 - 1, 2, 3], [0, 3, 0, 3],
     [3, 2, 1, 0]],
)  # fmt: skip
def test_no_byte_is_read_beyond_the_values_of_a_column(edges: list[int]) -> None:
    fast: Any = speedups.extension
    whole = pa.array([b"a", b"b", b"c"], BINARY)
    damaged = column_with_edges([b"a", b"b", b"c"], edges)
    flags, chosen = np.zeros(3, np.int32), np.arange(3)
    with pytest.raises(ValueError, match="values beyond its data"):
        fast.join_properties([b"A"], [damaged])
    if edges != [0, 3, 0, 3]:  # of which each value is somewhere in the data
        with pytest.raises(ValueError, match="values beyond its data"):
            fast.batch_body(damaged, whole, flags, chosen)
        with pytest.raises(ValueError, match="values beyond its data"):
            fast.batch_body(whole, damaged, flags, chosen)


@needs_compiled
def test_a_column_whose_buffers_are_too_short_is_refused() -> None:
    class Column:
        type, null_count = BINARY, 1

        def __init__(self, offset: int, count: int) -> None:
            self.offset, self._count = offset, count

        def __len__(self) -> int:
            return self._count

        def buffers(self) -> list[bytes]:
            return [b"\x00", bytes(16), b"abc"]

    fast: Any = speedups.extension
    assert len(fast.join_properties([b"A"], [Column(1, 2)])) == 2
    for offset, count in ((1, 3), (2**62, 2), (0, 2**62), (-1, 2), (-(2**63), 2)):
        with pytest.raises(ValueError, match="a buffer that is too short"):
            fast.join_properties([b"A"], [Column(offset, count)])


def test_columns_may_be_at_any_address() -> None:
    room = np.zeros(17, np.uint8)
    room[1:] = np.array([0, 1, 1, 3], np.int32).view(np.uint8)
    buffers = [None, pa.py_buffer(room).slice(1), pa.py_buffer(b"abb")]
    column, numbers = pa.Array.from_buffers(BINARY, 3, buffers), np.zeros(13, np.uint8)
    numbers[1:] = np.array([7, 8, 9], np.int32).view(np.uint8)
    flags = np.frombuffer(numbers.tobytes(), np.int32, offset=1)
    edges, data = join_properties([b"A"], [column])
    values = b"A\x01a\x02A\x01bb\x02"
    assert np.frombuffer(edges, np.int32).tolist() == [0, 4, 4, 9]
    assert bytes(data)[:9] == values
    texts = pa.array([b""] * 3, BINARY)
    body = batch_body(column, texts, flags, np.array([0, 2]))
    assert [(item.flag, item.body) for item in decode_batch(body)] == [(7, b"a"), (9, b"bb")]


def test_memory_behind_the_texts_of_a_column_is_zeros() -> None:
    values = [b"x" * 99, None] * 40
    edges, data = join_properties([b"name"], [pa.array(values, BINARY)])
    end = int(np.frombuffer(edges, np.int32)[-1])
    assert not bytes(data)[end:].strip(b"\0")
