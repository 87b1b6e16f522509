"""Queue ends: where each consume queue ended at the last checkpoint, to detect damaged files.

    ┌────────┬──────────┬───────────┬──────────────┬───────────┐  ┌───────────────┬────────┬──────
    │ "RQE1" │ crc32 (4)│ begin (8) │ position (8) │ count (4) │  │ topic len (2) │ id (4) │ …
    └────────┴──────────┴───────────┴──────────────┴───────────┘  └───────────────┴────────┴──────
    of the log, the latter as in the checkpoint      queues        … begin (8) │ end (8) │
                                                                   last position (8) │ topic

A queue file shows by itself where the queue ends: zeros follow. A truncated, zeroed or missing file
shows the wrong end, and offsets that were acknowledged would be given to other messages. So the
ends are kept in a file of their own. Everything is big endian. Apache's broker ignores the file.
"""

from collections.abc import Iterable, Mapping
from struct import Struct, error
from typing import Final
from zlib import crc32

import msgspec

FILE_NAME: Final = "queue-ends"

_HEAD: Final = Struct(">4sIqqi")
_ROW: Final = Struct(">Hiqqq")
_MAGIC: Final = b"RQE1"

QueueName = tuple[str, int]
"""Topic and queue id."""


class QueueEnd(msgspec.Struct, frozen=True, gc=False):
    """Where one queue ended."""

    begin: int
    """The first offset that had an entry in a file."""
    end: int
    """The offset of the next message."""
    last: int
    """The position of the last entry's record; -1 for a queue without entries."""


class QueueEnds(msgspec.Struct, frozen=True):
    """The ends of all queues with messages, when the log reached from `log_begin` to `position`."""

    log_begin: int
    position: int
    ends: Mapping[QueueName, QueueEnd]


def pack_end(name: QueueName, end: QueueEnd) -> bytes:
    """The bytes of one queue."""
    topic, queue_id = name
    text = topic.encode()
    return _ROW.pack(len(text), queue_id, end.begin, end.end, end.last) + text


def pack_ends(log_begin: int, position: int, rows: Iterable[bytes]) -> bytes:
    """The whole file, from the rows that `pack_end` made."""
    rows = list(rows)
    body = b"".join(rows)
    plain = _HEAD.pack(_MAGIC, 0, log_begin, position, len(rows))
    return _HEAD.pack(_MAGIC, crc32(body, crc32(plain)), log_begin, position, len(rows)) + body


def unpack_ends(data: bytes) -> QueueEnds | None:
    """The queues in a file; None for a damaged file."""
    try:
        magic, crc, log_begin, position, count = _HEAD.unpack_from(data)
        plain = _HEAD.pack(_MAGIC, 0, log_begin, position, count)
        if magic != _MAGIC or crc32(data[_HEAD.size :], crc32(plain)) != crc:
            return None
        return QueueEnds(log_begin, position, _rows(data, count))
    except (error, UnicodeDecodeError):
        return None


def _rows(data: bytes, count: int) -> dict[QueueName, QueueEnd]:
    ends: dict[QueueName, QueueEnd] = {}
    at = _HEAD.size
    for _ in range(count):
        size, queue_id, begin, end, last = _ROW.unpack_from(data, at)
        at += _ROW.size + size
        ends[data[at - size : at].decode(), queue_id] = QueueEnd(begin, end, last)
    return ends
