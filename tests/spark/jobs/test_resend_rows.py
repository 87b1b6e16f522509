"""Copies have the content of their originals, and name them."""

from typing import Any

import pyarrow as pa
import pytest

from roquet.model.errors import MessageIllegal
from roquet.spark.jobs.resend_rows import coordinates, originals_in, originals_of, resend_items
from roquet.wire.records.batch import decode_batch
from roquet.wire.records.property_text import decode_properties

MAP = pa.map_(pa.string(), pa.string())


def rows(**columns: Any) -> pa.RecordBatch:
    place_columns = {
        "broker": ["a", "b"],
        "queue_id": [0, 3],
        "queue_offset": [7, 8],
        "body": [b"x", b"y"],
    }
    return pa.RecordBatch.from_pydict({**place_columns, **columns})


def resent(
    batch: pa.RecordBatch, more: pa.Array | None = None
) -> list[tuple[bytes, dict[str, str]]]:
    packed = resend_items(batch, "orders", pa.array(["U0", "U1"]), more)
    items = decode_batch(b"".join(packed.to_pylist()))
    return [(item.body, dict(decode_properties(item.properties))) for item in items]


def test_a_copy_has_the_users_properties_and_none_of_the_system() -> None:
    expected = {
        "KEYS": "k1 k2", "TAGS": "new", "UNIQ_KEY": "ID1", "__SHARDINGKEY": "A", "colour": "red",
        "DELAY": "3", "RECONSUME_TIME": "2", "ROQUET_ROW": "q/0/0/1", "ROQUET_FROM": "z/b/0/1",
    }  # fmt: skip
    properties = pa.array([list(expected.items()), []], MAP)
    (body, properties_sent), (_, other) = resent(rows(properties=properties))
    assert body == b"x"
    assert properties_sent == {
        "KEYS": "k1 k2", "TAGS": "new", "UNIQ_KEY": "ID1", "__SHARDINGKEY": "A", "colour": "red",
        "ROQUET_ROW": "orders/a/0/7", "ROQUET_FROM": "orders/a/0/7",
    }  # fmt: skip
    assert other == {
        "UNIQ_KEY": "U1", "ROQUET_ROW": "orders/b/3/8", "ROQUET_FROM": "orders/b/3/8"
    }  # fmt: skip


def test_tables_without_properties_have_columns() -> None:
    batch = rows(message_id=["ID1", None], keys=["k1 k2", None], key=["k1", None], tag=["t", None])
    (_, properties_sent), (_, other) = resent(batch)
    assert (properties_sent["UNIQ_KEY"], properties_sent["KEYS"], properties_sent["TAGS"]) == (
        "ID1",
        "k1 k2",
        "t",
    )
    assert other.keys() == {"UNIQ_KEY", "ROQUET_ROW", "ROQUET_FROM"}


def test_further_properties_may_be_added() -> None:
    properties = pa.array([[("UNIQ_KEY", "old"), ("RESENT_FROM", "older")]] * 2, MAP)
    packed = resend_items(rows(properties=properties), "orders", pa.array(["U0", "U1"]),
                   {"RESENT_FROM": pa.array(["old"] * 2)})  # fmt: skip
    assert packed[0].as_py().count(b"RESENT_FROM") == 1
    more = {"message_id": pa.array(["N0", "N1"]), "RESENT_FROM": pa.array(["old"] * 2)}
    (_, properties_sent), _ = resent(rows(properties=properties), more)
    assert (properties_sent["UNIQ_KEY"], properties_sent["RESENT_FROM"]) == ("N0", "old")


def test_the_topic_of_a_row_goes_before_that_of_the_table() -> None:
    assert coordinates(rows(), "t").to_pylist() == ["t/a/0/7", "t/b/3/8"]
    assert coordinates(rows(topic=["o", "p"]), "t").to_pylist() == ["o/a/0/7", "p/b/3/8"]


@pytest.mark.parametrize("body", [None, b""])
def test_a_row_without_a_body_is_named(body: bytes | None) -> None:
    batch = rows(body=pa.array([b"x", body], pa.binary()))
    with pytest.raises(MessageIllegal, match="message orders/b/3/8 has no body"):
        resent(batch)


def test_properties_that_do_not_fit_are_named() -> None:
    properties = pa.array([[("a", "b" * 32_760)], []], MAP)
    with pytest.raises(
        MessageIllegal, match="message orders/a/0/7 has properties over the limit of"
    ):
        resent(rows(properties=properties))


def test_flags_are_kept() -> None:
    packed = resend_items(rows(flag=pa.array([5, None], pa.int32())), "t", pa.array(["U0", "U1"]))
    assert [item.flag for item in decode_batch(b"".join(packed.to_pylist()))] == [5, 0]


def test_the_original_of_a_copy_is_recognized() -> None:
    keys = ["o/a/0/1", "o/a/0/2", None, "o/b/0/9", "foreign", "a/b/c/d", "o/a/0/1"]
    originals = originals_of(pa.array(keys))
    assert {queue: len(runs) for queue, runs in originals.items()} == {
        ("o", "a", 0): 2,
        ("o", "b", 0): 1,
    }


def test_messages_without_our_property_are_nobodys_copies() -> None:
    properties = pa.array([[("ROQUET_FROM", "o/a/0/1")], [("ROQUET_ROW", "o/a/0/2")], []], MAP)
    originals = originals_in([pa.RecordBatch.from_pydict({"properties": properties})] * 2)
    assert {queue: len(runs) for queue, runs in originals.items()} == {("o", "a", 0): 1}
