"""The epoch file, against content that the genuine broker wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.replication.conftest import VECTORS

from roquet.model.epoch import EpochEntry
from roquet.model.errors import FieldError
from roquet.wire.replication.epoch_file import decode_epoch_file, encode_epoch_file

GENUINE = (VECTORS / "epochFileCheckpoint.five-entries").read_bytes()
FIVE = tuple(EpochEntry(*pair) for pair in [(1, 0), (2, 1075), (3, 2574), (4, 3861), (5, 4921)])

RISING = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 2**40)), min_size=1, max_size=20)


def test_a_genuine_file_is_read_and_written_to_the_byte() -> None:
    assert decode_epoch_file(GENUINE) == FIVE
    assert encode_epoch_file(FIVE) == GENUINE
    assert encode_epoch_file(FIVE[:1]) == b"1\n1725254278\n1-0\n"
    assert encode_epoch_file(FIVE[:2]) == b"2\n206922483\n1-0\n2-1075\n"


@given(RISING)
def test_every_list_is_read_again(steps: list[tuple[int, int]]) -> None:
    entries, epoch, start = [], 0, 0
    for more, further in steps:
        epoch, start = epoch + more, start + further
        entries.append(EpochEntry(epoch, start))
    assert decode_epoch_file(encode_epoch_file(entries)) == tuple(entries)


def test_an_empty_list_is_two_lines() -> None:
    assert encode_epoch_file([]) == b"0\n0\n"
    assert decode_epoch_file(b"0\n0\n") == ()


def test_a_checksum_of_zero_is_not_checked() -> None:
    assert decode_epoch_file(b"1\n0\n7-42\n") == (EpochEntry(7, 42),)


@given(st.integers(0, len(GENUINE) - 1))
def test_a_file_cut_anywhere_is_damaged(length: int) -> None:
    with pytest.raises(FieldError):
        decode_epoch_file(GENUINE[:length])


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "not a number"),
        (b"x\n0\n1-0\n", "not a number"),
        (b"1\n-5\n1-0\n", "not a number"),
        (b"1\n0\n", "cut"),
        (b"1\n0", "cut"),
        (b"1\n17\n1-0\n", "checksum is 1725254278, not 17"),
        (b"2\n0\n1-0\n", "1 entries, not 2"),
        (b"1\n0\n1:0\n", "not `epoch-start`"),
        (b"1\n0\n1--5\n", "not `epoch-start`"),
        (b"1\n0\n\xff\n", "not `epoch-start`"),
        (b"2\n0\n2-0\n2-9\n", "2 does not follow 2"),
        (b"2\n0\n1-9\n2-9\n", "2 does not follow 1"),
    ],
)
def test_damage_is_named(content: bytes, error: str) -> None:
    with pytest.raises(FieldError, match=error):
        decode_epoch_file(content)
