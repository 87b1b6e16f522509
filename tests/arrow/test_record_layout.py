"""Record layout: records are found by their lengths, and every damaged length is noticed."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.arrow import record_layout
from roquet.arrow.record_layout import RecordLayout
from roquet.model.errors import RecordError
from roquet.wire.records import record
from roquet.wire.records.record import MAGIC_BLANK, MAGIC_V1, RECORD_SIZE_MIN, pack

V4, V6 = bytes(8), bytes(20)
pytestmark = pytest.mark.usefixtures("form")

EXAMPLE = pack(1, 2, 3, 4, 0, 5, V4, 6, V4, 7, 8, b"body", b"topic", b"a\x01b\x02")
BODY_SIZE_AT = 84
COUNT = 7_000
"""Records of a long block: more than a megabyte."""


def record_of(body: bytes) -> bytes:
    return pack(0, 0, 0, 0, 0, 0, V4, 0, V4, 0, 0, body, b"", b"")


SMALL = record_of(bytes(60))


def assert_found(records: list[bytes]) -> None:
    starts = [0, *np.cumsum([len(r) for r in records])[:-1].tolist()]
    assert RecordLayout.of(memoryview(b"".join(records))).starts.tolist() == starts


@given(st.lists(st.binary(max_size=50).map(record_of), min_size=1, max_size=20))
def test_a_short_block_is_scanned(records: list[bytes]) -> None:
    assert_found(records)


def test_an_empty_block_holds_nothing() -> None:
    assert RecordLayout.of(b"").starts.tolist() == []


@pytest.mark.parametrize("sizes", [(100, 300), (0, 1), (5_000, 40_000), (1, 50_000)])
def test_a_long_block_is_scanned(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(7)
    assert_found([record_of(rng.bytes(int(rng.integers(*sizes)))) for _ in range(500)])


def test_magic_numbers_inside_bodies_do_not_mislead_the_scan() -> None:
    rng = np.random.default_rng(8)
    magic = MAGIC_V1.to_bytes(4, "big")
    assert_found([record_of(magic * int(rng.integers(1, 60))) for _ in range(COUNT)])


@pytest.mark.parametrize("count", [1, COUNT])
@pytest.mark.parametrize("cut", [1, 50, RECORD_SIZE_MIN, 140])
def test_a_block_that_ends_inside_a_record_is_refused(count: int, cut: int) -> None:
    with pytest.raises(RecordError, match="cut short"):
        RecordLayout.of((SMALL * (count + 1))[:-cut])


@pytest.mark.parametrize("count", [1, COUNT])
@pytest.mark.parametrize("total", [0, -1, 90, 2**31 - 1])
def test_an_impossible_length_is_refused(count: int, total: int) -> None:
    damaged = bytearray(SMALL * (count + 1))
    at = count // 2 * len(SMALL)
    struct.pack_into(">i", damaged, at, total)
    says = "cut short" if total > 90 else f"claims {total}"
    with pytest.raises(RecordError, match=f"record at {at} .*{says}"):
        RecordLayout.of(bytes(damaged))


@pytest.mark.parametrize("size", [0, 60, 5_000])
def test_records_of_one_size_are_found(size: int) -> None:
    assert_found([record_of(bytes(size))] * (COUNT // 5))


def test_one_record_of_another_size_is_detected() -> None:
    large = record_of(bytes(60 + len(SMALL)))
    assert_found([SMALL] * COUNT + [large] + [SMALL] * 5)


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
