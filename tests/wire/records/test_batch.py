"""Batch bodies, against Java's."""

import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.vector_lines import vector_pairs

from roquet.model.errors import MessageIllegal, RecordError
from roquet.wire.records import batch as wire
from roquet.wire.records.property_text import decode_properties

pytestmark = pytest.mark.usefixtures("form")

items = st.builds(
    wire.BatchItem, st.integers(-(2**31), 2**31 - 1), st.binary(max_size=60), st.binary(max_size=60)
)


@pytest.mark.parametrize(("given_", "out"), vector_pairs("records.jsonl", "batch_encode"))
def test_a_batch_is_written_as_java_writes_it(given_: dict[str, Any], out: Any) -> None:
    batch = [
        wire.BatchItem(m["flag"], bytes.fromhex(m["body"]), m["properties_string"].encode())
        for m in given_["messages"]
    ]
    assert wire.encode_batch(batch).hex() == out


@pytest.mark.parametrize(("given_", "out"), vector_pairs("records.jsonl", "batch_decode"))
def test_a_batch_is_read_as_java_reads_it(given_: dict[str, Any], out: Any) -> None:
    items = [
        {"flag": i.flag, "body": i.body.hex(), "properties": decode_properties(i.properties)}
        for i in wire.decode_batch(bytes.fromhex(given_["body"]))
    ]
    assert items == out


@given(st.lists(items, max_size=5))
def test_any_batch_is_read_back(batch: list[wire.BatchItem]) -> None:
    assert wire.decode_batch(memoryview(wire.encode_batch(batch))) == batch


@given(st.lists(items, min_size=1, max_size=3), st.data())
def test_a_batch_cut_anywhere_is_refused_or_shorter(
    batch: list[wire.BatchItem], data: st.DataObject
) -> None:
    body = wire.encode_batch(batch)
    cut = data.draw(st.integers(1, len(body) - 1))
    try:
        decoded = wire.decode_batch(body[:cut])
    except RecordError:
        return
    assert decoded == batch[: len(decoded)]


@pytest.mark.parametrize(
    ("at", "value", "text"),
    [
        (0, 2**31 - 1, "message 0 .* claims"),
        (0, 3, "claims 3 of"),
        (16, -5, "body of -5"),
        (16, 1000, "body of 1000"),
        (16, 2, "disagree"),
    ],
)
def test_lengths_that_disagree_are_refused(at: int, value: int, text: str) -> None:
    body = bytearray(wire.encode_batch([wire.BatchItem(0, b"body", b"a\x01b\x02")]))
    body[at : at + 4] = value.to_bytes(4, "big", signed=True)
    with pytest.raises(RecordError, match=text):
        wire.decode_batch(bytes(body))


def test_properties_over_the_limit_are_refused() -> None:
    with pytest.raises(MessageIllegal, match="32767"):
        wire.encode_batch([wire.BatchItem(0, b"", bytes(32_768))])


@given(st.lists(items, max_size=3), st.text(st.characters(codec=None), max_size=9))
def test_properties_may_be_text(batch: list[wire.BatchItem], text: str) -> None:
    encoded = text.encode("utf-8", "surrogatepass")
    texts = [msgspec.structs.replace(item, properties=text) for item in batch]
    plain = [msgspec.structs.replace(item, properties=encoded) for item in batch]
    assert wire.encode_batch(texts) == wire.encode_batch(iter(plain))


@pytest.mark.parametrize("flag", [2**31, -(2**31) - 1, 2**70, "1", 1.0])
def test_a_flag_that_is_no_32_bit_integer_is_refused(flag: Any) -> None:
    with pytest.raises(struct.error):
        wire.encode_batch([wire.BatchItem(flag, b"x", b"")])


def test_a_batch_of_too_many_messages_is_refused_before_the_others_are_read() -> None:
    body = wire.encode_item(0, b"x", b"") * 3
    assert len(wire.decode_columns(body, 3)[0]) == 3
    with pytest.raises(RecordError, match="more than 2 messages"):
        wire.decode_columns(body, 2)


class ChangingMessage:
    """A message whose body shortens or prolongs the list that the message is in."""

    flag, properties = 1, b""

    def __init__(self, messages: list[Any], count: int) -> None:
        self._messages, self._count = messages, count

    @property
    def body(self) -> bytes:
        self._messages[1:] = [self] * (self._count - 1)
        return b"body"


@pytest.mark.parametrize("count", [1, 9])
def test_messages_may_change_the_list_that_is_encoded(count: int) -> None:
    messages: list[Any] = []
    messages[:] = [ChangingMessage(messages, count)] * 5
    assert wire.encode_items(messages) == wire.encode_item(1, b"body", b"") * count


def test_messages_of_a_batch_are_counted() -> None:
    items = [wire.BatchItem(flag=0, body=b"x" * size, properties=b"") for size in (0, 1, 5_000)]
    body = wire.encode_batch(items)
    assert wire.block_count(body) == 3
    assert wire.block_count(memoryview(body)) == 3
    assert wire.block_count(body[:-1]) == 3
    assert wire.block_count(b"") == 0


@pytest.mark.parametrize("size", [b"\0\0\0\0", b"\0\0\0\3", b"\xff\xff\xff\xff"])
def test_an_impossible_size_ends_the_count(size: bytes) -> None:
    assert wire.block_count(size * 3) == 0
