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
    given = {"broker": ["a", "b"], "queue_id": [0, 3], "queue_offset": [7, 8], "body": [b"x", b"y"]}
    return pa.RecordBatch.from_pydict({**given, **columns})


def sent(batch: pa.RecordBatch, more: Any = None) -> list[tuple[bytes, dict[str, str]]]:
    packed = resend_items(batch, "orders", pa.array(["U0", "U1"]), more)
    found = decode_batch(b"".join(packed.to_pylist()))
    return [(item.body, dict(decode_properties(item.properties))) for item in found]


def test_a_copy_has_what_users_said_and_nothing_of_the_past() -> None:
    said = {
        "KEYS": "k1 k2", "TAGS": "new", "UNIQ_KEY": "ID1", "__SHARDINGKEY": "A", "colour": "red",
        "DELAY": "3", "RECONSUME_TIME": "2", "ROQUET_ROW": "q/0/0/1", "ROQUET_FROM": "z/b/0/1",
    }  # fmt: skip
    properties = pa.array([list(said.items()), []], MAP)
    (body, told), (_, other) = sent(rows(properties=properties))
    assert body == b"x"
    assert told == {
        "KEYS": "k1 k2", "TAGS": "new", "UNIQ_KEY": "ID1", "__SHARDINGKEY": "A", "colour": "red",
        "ROQUET_ROW": "orders/a/0/7", "ROQUET_FROM": "orders/a/0/7",
    }  # fmt: skip
    assert other == {
        "UNIQ_KEY": "U1", "ROQUET_ROW": "orders/b/3/8", "ROQUET_FROM": "orders/b/3/8"
    }  # fmt: skip


def test_tables_without_properties_have_columns() -> None:
    batch = rows(message_id=["ID1", None], keys=["k1 k2", None], key=["k1", None], tag=["t", None])
    (_, told), (_, other) = sent(batch)
    assert (told["UNIQ_KEY"], told["KEYS"], told["TAGS"]) == ("ID1", "k1 k2", "t")
    assert other.keys() == {"UNIQ_KEY", "ROQUET_ROW", "ROQUET_FROM"}


def test_more_may_be_said() -> None:
    properties = pa.array([[("UNIQ_KEY", "old"), ("RESENT_FROM", "older")]] * 2, MAP)
    packed = resend_items(rows(properties=properties), "orders", pa.array(["U0", "U1"]),
                   {"RESENT_FROM": pa.array(["old"] * 2)})  # fmt: skip
    assert packed[0].as_py().count(b"RESENT_FROM") == 1
    more = {"message_id": pa.array(["N0", "N1"]), "RESENT_FROM": pa.array(["old"] * 2)}
    (_, told), _ = sent(rows(properties=properties), more)
    assert (told["UNIQ_KEY"], told["RESENT_FROM"]) == ("N0", "old")


def test_the_topic_of_a_row_goes_before_that_of_the_table() -> None:
    assert coordinates(rows(), "t").to_pylist() == ["t/a/0/7", "t/b/3/8"]
    assert coordinates(rows(topic=["o", "p"]), "t").to_pylist() == ["o/a/0/7", "p/b/3/8"]


@pytest.mark.parametrize("body", [None, b""])
def test_a_row_without_a_body_is_named(body: bytes | None) -> None:
    batch = rows(body=pa.array([b"x", body], pa.binary()))
    with pytest.raises(MessageIllegal, match="message orders/b/3/8 has no body"):
        sent(batch)


def test_properties_that_do_not_fit_are_named() -> None:
    properties = pa.array([[("a", "b" * 32_760)], []], MAP)
    with pytest.raises(
        MessageIllegal, match="message orders/a/0/7 has properties over the limit of"
    ):
        sent(rows(properties=properties))


def test_flags_are_kept() -> None:
    packed = resend_items(rows(flag=pa.array([5, None], pa.int32())), "t", pa.array(["U0", "U1"]))
    assert [item.flag for item in decode_batch(b"".join(packed.to_pylist()))] == [5, 0]


def test_what_was_copied_is_known_again() -> None:
    keys = ["o/a/0/1", "o/a/0/2", None, "o/b/0/9", "foreign", "a/b/c/d", "o/a/0/1"]
    found = originals_of(pa.array(keys))
    assert {queue: len(runs) for queue, runs in found.items()} == {
        ("o", "a", 0): 2,
        ("o", "b", 0): 1,
    }


def test_messages_without_our_property_are_nobodys_copies() -> None:
    properties = pa.array([[("ROQUET_FROM", "o/a/0/1")], [("ROQUET_ROW", "o/a/0/2")], []], MAP)
    found = originals_in([pa.RecordBatch.from_pydict({"properties": properties})] * 2)
    assert {queue: len(runs) for queue, runs in found.items()} == {("o", "a", 0): 1}
