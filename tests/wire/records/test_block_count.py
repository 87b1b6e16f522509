"""Messages of a block, counted."""

import pytest

from roquet.wire.records.batch import BatchItem, encode_batch
from roquet.wire.records.block_count import block_count


def test_messages_of_a_batch_are_counted() -> None:
    items = [BatchItem(flag=0, body=b"x" * size, properties=b"") for size in (0, 1, 5_000)]
    body = encode_batch(items)
    assert block_count(body) == 3
    assert block_count(memoryview(body)) == 3
    assert block_count(body[:-1]) == 3
    assert block_count(b"") == 0


@pytest.mark.parametrize("size", [b"\0\0\0\0", b"\0\0\0\3", b"\xff\xff\xff\xff"])
def test_an_impossible_size_ends_the_count(size: bytes) -> None:
    assert block_count(size * 3) == 0
