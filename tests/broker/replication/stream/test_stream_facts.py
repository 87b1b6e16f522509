import asyncio
from unittest.mock import Mock

import pytest

from roquet.broker.replication.stream.stream_facts import (
    PeerGone,
    StreamError,
    first_error,
    write_open,
)


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
