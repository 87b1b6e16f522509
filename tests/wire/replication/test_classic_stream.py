"""The classic stream, against bytes of a genuine master and replica."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.replication.conftest import conversation, sent_by

from roquet.model.errors import RemoteProtocolError
from roquet.wire.frame import LOG_BODY_SIZE_MAX
from roquet.wire.replication.classic_stream import (
    LogFrame,
    LogFrameDecoder,
    ReportDecoder,
    encode_frame_header,
    encode_report,
)

POSITIONS = st.integers(0, 2**63 - 1)
LOG_FRAMES = st.lists(st.builds(LogFrame, POSITIONS, st.binary(max_size=50)), max_size=6)


def encoded(frame: LogFrame) -> bytes:
    return encode_frame_header(frame.position, len(frame.body)) + frame.body


def test_a_genuine_stream_to_an_empty_replica_is_read() -> None:
    frames = LogFrameDecoder().feed(sent_by("classic-empty-replica", "master")[:131_120])
    assert [(frame.position, len(frame.body)) for frame in frames] == [
        (0x200000, 32_768),
        (0x208000, 32_768),
        (0x210000, 32_768),
        (0x218000, 32_768),
    ]
    assert frames[0].body[:8].hex() == "0000c41fdaa320a7"


def test_a_genuine_caught_up_replica_gets_heartbeats_and_then_a_message() -> None:
    frames = LogFrameDecoder().feed(sent_by("classic-caught-up", "master"))
    assert frames[:-1] == [LogFrame(0x2F526C)] * 4
    assert (frames[-1].position, len(frames[-1].body)) == (0x2F526C, 211)


def test_genuine_headers_are_written_to_the_byte() -> None:
    headers = [s.hex for s in conversation("classic-empty-replica") if s.size == 12]
    assert headers[0] == encode_frame_header(0x200000, 32_768).hex()
    beat = conversation("classic-caught-up")[1]
    assert beat.hex == encode_frame_header(0x2F526C, 0).hex()


def test_genuine_reports_are_read_and_written_to_the_byte() -> None:
    for name in ("classic-empty-replica", "classic-caught-up"):
        for part in conversation(name):
            if part.sender == "replica":
                log_end = ReportDecoder().feed(part.stream)
                assert log_end is not None
                assert encode_report(log_end) == part.stream


@given(LOG_FRAMES, st.integers(1, 30))
def test_any_split_gives_the_same_frames(sent: list[LogFrame], step: int) -> None:
    stream, decoder = b"".join(map(encoded, sent)), LogFrameDecoder()
    chunks = [stream[at : at + step] for at in range(0, len(stream), step)]
    assert [frame for chunk in chunks for frame in decoder.feed(chunk)] == sent


@pytest.mark.parametrize("size", [-1, LOG_BODY_SIZE_MAX + 1])
def test_a_frame_of_impossible_size_ends_the_connection(size: int) -> None:
    with pytest.raises(RemoteProtocolError, match="bytes of log"):
        LogFrameDecoder().feed(encode_frame_header(0, size))


def test_a_frame_from_before_the_log_ends_the_connection() -> None:
    with pytest.raises(RemoteProtocolError, match="position -1"):
        LogFrameDecoder().feed(encode_frame_header(-1, 0))


def test_only_the_last_whole_report_counts() -> None:
    decoder = ReportDecoder()
    reports = b"".join(map(encode_report, (10, 20, 30)))
    assert decoder.feed(reports[:20]) == 20
    assert decoder.feed(reports[20:23]) is None
    assert decoder.feed(reports[23:]) == 30
    assert decoder.feed(b"") is None


@given(st.lists(POSITIONS, min_size=1, max_size=6), st.integers(1, 20))
def test_any_split_ends_with_the_same_report(sent: list[int], step: int) -> None:
    stream, decoder = b"".join(map(encode_report, sent)), ReportDecoder()
    got = [decoder.feed(stream[at : at + step]) for at in range(0, len(stream), step)]
    assert [one for one in got if one is not None][-1] == sent[-1]


def test_a_report_of_a_negative_end_ends_the_connection() -> None:
    with pytest.raises(RemoteProtocolError, match="ends at -1"):
        ReportDecoder().feed(encode_report(-1))
