"""Frames of a replication stream, whatever the chunks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import RemoteProtocolError
from roquet.wire.replication.stream import BODY_SIZE_MAX, FrameSplitter, checked_body_size

frames = st.binary(max_size=40).map(lambda body: bytes([len(body), 7]) + body)


def splitter() -> FrameSplitter:
    return FrameSplitter(2, lambda buffer, at: 2 + buffer[at])


@given(st.lists(frames, max_size=6), st.lists(st.integers(1, 30), min_size=1))
def test_any_split_gives_the_same_frames(sent: list[bytes], steps: list[int]) -> None:
    stream, reader, got, at = b"".join(sent), splitter(), list[bytes](), 0
    for turn in range(len(stream)):
        step = steps[turn % len(steps)]
        got += reader.feed(stream[at : at + step])
        at += step
    assert got == sent
    assert reader.pending == 0


def test_half_a_frame_waits_for_the_rest() -> None:
    reader = splitter()
    assert reader.feed(b"\x03") == []
    assert reader.pending == 1
    assert reader.feed(b"\x07a") == []
    assert reader.pending == 3
    assert reader.feed(b"bc\x00") == [b"\x03\x07abc"]
    assert reader.pending == 1


def test_the_log_of_one_frame_is_limited() -> None:
    assert checked_body_size(0) == 0
    assert checked_body_size(BODY_SIZE_MAX) == BODY_SIZE_MAX == 4_194_304
    for size in (-1, BODY_SIZE_MAX + 1):
        with pytest.raises(RemoteProtocolError, match=f"{size} bytes of log"):
            checked_body_size(size)
