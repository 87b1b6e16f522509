"""FrameSplitter: frames of a replication stream, from chunks of any size.

    ┌────────────────────┬────────┬─────────────────┐
    │ prefix (8 or more) │ header │ body (0 or more)│   the prefix says how long the frame is
    └────────────────────┴────────┴─────────────────┘

Unlike frames of the remoting protocol (`wire.frame`) these have no length word of their own.
"""

from collections.abc import Callable
from typing import Final

from roquet.model.errors import RemoteProtocolError

BODY_SIZE_MAX: Final = 4 * 1024 * 1024
"""Bytes of one frame's body: the read buffer of Apache's replicas holds no more. Masters send up to
32 KiB unless haTransferBatchSize says otherwise."""


class FrameSplitter:
    """Splits a stream into whole frames."""

    __slots__ = ("_frame_size", "_parts", "_prefix_size", "_wanted", "pending")

    def __init__(self, prefix_size: int, frame_size: Callable[[bytes, int], int]) -> None:
        """Take frames whose first `prefix_size` bytes are enough for `frame_size`.

        `frame_size(buffer, at)` is the size of the frame at an index, prefix included, and raises
        RemoteProtocolError for what is no frame.
        """
        self._prefix_size = prefix_size
        self._frame_size = frame_size
        self._parts: list[bytes] = []
        self._wanted = prefix_size
        self.pending = 0
        """Bytes of an incomplete frame."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Frames that this chunk completes.

        After an error the stream is out of step: the connection cannot go on.
        """
        if self._parts:
            self._parts.append(chunk)
            self.pending += len(chunk)
            if self.pending < self._wanted:  # joined once, when the frame is whole
                return []
            chunk = b"".join(self._parts)
            self._parts.clear()
        return self._split(chunk)

    def _split(self, buffer: bytes) -> list[bytes]:
        frames: list[bytes] = []
        at, end, wanted = 0, len(buffer), self._prefix_size
        while end - at >= self._prefix_size:
            size = self._frame_size(buffer, at)
            if end - at < size:
                wanted = size
                break
            frames.append(buffer[at : at + size])
            at += size
        self._wanted = wanted
        self.pending = end - at
        if self.pending:
            self._parts.append(buffer[at:])
        return frames


def checked_body_size(size: int) -> int:
    """Size of a body as a header has it; raises RemoteProtocolError for one over the limit."""
    if not 0 <= size <= BODY_SIZE_MAX:
        raise RemoteProtocolError(
            f"replication frame with {size} bytes of log: 0 to {BODY_SIZE_MAX} are allowed"
        )
    return size
