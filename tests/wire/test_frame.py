import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import MessageIllegal, RemoteProtocolError
from roquet.wire import frame as wire

frames = st.binary(min_size=4, max_size=40)


def with_length(frame: bytes) -> bytes:
    return struct.pack(">I", len(frame)) + frame


def test_a_frame_over_the_limit_is_the_peers_fault() -> None:
    with pytest.raises(RemoteProtocolError, match="limit 16"):
        wire.FrameReader(size_max=16).feed(b"\x00\x00\x00\x11")


@pytest.mark.parametrize(
    ("begun", "words"),
    [
        (b"\x16\x03\x01\x02\x00", "a TLS handshake, but TLS is not on here"),
        (b"PROXY TCP4 ", "a PROXY header, but nobody's is believed here"),
    ],
)
def test_what_another_protocol_begins_with_is_named(begun: bytes, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        list(wire.FrameReader().feed(begun))


def test_a_frame_at_the_limit_is_read() -> None:
    assert wire.FrameReader(size_max=16).feed(with_length(b"x" * 16)) == [b"x" * 16]


def test_the_limit_is_what_java_peers_accept() -> None:
    assert wire.FRAME_SIZE_MAX == 16_777_216
    wire.FrameReader().feed(struct.pack(">I", wire.FRAME_SIZE_MAX))
    with pytest.raises(RemoteProtocolError, match="limit 16777216"):
        wire.FrameReader().feed(struct.pack(">I", wire.FRAME_SIZE_MAX + 1))


@pytest.mark.parametrize("size", [0, 1, 3])
def test_a_frame_without_room_for_its_header_word_is_refused(size: int) -> None:
    with pytest.raises(RemoteProtocolError, match="at least 4"):
        wire.FrameReader().feed(struct.pack(">I", size))


def test_a_length_with_its_sign_bit_set_is_refused_at_once() -> None:
    with pytest.raises(RemoteProtocolError, match="over the limit"):
        wire.FrameReader().feed(b"GET / HTTP/1.1\r\n")
    with pytest.raises(RemoteProtocolError, match="over the limit"):
        wire.FrameReader().feed(b"\xff\xff\xff\xff")


@given(st.lists(frames, max_size=6), st.lists(st.integers(1, 30), min_size=1))
def test_any_split_gives_the_same_frames(sent: list[bytes], steps: list[int]) -> None:
    stream = b"".join(map(with_length, sent))
    reader, got, at = wire.FrameReader(), [], 0
    for turn in range(len(stream)):
        step = steps[turn % len(steps)]
        got += reader.feed(stream[at : at + step])
        at += step
    assert got == sent
    assert reader.pending == 0


def test_a_frame_that_comes_in_tiny_parts_takes_little_more_memory_than_its_bytes() -> None:
    reader = wire.FrameReader()
    reader.feed(struct.pack(">I", 1_000_000))
    tracemalloc.start()
    try:
        for number in range(50_000):
            reader.feed(number.to_bytes(2, "big"))
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert reader.pending == 4 + 100_000
    assert size < 400_000
    frames = reader.feed(bytes(900_000))
    assert [len(frame) for frame in frames] == [1_000_000]
    assert frames[0][:100_000] == b"".join(number.to_bytes(2, "big") for number in range(50_000))


def headed(header: bytes, body: bytes) -> bytes:
    """A frame with a header, as on the wire."""
    return wire.join_frame(header, body)


def test_the_body_of_a_large_frame_is_given_apart_from_its_header() -> None:
    reader, stream = wire.FrameReader(), headed(b"head", b"body" * 5)
    assert reader.feed(stream[:14]) == []
    assert reader.end_large(stream[14:20]) is None
    assert reader.feed(stream[14:20]) == []
    large = reader.end_large(stream[20:] + b"next")
    assert large == wire.LargeFrame(stream[4:12], b"body" * 5, b"next")
    assert (reader.pending, reader.wanted) == (0, wire.LENGTH_SIZE)


@pytest.mark.parametrize("begun", [6, 11])
def test_a_large_frame_whose_header_comes_in_parts_is_joined_as_a_whole(begun: int) -> None:
    reader, stream = wire.FrameReader(), headed(b"head", b"body")
    assert reader.feed(stream[:begun]) == []
    assert reader.end_large(stream[begun:]) is None
    assert reader.feed(stream[begun:]) == [stream[4:]]


def test_a_large_frame_whose_header_would_be_longer_than_itself_is_joined_as_a_whole() -> None:
    reader, stream = wire.FrameReader(), with_length(b"\0\0\1\0" + b"x" * 20)
    assert reader.feed(stream[:20]) == []
    assert reader.end_large(stream[20:]) is None
    assert reader.feed(stream[20:]) == [stream[4:]]


def test_half_a_frame_waits_for_the_rest() -> None:
    reader = wire.FrameReader()
    assert reader.feed(b"\x00\x00") == []
    assert reader.pending == 2
    assert reader.feed(b"\x00\x05abc") == []
    assert reader.pending == 7
    assert reader.feed(b"de" + b"\x00") == [b"abcde"]
    assert reader.pending == 1


def test_an_empty_chunk_changes_nothing() -> None:
    reader = wire.FrameReader()
    assert reader.feed(b"") == []
    reader.feed(b"\x00")
    assert reader.feed(b"") == []
    assert reader.pending == 1


def test_a_big_frame_in_many_chunks_is_joined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cuts: list[int] = []
    split = wire.FrameReader.split

    def counted(reader: wire.FrameReader, buffer: bytes) -> list[bytes]:
        cuts.append(len(buffer))
        return split(reader, buffer)

    monkeypatch.setattr(wire.FrameReader, "split", counted)
    stream = with_length(b"x" * 1_000_000)
    reader = wire.FrameReader()
    chunks = [stream[at : at + 1000] for at in range(0, len(stream), 1000)]
    got = [frame for chunk in chunks for frame in reader.feed(chunk)]
    assert [len(frame) for frame in got] == [1_000_000]
    assert cuts == [1000, len(stream)], "the first chunk tells the length, the last has it all"


@given(st.binary(max_size=50), st.binary(max_size=50), st.integers(0, 255))
def test_joined_frames_split_again(header: bytes, body: bytes, kind: int) -> None:
    whole = wire.join_frame(header, body, kind)
    (frame,) = wire.FrameReader().feed(whole)
    end = wire.header_end(frame)
    assert (frame[0], frame[4:end], frame[end:]) == (kind, header, body)


def test_a_frame_is_laid_out_as_drawn() -> None:
    assert wire.join_frame(b"{}", b"body", 1) == b"\x00\x00\x00\x0a\x01\x00\x00\x02{}body"


@pytest.mark.parametrize("frame", [b"", b"\x00\x00\x00", b"\x00\x00\x00\x03{}"])
def test_a_header_longer_than_its_frame_is_the_peers_fault(frame: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        wire.header_end(frame)


def test_a_header_that_its_length_cannot_say_is_never_sent() -> None:
    with pytest.raises(MessageIllegal, match=str(wire.HEADER_SIZE_MAX)):
        wire.join_frame(bytes(wire.HEADER_SIZE_MAX + 1), b"")


def test_a_header_is_read_up_to_256_kib() -> None:
    frame = struct.pack(">I", wire.HEADER_READ_MAX) + bytes(wire.HEADER_READ_MAX)
    assert wire.header_end(frame) == wire.HEADER_READ_MAX + 4
    frame = struct.pack(">I", wire.HEADER_READ_MAX + 1) + bytes(wire.HEADER_READ_MAX + 1)
    with pytest.raises(RemoteProtocolError, match="2621441 bytes is over the limit 2621440"):
        wire.header_end(frame)


prefixed_frames = st.binary(max_size=40).map(lambda body: bytes([len(body), 7]) + body)


def splitter() -> wire.FrameSplitter:
    return wire.FrameSplitter(2, lambda buffer, at: 2 + buffer[at])


@given(st.lists(prefixed_frames, max_size=6), st.lists(st.integers(1, 30), min_size=1))
def test_any_split_gives_the_same_frames_of_a_replication_stream(
    sent: list[bytes], steps: list[int]
) -> None:
    stream, reader, got, at = b"".join(sent), splitter(), list[bytes](), 0
    for turn in range(len(stream)):
        step = steps[turn % len(steps)]
        got += reader.feed(stream[at : at + step])
        at += step
    assert got == sent
    assert reader.pending == 0


def test_half_a_frame_of_a_replication_stream_waits_for_the_rest() -> None:
    reader = splitter()
    assert reader.feed(b"\x03") == []
    assert reader.pending == 1
    assert reader.feed(b"\x07a") == []
    assert reader.pending == 3
    assert reader.feed(b"bc\x00") == [b"\x03\x07abc"]
    assert reader.pending == 1


def test_the_log_of_one_frame_is_limited() -> None:
    assert wire.checked_body_size(0) == 0
    assert wire.checked_body_size(wire.LOG_BODY_SIZE_MAX) == wire.LOG_BODY_SIZE_MAX == 4_194_304
    for size in (-1, wire.LOG_BODY_SIZE_MAX + 1):
        with pytest.raises(RemoteProtocolError, match=f"{size} bytes of log"):
            wire.checked_body_size(size)


def test_an_incomplete_frame_is_taken_back_when_a_chunk_completes_it() -> None:
    reader, frame = wire.FrameReader(), wire.join_frame(b"head", b"body")
    assert reader.feed(frame[:2]) == reader.feed(frame[2:7]) == []
    assert not reader.is_ended_by(frame[7:-1])
    assert reader.is_ended_by(frame[7:])
    assert reader.take() + frame[7:] == frame
    assert (reader.pending, reader.wanted) == (0, wire.LENGTH_SIZE)
    assert reader.feed(frame) == [frame[wire.LENGTH_SIZE :]]


def test_a_large_frame_is_not_taken_back() -> None:
    reader, frame = wire.FrameReader(), wire.join_frame(b"", bytes(wire.LARGE_FRAME_MIN))
    reader.feed(frame[:9])
    assert not reader.is_ended_by(frame[9:])
