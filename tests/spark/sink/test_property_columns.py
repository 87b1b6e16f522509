"""Property columns: unique keys, row keys, and the user's properties without system ones."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import MessageIllegal
from roquet.spark.sink.options import SinkOptions
from roquet.spark.sink.property_columns import (
    DELAY_COLUMNS,
    delay_texts,
    numbered_texts,
    property_texts_of,
    row_keys,
    transaction_text,
    unique_keys,
)
from roquet.wire.records import speedups
from roquet.wire.records.message_id import unique_key
from roquet.wire.records.property_text import decode_properties

pytestmark = pytest.mark.usefixtures("form")

words = st.text(st.characters(codec="utf-8"), max_size=9)
MAP = pa.map_(pa.string(), pa.string())


def texts(**columns: Any) -> list[dict[str, str]]:
    count = len(next(iter(columns.values())))
    unique = pa.array([f"U{at}" for at in range(count)])
    row = pa.array([f"q/0/0/{at}" for at in range(count)])
    columns_by_name = {
        name: values if isinstance(values, pa.Array) else pa.array(values, pa.string())
        for name, values in columns.items()
    }
    return [
        decode_properties(text)
        for text in property_texts_of(columns_by_name, unique, row).to_pylist()
    ]


def test_unique_keys_are_those_of_the_wire() -> None:
    make = unique_keys(b"\x0a\x00\x00\x01", 0x12345, 0xCAFEBABE, 1_000)
    assert make(65_534, 4).to_pylist() == [
        unique_key(b"\x0a\x00\x00\x01", 0x12345, 0xCAFEBABE, 1_000 + at // 65_536, at)
        for at in range(65_534, 65_538)
    ]


def test_row_keys_name_query_batch_and_row() -> None:
    assert row_keys("q/7/1/", 9, 3).to_pylist() == ["q/7/1/9", "q/7/1/10", "q/7/1/11"]


@given(st.integers(0, 2**40), st.integers(0, 300), words)
def test_rows_are_numbered_from_the_first_one_on(first: int, count: int, prefix: str) -> None:
    keys = row_keys(prefix, first, count)
    keys.validate(full=True)
    assert keys.to_pylist() == [f"{prefix}{first + at}" for at in range(count)]


@pytest.mark.parametrize("first", [0, 9_990, 99_999, 2**62])
def test_numbers_of_rows_grow_by_a_digit(first: int) -> None:
    assert row_keys("é/", first, 20).to_pylist() == [f"é/{first + at}" for at in range(20)]


@pytest.mark.parametrize("count", [2**31, 2**60, 2**62, 2**63 - 1])
def test_more_rows_than_a_column_holds_are_refused(count: int) -> None:
    if speedups.extension is not None:
        for first in (0, 2**63 - 2):
            assert speedups.extension.numbered_texts(b"q/", first, count) is NotImplemented
    if count > 2**40:  # numpy has no such arrays
        with pytest.raises((ValueError, MemoryError, OverflowError)):
            row_keys("q/", 0, count)


def test_memory_behind_the_keys_of_rows_is_zeros() -> None:
    edges, data = numbered_texts(b"q/", 0, 1_000)
    assert not bytes(data)[np.frombuffer(edges, np.int32)[-1] :].strip(b"\0")


def test_columns_become_properties() -> None:
    assert texts(key=["k", None], tag=["t", ""], order_key=["o", "p"]) == [
        {"UNIQ_KEY": "U0", "ROQUET_ROW": "q/0/0/0", "KEYS": "k", "TAGS": "t", "__SHARDINGKEY": "o"},
        {"UNIQ_KEY": "U1", "ROQUET_ROW": "q/0/0/1", "__SHARDINGKEY": "p"},
    ]


def test_the_message_id_of_the_user_is_kept() -> None:
    column_texts = texts(message_id=["A", "", None])
    assert [one["UNIQ_KEY"] for one in column_texts] == ["A", "U1", "U2"]


def test_several_keys_are_one_text() -> None:
    assert texts(keys=pa.array([["a", "b"], None, []]))[0]["KEYS"] == "a b"
    assert texts(keys=["a b", None])[0]["KEYS"] == "a b"


def test_null_keys_do_not_affect_other_rows() -> None:
    keys = pa.array([["a", None, "b"], None, [None], ["", "c"], ["d"]])
    assert [one.get("KEYS") for one in texts(keys=keys)] == ["a b", None, None, "c", "d"]
    assert [one.get("KEYS") for one in texts(keys=keys[1:])] == [None, None, "c", "d"]


def test_a_map_read_from_a_topic_loses_system_properties() -> None:
    read = {
        "UNIQ_KEY": "A", "KEYS": "k", "TAGS": "t", "CLUSTER": "c", "DELAY": "3", "TRAN_MSG": "true",
        "REAL_TOPIC": "x", "ROQUET_ROW": "other/1/2/3", "ROQUET_FROM": "t/b/0/7", "mine": "m",
    }  # fmt: skip
    maps = pa.array([list(read.items()), None, [("mine", "n")]], MAP)
    assert texts(properties=maps, tag=["T", None, None]) == [
        {"UNIQ_KEY": "A", "ROQUET_ROW": "q/0/0/0", "TAGS": "T", "KEYS": "k",
         "ROQUET_FROM": "t/b/0/7", "mine": "m"},
        {"UNIQ_KEY": "U1", "ROQUET_ROW": "q/0/0/1"},
        {"UNIQ_KEY": "U2", "ROQUET_ROW": "q/0/0/2", "mine": "n"},
    ]  # fmt: skip


def test_separators_are_refused() -> None:
    with pytest.raises(MessageIllegal, match="separate"):
        texts(tag=["a\x01b"])


def test_a_half_message_has_the_property_of_a_transaction() -> None:
    options = SinkOptions(namesrv=("a:1",), transaction_time_ms=90_000, group="tax")
    assert decode_properties(transaction_text(options)) == {
        "TRAN_MSG": "true", "PGROUP": "tax", "CHECK_IMMUNITY_TIME_IN_SECONDS": "90",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("delay_level", pa.array([3], pa.int32()), "DELAY\x013\x02"),
        ("delay", pa.array([1.2345]), "TIMER_DELAY_MS\x011235\x02"),
        ("delay", pa.array([2], pa.int64()), "TIMER_DELAY_MS\x012000\x02"),
        ("deliver_at", pa.array([5_001], pa.timestamp("us", "UTC")), "TIMER_DELIVER_MS\x016\x02"),
        ("delay", pa.array([0], pa.int64()), None),
        ("delay", pa.array([None], pa.int64()), None),
    ],
)
def test_delays_are_properties_never_too_early(column: str, value: pa.Array, text: str) -> None:
    (column_kind,) = [
        (name, as_number) for known, name, as_number in DELAY_COLUMNS if known == column
    ]
    assert delay_texts(column_kind[1](value), column_kind[0]).to_pylist() == [text]
