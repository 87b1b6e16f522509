"""FrameSplitter: frames of a replication stream, from chunks of any size.

    ┌────────────────────┬────────┬─────────────────┐
    │ prefix (8 or more) │ header │ body (0 or more)│   the prefix says how long the frame is
    └────────────────────┴────────┴─────────────────┘

Unlike frames of the remoting protocol these have no length word of their own.
"""

from collections.abc import Callable
from typing import Final

from roquet.model.errors import RemoteProtocolError
from roquet.wire.frame import FrameReader

BODY_SIZE_MAX: Final = 4 * 1024 * 1024
"""Bytes of one frame's body: the read buffer of Apache's replicas holds no more. Masters send up to
32 KiB unless haTransferBatchSize says otherwise."""


class FrameSplitter(FrameReader):
    """Splits a stream into whole frames."""

    __slots__ = ("_frame_size", "_prefix_size")

    def __init__(self, prefix_size: int, frame_size: Callable[[bytes, int], int]) -> None:
        """Take frames whose first `prefix_size` bytes are enough for `frame_size`.

        `frame_size(buffer, at)` is the size of the frame at an index, prefix included, and raises
        RemoteProtocolError for what is no frame.
        """
        super().__init__()
        self._prefix_size = self.wanted = prefix_size
        self._frame_size = frame_size

    def split(self, buffer: bytes) -> list[bytes]:
        """Frames of a buffer that begins with a frame; what is left at its end is kept."""
        frames: list[bytes] = []
        at, end, wanted = 0, len(buffer), self._prefix_size
        while end - at >= self._prefix_size:
            size = self._frame_size(buffer, at)
            if end - at < size:
                wanted = size
                break
            frames.append(buffer[at : at + size])
            at += size
        self.wanted = wanted
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
