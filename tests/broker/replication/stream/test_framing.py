"""The classic form of the stream, at both ends."""

import asyncio
from unittest.mock import Mock

import pytest
from tests.broker.replication.conftest import MakeParts

from roquet.broker.replication.stream.framing import (
    PeerGone,
    ReplicaFraming,
    StreamError,
    begin_after,
    classic_master,
    first_error,
    write_open,
)
from roquet.rules.replication.sync_state import SentFrame
from roquet.wire.replication.classic_stream import LogFrame, encode_frame_header, encode_report

pytestmark = pytest.mark.virtual_time


async def test_a_master_reads_reports_and_writes_headers(parts: MakeParts) -> None:
    master = parts(in_sync_replicas=2)
    end = master.append(3)
    framing = classic_master(master.store, master.acknowledgements, master.settings)(
        1, "10.0.0.2", print
    )
    assert framing.feed(encode_report(end)) == end
    assert framing.feed(b"\x00") is None
    assert framing.header(end, 9) == encode_frame_header(end, 9)
    assert framing.size_max(end) is None
    assert framing.is_in_sync(end)
    framing.note(end, SentFrame(end, 0))
    assert master.acknowledgements.in_sync == 2
    framing.close()
    assert master.acknowledgements.in_sync == 1


async def test_an_empty_replica_begins_with_the_last_file_and_another_where_it_ends(
    parts: MakeParts,
) -> None:
    master = parts(log_file_size=1_024)
    end = master.append(30)
    start = end - end % 1_024
    framing = classic_master(master.store, master.acknowledgements, master.settings)(
        1, "10.0.0.2", print
    )
    assert framing.start(0) == start
    assert framing.start(end) == end
    assert begin_after(0, master.store, from_last_file=False) == 0
    with pytest.raises(StreamError, match="empty its directory"):
        framing.start(end + 1)


def test_a_replica_reads_frames_and_writes_reports() -> None:
    framing = ReplicaFraming()
    assert framing.is_ready
    assert framing.greeting() == b""
    assert list(framing.feed(encode_frame_header(7, 2) + b"ab")) == [LogFrame(7, b"ab")]
    assert framing.report(9) == encode_report(9)


def test_the_first_error_of_nested_groups_says_why_a_stream_ended() -> None:
    error = StreamError("silent")
    assert first_error(error) is error
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [error]), OSError()])
    assert first_error(group) is error


def test_a_connection_that_is_lost_is_not_written_to() -> None:
    writer = Mock(asyncio.StreamWriter)
    writer.is_closing.return_value = False
    write_open(writer, b"a")
    writer.is_closing.return_value = True
    with pytest.raises(PeerGone, match="it has closed the connection"):
        write_open(writer, b"b")
    writer.write.assert_called_once_with(b"a")
