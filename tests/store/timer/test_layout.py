import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.store.timer.layout import (
    BLANK_SIZE,
    CHECKPOINT_SIZE,
    DELAY_MIN_MS,
    SLOT_SIZE,
    UNIT_SIZE,
    WHEEL_SLOTS,
    TimerCheckpoint,
    TimerUnit,
    encode_checkpoint,
    pack_checkpoint,
    unpack_checkpoint,
    unpack_unit,
)

GENUINE_UNIT = bytes.fromhex(
    "00000034ffffffffffffffff00000001000001a1fd17f868000007d0"
    "00000000001252a20000016295a7c5130000000000000000"
)
"""The first of the 5.5.0 store's timer log: 2 s after 1795247569000, a record of 354 bytes."""

longs = st.integers(0, 2**62)
checkpoints = st.builds(
    TimerCheckpoint,
    read_ms=longs,
    log_end=longs,
    offset=longs,
    master_offset=longs,
    state_version=longs,
    changed_ms=longs,
    changes=longs,
    cursor=st.none() | st.tuples(longs, longs),
)


def test_sizes_equal_those_of_apaches_broker() -> None:
    assert (SLOT_SIZE, UNIT_SIZE, BLANK_SIZE, CHECKPOINT_SIZE) == (32, 52, 16, 4096)
    assert WHEEL_SLOTS * SLOT_SIZE == 38_707_200


@given(
    st.integers(-1, 2**60), st.integers(1, 15), longs, st.integers(DELAY_MIN_MS, 2**31 - 1), longs,
    st.integers(1, 2**31 - 1), st.integers(-(2**31), 2**31 - 1),
)  # fmt: skip
def test_packed_structures_are_unpacked_again(
    before: int, kind: int, write: int, delay: int, position: int, size: int, code: int
) -> None:
    unit = TimerUnit(kind, write, write + delay, position, size, code, before)
    assert unpack_unit(memoryview(b"xx" + unit.pack(before)), 2) == unit


def test_a_unit_of_an_apache_log_is_read_and_written() -> None:
    unit = TimerUnit(1, 1_795_247_569_000, 1_795_247_571_000, 1_200_802, 354, -1_784_167_149)
    assert unpack_unit(memoryview(GENUINE_UNIT), 0) == unit
    assert unit.pack(-1) == GENUINE_UNIT


@pytest.mark.parametrize("at", [0, 12, 28, 36])  # its size, magic, the record's position and size
def test_impossible_bytes_are_no_unit(at: int) -> None:
    assert unpack_unit(memoryview(bytes(UNIT_SIZE)), 0) is None
    spoilt = bytearray(GENUINE_UNIT)
    spoilt[at] ^= 0xFF
    assert unpack_unit(memoryview(spoilt), 0) is None


@given(checkpoints)
def test_a_checkpoint_is_read_as_it_was_written(checkpoint: TimerCheckpoint) -> None:
    page = pack_checkpoint(checkpoint)
    assert len(page) == CHECKPOINT_SIZE
    assert unpack_checkpoint(page) == checkpoint
    assert page[:56] == encode_checkpoint(checkpoint)


@pytest.mark.parametrize("spoilt", [7, 24, 1024, 1030, 1040])
def test_our_note_is_used_only_with_the_fields_it_was_written_with(spoilt: int) -> None:
    checkpoint = TimerCheckpoint(read_ms=5_000, log_end=52, offset=1, cursor=(5_100, 0))
    page = bytearray(pack_checkpoint(checkpoint))
    page[spoilt] ^= 1
    assert unpack_checkpoint(bytes(page)).cursor is None


def test_a_short_page_says_nothing_and_one_of_56_bytes_has_no_note() -> None:
    checkpoint = TimerCheckpoint(read_ms=5_000, cursor=(1, 1))
    assert unpack_checkpoint(b"") == TimerCheckpoint()
    assert unpack_checkpoint(encode_checkpoint(checkpoint)) == TimerCheckpoint(read_ms=5_000)


@pytest.mark.parametrize("days", [25, 30, 20_000])
def test_a_unit_that_lies_weeks_back_keeps_its_slot(days: int) -> None:
    slot_ms = 1_700_000_000_000
    unit = TimerUnit(1, slot_ms + days * 86_400_000, slot_ms, 5, 100, 7)
    found = unpack_unit(memoryview(unit.pack(-1)), 0)
    assert found is not None
    assert found.slot_ms == slot_ms
    assert found.write_ms == slot_ms - DELAY_MIN_MS
