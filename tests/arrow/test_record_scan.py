"""Record scan: both methods find the same records, and neither is fooled."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.arrow import record_scan
from roquet.arrow.record_scan import CHASE_SIZE, LONG_BLOCK, record_starts
from roquet.model.errors import RecordError
from roquet.wire.records.record import MAGIC_V1, RECORD_SIZE_MIN, pack

pytestmark = pytest.mark.usefixtures("form")

MAGIC = MAGIC_V1.to_bytes(4, "big")
V4 = bytes(8)


def record(body: bytes) -> bytes:
    return pack(0, 0, 0, 0, 0, 0, V4, 0, V4, 0, 0, body, b"", b"")


def starts_of(records: list[bytes]) -> list[int]:
    return [0, *np.cumsum([len(r) for r in records])[:-1].tolist()]


@given(st.lists(st.binary(max_size=50).map(record), min_size=1, max_size=20))
def test_a_short_block_is_scanned_in_a_loop(records: list[bytes]) -> None:
    assert record_starts(memoryview(b"".join(records))).tolist() == starts_of(records)


def test_an_empty_block_holds_nothing() -> None:
    assert record_starts(b"").tolist() == []


@pytest.mark.parametrize("sizes", [(100, 300), (0, 1), (5_000, 40_000), (1, CHASE_SIZE * 3)])
def test_a_long_block_is_scanned_side_by_side(
    sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(7)
    records: list[bytes] = []
    while sum(map(len, records[-50:])) < LONG_BLOCK // 10 or len(b"".join(records)) < LONG_BLOCK:
        records += [record(rng.bytes(int(rng.integers(*sizes)))) for _ in range(500)]
        if len(b"".join(records)) >= LONG_BLOCK:
            break
    monkeypatch.setattr(record_scan, "scan_in_loop", lambda block: pytest.fail("the loop was used"))
    assert record_starts(b"".join(records)).tolist() == starts_of(records)


def test_magic_numbers_inside_bodies_do_not_mislead_the_scan() -> None:
    rng = np.random.default_rng(8)
    records = [record(MAGIC * int(rng.integers(1, 60))) for _ in range(LONG_BLOCK // 200)]
    assert record_starts(b"".join(records)).tolist() == starts_of(records)


@pytest.mark.parametrize("count", [1, LONG_BLOCK // 150])
@pytest.mark.parametrize("cut", [1, 50, RECORD_SIZE_MIN, 140])
def test_a_block_that_ends_inside_a_record_is_refused(count: int, cut: int) -> None:
    with pytest.raises(RecordError, match="cut short"):
        record_starts((record(bytes(60)) * (count + 1))[:-cut])


@pytest.mark.parametrize("count", [1, LONG_BLOCK // 150])
@pytest.mark.parametrize("total", [0, -1, 90])
def test_an_impossible_length_is_refused(count: int, total: int) -> None:
    damaged = bytearray(record(bytes(60)) * (count + 1))
    at = count // 2 * len(record(bytes(60)))
    struct.pack_into(">i", damaged, at, total)
    with pytest.raises(RecordError, match=f"record at {at} claims {total}"):
        record_starts(bytes(damaged))


def test_a_length_beyond_the_block_is_refused() -> None:
    damaged = bytearray(record(bytes(60)) * (LONG_BLOCK // 150))
    struct.pack_into(">i", damaged, 0, 2**31 - 1)
    with pytest.raises(RecordError, match="cut short"):
        record_starts(bytes(damaged))


@pytest.mark.parametrize("size", [0, 60, 5_000])
def test_records_of_one_size_are_found_by_one_comparison(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = record(bytes(size))
    count = LONG_BLOCK // len(one) + 1
    monkeypatch.setattr(
        record_scan, "scan_side_by_side", lambda block: pytest.fail("it was chased")
    )
    assert record_starts(one * count).tolist() == list(range(0, count * len(one), len(one)))


def test_one_record_of_another_size_is_detected() -> None:
    small, large = record(bytes(60)), record(bytes(60 + len(record(bytes(60)))))
    records = [small] * (LONG_BLOCK // len(small)) + [large] + [small] * 5
    assert record_starts(b"".join(records)).tolist() == starts_of(records)
