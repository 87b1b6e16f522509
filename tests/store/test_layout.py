import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.store.layout import (
    BEGIN_AT,
    CHECKPOINT_SIZE,
    CheckpointNote,
    StoreCheckpoint,
    file_name,
    file_start,
    index_name,
    pack_checkpoint,
    unpack_checkpoint,
)

LONGS = st.integers(-(2**63), 2**63 - 1)
NOTES = st.builds(
    CheckpointNote, made_ms=LONGS, position=LONGS, last_record=LONGS, index_position=LONGS,
    index_name=LONGS, index_count=st.integers(0, 2**31 - 1), log_file_size=LONGS,
    queue_file_size=LONGS,
)  # fmt: skip
CHECKPOINTS = st.builds(
    StoreCheckpoint, log_ms=LONGS, queues_ms=LONGS, index_ms=LONGS, flushed_position=LONGS,
    confirmed_position=LONGS, note=st.none() | NOTES,
)  # fmt: skip


@given(CHECKPOINTS)
def test_a_checkpoint_reads_back(checkpoint: StoreCheckpoint) -> None:
    page = pack_checkpoint(checkpoint)
    assert len(page) == CHECKPOINT_SIZE
    assert unpack_checkpoint(page) == checkpoint
    assert struct.unpack_from(">5q", page)[:3] == (
        checkpoint.log_ms, checkpoint.queues_ms, checkpoint.index_ms,
    )  # fmt: skip


@given(CHECKPOINTS.filter(lambda c: c.note is not None), st.integers(1028, 1028 + 75))
def test_a_note_with_a_flipped_bit_is_ignored(checkpoint: StoreCheckpoint, at: int) -> None:
    page = bytearray(pack_checkpoint(checkpoint))
    page[at] ^= 4
    assert unpack_checkpoint(bytes(page)).note is None


def test_a_note_is_ignored_after_another_program_has_written() -> None:
    note = CheckpointNote(made_ms=9, position=1, last_record=0, index_position=1, index_name=0,
                index_count=0, log_file_size=4096, queue_file_size=20)  # fmt: skip
    page = bytearray(pack_checkpoint(StoreCheckpoint(log_ms=5, note=note)))
    assert unpack_checkpoint(bytes(page)).note == note
    page[0:8] = (6).to_bytes(8, "big")
    assert unpack_checkpoint(bytes(page)) == StoreCheckpoint(log_ms=6)


@pytest.mark.parametrize("size", [0, 39])
def test_a_short_checkpoint_says_nothing(size: int) -> None:
    assert unpack_checkpoint(bytes(size)) == StoreCheckpoint()


def test_an_apache_checkpoint_has_no_note() -> None:
    page = struct.pack(">5q", 1, 2, 3, 4, 5) + bytes(4056)
    assert unpack_checkpoint(page) == StoreCheckpoint(
        log_ms=1, queues_ms=2, index_ms=3, flushed_position=4, confirmed_position=5
    )


@given(st.integers(0, 10**20 - 1))
def test_a_file_is_named_by_its_first_position(start: int) -> None:
    assert file_start(file_name(start)) == start


@pytest.mark.parametrize("name", ["", "1", "x" * 20, "0" * 21, "-" + "1" * 19, "٣" * 20])
def test_other_names_are_of_another_kind(name: str) -> None:
    assert file_start(name) is None


def test_index_files_are_named_by_the_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC-8")
    time.tzset()
    try:
        assert index_name(1_700_000_000_123) == "20231115061320123"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_page_cut_after_the_times_has_no_note() -> None:
    assert unpack_checkpoint(struct.pack(">5q", 1, 2, 3, 4, 5)).note is None


@pytest.mark.parametrize("made_ms", [-(2**63), -1, 0, 10**17, 2**63 - 1])
def test_whatever_time_a_record_claims_names_an_index_file(made_ms: int) -> None:
    name = index_name(made_ms)
    assert len(name) == 17
    assert name.isdigit()


def test_the_begin_of_the_log_is_kept_with_the_note() -> None:
    page = bytearray(pack_checkpoint(StoreCheckpoint(log_ms=1, log_begin=1 << 40)))
    assert unpack_checkpoint(bytes(page)).log_begin == 1 << 40
    page[BEGIN_AT + 9] ^= 1
    assert unpack_checkpoint(bytes(page)).log_begin is None
    assert unpack_checkpoint(bytes(page[:BEGIN_AT])).log_begin is None
