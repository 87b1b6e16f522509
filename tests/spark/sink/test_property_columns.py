"""Property columns: unique keys, row keys, and the user's properties without system ones."""

from typing import Any

import pyarrow as pa
import pytest

from roquet.model.errors import MessageIllegal
from roquet.spark.sink.options import SinkOptions
from roquet.spark.sink.property_columns import (
    DELAY_COLUMNS,
    delay_texts,
    property_texts_of,
    row_keys,
    transaction_text,
    unique_keys,
)
from roquet.wire.records.message_id import unique_key
from roquet.wire.records.property_text import decode_properties

MAP = pa.map_(pa.string(), pa.string())


def texts(**columns: Any) -> list[dict[str, str]]:
    count = len(next(iter(columns.values())))
    unique = pa.array([f"U{at}" for at in range(count)])
    row = pa.array([f"q/0/0/{at}" for at in range(count)])
    found = {name: values if isinstance(values, pa.Array) else pa.array(values, pa.string())
             for name, values in columns.items()}  # fmt: skip
    return [decode_properties(text) for text in property_texts_of(found, unique, row).to_pylist()]


def test_unique_keys_are_those_of_the_wire() -> None:
    make = unique_keys(b"\x0a\x00\x00\x01", 0x12345, 0xCAFEBABE, 1_000)
    assert make(65_534, 4).to_pylist() == [
        unique_key(b"\x0a\x00\x00\x01", 0x12345, 0xCAFEBABE, 1_000 + at // 65_536, at)
        for at in range(65_534, 65_538)
    ]


def test_row_keys_say_whose_row_it_is() -> None:
    assert row_keys("q/7/1/", 9, 3).to_pylist() == ["q/7/1/9", "q/7/1/10", "q/7/1/11"]


def test_columns_become_properties() -> None:
    assert texts(key=["k", None], tag=["t", ""], order_key=["o", "p"]) == [
        {"UNIQ_KEY": "U0", "ROQUET_ROW": "q/0/0/0", "KEYS": "k", "TAGS": "t", "__SHARDINGKEY": "o"},
        {"UNIQ_KEY": "U1", "ROQUET_ROW": "q/0/0/1", "__SHARDINGKEY": "p"},
    ]


def test_an_id_of_the_users_is_kept() -> None:
    found = texts(message_id=["A", "", None])
    assert [one["UNIQ_KEY"] for one in found] == ["A", "U1", "U2"]


def test_several_keys_are_one_text() -> None:
    assert texts(keys=pa.array([["a", "b"], None, []]))[0]["KEYS"] == "a b"
    assert texts(keys=["a b", None])[0]["KEYS"] == "a b"


def test_keys_that_are_none_take_no_others_along() -> None:
    keys = pa.array([["a", None, "b"], None, [None], ["", "c"], ["d"]])
    assert [one.get("KEYS") for one in texts(keys=keys)] == ["a b", None, None, "c", "d"]
    assert [one.get("KEYS") for one in texts(keys=keys[1:])] == [None, None, "c", "d"]


def test_a_map_read_from_a_topic_loses_what_only_the_system_may_say() -> None:
    read = {
        "UNIQ_KEY": "A", "KEYS": "k", "TAGS": "t", "CLUSTER": "c", "DELAY": "3", "TRAN_MSG": "true",
        "REAL_TOPIC": "x", "ROQUET_ROW": "other/1/2/3", "ROQUET_FROM": "t/b/0/7", "mine": "m",
    }  # fmt: skip
    given = pa.array([list(read.items()), None, [("mine", "n")]], MAP)
    assert texts(properties=given, tag=["T", None, None]) == [
        {"UNIQ_KEY": "A", "ROQUET_ROW": "q/0/0/0", "TAGS": "T", "KEYS": "k",
         "ROQUET_FROM": "t/b/0/7", "mine": "m"},
        {"UNIQ_KEY": "U1", "ROQUET_ROW": "q/0/0/1"},
        {"UNIQ_KEY": "U2", "ROQUET_ROW": "q/0/0/2", "mine": "n"},
    ]  # fmt: skip


def test_separators_are_refused() -> None:
    with pytest.raises(MessageIllegal, match="separate"):
        texts(tag=["a\x01b"])


def test_a_half_message_says_so() -> None:
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
    (found,) = [(name, as_number) for known, name, as_number in DELAY_COLUMNS if known == column]
    assert delay_texts(found[1](value), found[0]).to_pylist() == [text]
