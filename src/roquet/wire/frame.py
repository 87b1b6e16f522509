"""Length-prefixed frames; FrameReader turns chunks of a stream into frames.

    ┌────────────┬──────────────────────┬────────────┬──────┐
    │ length (4) │ kind (1) head len (3)│ header     │ body │
    └────────────┴──────────────────────┴────────────┴──────┘

The length counts everything behind itself. Frames as arguments and results of this module begin
behind the length, except in `join_frame`.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

import msgspec

from roquet.model.errors import MessageIllegal, RemoteProtocolError

FRAME_SIZE_MAX: Final = 16 * 1024 * 1024
"""The limit of Java peers by default; a longer frame is an attack or a bug."""

HEADER_SIZE_MAX: Final = (1 << 24) - 1
"""The header's length has three bytes."""

HEADER_READ_MAX: Final = 2_560 * 1024
"""Bytes of a received header. The largest are the replies of Apache's broker to batches, which name
each message by 32 characters: 65,000 of the smallest fit into a batch of 4 MiB."""

LARGE_FRAME_MIN: Final = 64 * 1024
"""Bytes from which a frame that comes in parts is given as a LargeFrame."""

PARTS_MAX: Final = 4_096
"""Parts of an incomplete frame that are kept apart. More are joined: a part costs 50 bytes besides
its own, and a peer may send one or two bytes at a time."""

LENGTH_SIZE: Final = 4
WORD_SIZE: Final = 4

_LENGTH: Final = Struct(">I")
_PREFIX: Final = Struct(">II")


TLS_HANDSHAKE: Final = 0x1603
"""First two bytes of a TLS connection: of a frame they would be the length, 369 MB."""

PROXY_HEADER: Final = int.from_bytes(b"PROX", "big")
"""First four bytes of a PROXY header, version 1."""


class LargeFrame(msgspec.Struct, frozen=True):
    """A large frame whose body was copied once, and what came behind it."""

    header: bytes
    """The frame up to its body, without its length word."""
    body: bytes
    rest: bytes


class FrameReader:
    """Splits a stream into whole frames."""

    __slots__ = ("_parts", "pending", "size_max", "wanted")

    def __init__(self, size_max: int = FRAME_SIZE_MAX) -> None:
        self.size_max = size_max
        """Limit of a frame's bytes, without its length word."""
        self._parts: list[bytes] = []
        self.pending = 0
        """Bytes of an incomplete frame."""
        self.wanted = LENGTH_SIZE
        """Size of that frame with its length word, as far as it is known."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Frames that this chunk completes, without their length words.

        After an error the stream is out of step: the connection cannot go on.
        """
        if self._parts:
            self._parts.append(chunk)
            self.pending += len(chunk)
            if self.pending < self.wanted:  # joined once, when the frame is whole
                if len(self._parts) > PARTS_MAX:
                    self._parts = [b"".join(self._parts)]
                return []
            chunk = b"".join(self._parts)
            self._parts.clear()
        return self.split(chunk)

    def end_large(self, chunk: bytes) -> LargeFrame | None:
        """The large frame that this chunk completes; None: give the chunk to `feed`.

        To be called while `wanted` is LARGE_FRAME_MIN or more. A header that came in parts is left
        to `feed`, too.
        """
        parts, missing = self._parts, self.wanted - self.pending
        first = parts[0]
        if len(chunk) < missing or len(first) < LENGTH_SIZE + WORD_SIZE:
            return None
        (word,) = _LENGTH.unpack_from(first, LENGTH_SIZE)
        body_at = LENGTH_SIZE + WORD_SIZE + (word & HEADER_SIZE_MAX)
        if body_at > len(first):
            return None
        body = b"".join((memoryview(first)[body_at:], *parts[1:], memoryview(chunk)[:missing]))
        parts.clear()
        self.pending, self.wanted = 0, LENGTH_SIZE
        return LargeFrame(first[LENGTH_SIZE:body_at], body, chunk[missing:])

    def is_ended_by(self, chunk: bytes) -> bool:
        """Whether a chunk completes the incomplete frame, and this one is no large one."""
        return self.pending + len(chunk) >= self.wanted and self.wanted < LARGE_FRAME_MIN

    def take(self) -> bytes:
        """The bytes of the incomplete frame, as if they had not been fed."""
        taken = b"".join(self._parts)
        self._parts.clear()
        self.pending, self.wanted = 0, LENGTH_SIZE
        return taken

    def split(self, buffer: bytes) -> list[bytes]:
        """Frames of a buffer that begins with a length word; what is left at its end is kept."""
        frames: list[bytes] = []
        at, end, wanted = 0, len(buffer), LENGTH_SIZE
        while end - at >= LENGTH_SIZE:
            (size,) = _LENGTH.unpack_from(buffer, at)
            if not WORD_SIZE <= size <= self.size_max:
                raise self._refusal(size)
            stop = at + LENGTH_SIZE + size
            if stop > end:
                wanted = LENGTH_SIZE + size
                break
            frames.append(buffer[at + LENGTH_SIZE : stop])
            at = stop
        self.wanted = wanted
        self.pending = end - at
        if self.pending:
            self._parts.append(buffer[at:])
        return frames

    def _refusal(self, size: int) -> RemoteProtocolError:
        if size < WORD_SIZE:
            return RemoteProtocolError(f"frame of {size} bytes: at least {WORD_SIZE} are needed")
        if size >> 16 == TLS_HANDSHAKE:
            return RemoteProtocolError("a TLS handshake, but TLS is not on here (tls_mode)")
        if size == PROXY_HEADER:
            return RemoteProtocolError("a PROXY header, but nobody's is believed here")
        return RemoteProtocolError(f"frame of {size} bytes is over the limit {self.size_max}")


def join_frame(header: bytes, body: bytes, kind: int = 0) -> bytes:
    """Encode one frame for the socket, with its length word."""
    header_size = len(header)
    if header_size > HEADER_SIZE_MAX:
        raise MessageIllegal(f"header of {header_size} bytes: {HEADER_SIZE_MAX} fit")
    size = WORD_SIZE + header_size + len(body)
    return b"".join((_PREFIX.pack(size, kind << 24 | header_size), header, body))


def header_end(frame: bytes) -> int:
    """Index in a frame (without its length word) where the header ends and the body begins."""
    size = len(frame)
    if size < WORD_SIZE:
        raise RemoteProtocolError(f"frame of {size} bytes: at least {WORD_SIZE} are needed")
    (word,) = _LENGTH.unpack_from(frame)
    end = WORD_SIZE + (word & HEADER_SIZE_MAX)
    if end > size:
        raise RemoteProtocolError(f"header of {end - WORD_SIZE} bytes in a frame of {size} bytes")
    if end > HEADER_READ_MAX + WORD_SIZE:
        raise RemoteProtocolError(
            f"header of {end - WORD_SIZE} bytes is over the limit {HEADER_READ_MAX}"
        )
    return int(end)


LOG_BODY_SIZE_MAX: Final = 4 * 1024 * 1024
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
    if not 0 <= size <= LOG_BODY_SIZE_MAX:
        raise RemoteProtocolError(
            f"replication frame with {size} bytes of log: 0 to {LOG_BODY_SIZE_MAX} are allowed"
        )
    return size
