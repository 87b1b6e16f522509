"""Record layout: every damaged length is noticed."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.arrow import record_layout
from roquet.arrow.record_layout import RecordLayout
from roquet.model.errors import RecordError
from roquet.wire.records import record
from roquet.wire.records.record import MAGIC_BLANK, pack

V4, V6 = bytes(8), bytes(20)
pytestmark = pytest.mark.usefixtures("form")

EXAMPLE = pack(1, 2, 3, 4, 0, 5, V4, 6, V4, 7, 8, b"body", b"topic", b"a\x01b\x02")
BODY_SIZE_AT = 84


def test_parts_are_where_the_record_has_them() -> None:
    layout = RecordLayout.of(EXAMPLE + EXAMPLE)
    for row, start in enumerate((0, len(EXAMPLE))):
        assert layout.starts[row] == start
        assert EXAMPLE[layout.body_at[row] - start : layout.body_end[row] - start] == b"body"
        assert EXAMPLE[layout.topic_at[row] - start : layout.topic_end[row] - start] == b"topic"
        assert layout.properties_end[row] - layout.properties_at[row] == 4


def test_a_part_of_the_rows_keeps_its_places() -> None:
    layout = RecordLayout.of(EXAMPLE * 3).between(1, 2)
    assert len(layout) == 1
    assert layout.starts.tolist() == [len(EXAMPLE)]


@given(st.integers(0, len(EXAMPLE) - 1), st.integers(0, 255))
def test_a_changed_byte_is_detected_where_the_loop_detects_it(at: int, value: int) -> None:
    damaged = bytearray(EXAMPLE)
    damaged[at] = value
    try:
        record.decode(bytes(damaged), check_crc=False)
    except RecordError as error:
        if "UTF-8" not in str(error):
            with pytest.raises(RecordError):
                RecordLayout.of(bytes(damaged))
    else:
        assert len(RecordLayout.of(bytes(damaged))) == 1


@pytest.mark.parametrize("size", [-1, -100, 3, 5, 2**31 - 1])
def test_a_body_size_that_disagrees_is_named(size: int) -> None:
    damaged = bytearray(EXAMPLE * 2)
    struct.pack_into(">i", damaged, len(EXAMPLE) + BODY_SIZE_AT, size)
    with pytest.raises(RecordError, match=f"record at {len(EXAMPLE)} of the block"):
        RecordLayout.of(bytes(damaged))


def test_a_block_too_large_for_spark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_layout, "BLOCK_SIZE_MAX", len(EXAMPLE))
    assert len(RecordLayout.of(EXAMPLE)) == 1
    with pytest.raises(RecordError, match=f"{len(EXAMPLE)} is the most"):
        RecordLayout.of(EXAMPLE * 2)


def test_a_blank_is_no_record() -> None:
    blank = record.TOTAL_AND_MAGIC.pack(200, MAGIC_BLANK) + bytes(192)
    with pytest.raises(RecordError, match="record at 0"):
        RecordLayout.of(blank)


def test_rows_can_be_picked() -> None:
    layout = RecordLayout.of(EXAMPLE * 3).where(np.array([True, False, True]))
    assert layout.starts.tolist() == [0, 2 * len(EXAMPLE)]
