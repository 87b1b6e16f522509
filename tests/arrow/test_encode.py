"""Batch bodies made from columns equal what `wire` encodes message by message."""

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.arrow.encode import batch_bodies, encode, property_texts, split_evenly
from roquet.model.errors import MessageIllegal
from roquet.wire.records.batch import BatchItem, decode_batch, encode_batch
from roquet.wire.records.property_text import decode_properties, encode_properties

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
    said = {
        "UNIQ_KEY": row["message_id"], "ROQUET_ROW": row["row"], "KEYS": row["key"],
        "TAGS": row["tag"], "__SHARDINGKEY": row["order_key"],
    }  # fmt: skip
    found = {name: value for name, value in said.items() if value}
    found |= {k: v for k, v in (row["properties"] or {}).items() if k not in said}
    return BatchItem(row["flag"] or 0, row["body"] or b"", encode_properties(found))


@given(st.lists(rows, max_size=6), st.integers(0, 2))
def test_any_batch_is_what_the_loop_writes(given_rows: list[dict[str, Any]], skip: int) -> None:
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


def test_all_keys_go_before_the_first_one() -> None:
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


def test_what_is_little_over_the_limit_is_cut_in_halves() -> None:
    assert list(split_evenly(np.full(12, 10), 100, 1_000)) == [(0, 6), (6, 12)]
