import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.store.consume_queue.queue_ends import (
    QueueEnd,
    QueueEnds,
    QueueName,
    pack_end,
    pack_ends,
    unpack_ends,
)

NUMBERS = st.integers(-1, 2**63 - 1)
ENDS = st.dictionaries(
    st.tuples(st.text("aü%/", max_size=9), st.integers(0, 2**31 - 1)),
    st.builds(QueueEnd, NUMBERS, NUMBERS, NUMBERS),
    max_size=5,
)


def pack(position: int, ends: dict[QueueName, QueueEnd]) -> bytes:
    return pack_ends(40, position, [pack_end(name, end) for name, end in ends.items()])


@given(NUMBERS, ENDS)
def test_packed_ends_are_unpacked_again(position: int, ends: dict[QueueName, QueueEnd]) -> None:
    assert unpack_ends(pack(position, ends)) == QueueEnds(40, position, ends)


def test_the_bytes_of_one_queue() -> None:
    data = pack(1000, {("T", 3): QueueEnd(50, 60, 900)})
    assert (data[:4], data[8:16]) == (b"RQE1", (40).to_bytes(8, "big"))
    assert data[16:28] == bytes.fromhex("00000000000003e8 00000001")
    assert data[28:34] == bytes.fromhex("0001 00000003")
    assert data[34:] == b"".join(n.to_bytes(8, "big") for n in (50, 60, 900)) + b"T"


@pytest.mark.parametrize("at", [0, 5, 15, 23, 27, 29, 38, -1])
def test_a_changed_byte_is_noticed(at: int) -> None:
    data = bytearray(pack(1000, {("T", 3): QueueEnd(50, 60, 900)}))
    data[at] ^= 1
    assert unpack_ends(bytes(data)) is None


@pytest.mark.parametrize("size", [0, 27, 33, 58])
def test_a_file_that_is_cut_is_noticed(size: int) -> None:
    assert unpack_ends(pack(1000, {("T", 3): QueueEnd(50, 60, 900)})[:size]) is None


def test_rows_that_are_not_there_are_noticed() -> None:
    whole = pack_ends(0, 1000, [b"\x00\x05"])  # a sum that is right, over a row that is not
    assert unpack_ends(whole) is None
