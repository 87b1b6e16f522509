"""Classic stream: the log of a master with a fixed role, and reports of its replicas.

    master → replica    ┌──────────────┬──────────┬─────────────┐
                        │ position (8) │ size (4) │ log (size)  │   size 0: a heartbeat
                        └──────────────┴──────────┴─────────────┘
    replica → master    ┌─────────────┐
                        │ log end (8) │                             a report
                        └─────────────┘

There is no greeting: the replica's first report says where the master begins. A frame's bytes are a
raw slice of one log file, which may begin and end inside of a record. Source: Apache RocketMQ
5.5.0, DefaultHAConnection and DefaultHAClient.
"""

from struct import Struct
from typing import Final

import msgspec

from roquet.model.errors import RemoteProtocolError
from roquet.wire.frame import FrameSplitter, checked_body_size

REPORT_SIZE: Final = 8

_REPORT: Final = Struct(">q")
_HEADER: Final = Struct(">qi")


class LogFrame(msgspec.Struct, frozen=True):
    """Bytes of the master's log; an empty frame is a heartbeat."""

    position: int
    """Position of the first byte; of a heartbeat, the position that the next frame will have."""
    body: bytes = b""


def encode_frame_header(position: int, size: int) -> bytes:
    """Encode the header of a frame, to be sent before `size` bytes of the log."""
    return _HEADER.pack(position, size)


def encode_report(log_end: int) -> bytes:
    """Encode a replica's report."""
    return _REPORT.pack(log_end)


class LogFrameDecoder:
    """Decodes the stream from a master."""

    __slots__ = ("_splitter",)

    def __init__(self) -> None:
        self._splitter = FrameSplitter(_HEADER.size, _frame_size)

    def feed(self, chunk: bytes) -> list[LogFrame]:
        """Frames that this chunk completes; raises RemoteProtocolError for a malformed one."""
        return [
            LogFrame(_HEADER.unpack_from(frame)[0], frame[_HEADER.size :])
            for frame in self._splitter.feed(chunk)
        ]


class ReportDecoder:
    """Decodes the stream from a replica."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = b""

    def feed(self, chunk: bytes) -> int | None:
        """Last whole report up to here, which supersedes those before it; None without a new one.

        Raises RemoteProtocolError for a negative position.
        """
        buffer = self._left + chunk if self._left else chunk
        whole = len(buffer) // REPORT_SIZE * REPORT_SIZE
        self._left = buffer[whole:]
        if not whole:
            return None
        (log_end,) = _REPORT.unpack_from(buffer, whole - REPORT_SIZE)
        if log_end < 0:
            raise RemoteProtocolError(f"replica reports a log that ends at {log_end}")
        return int(log_end)


def _frame_size(buffer: bytes, at: int) -> int:
    position, size = _HEADER.unpack_from(buffer, at)
    if position < 0:
        raise RemoteProtocolError(f"master sends log from position {position}")
    return _HEADER.size + checked_body_size(size)
