"""Queue ends: where each consume queue ended at the last checkpoint, to tell damage of its files.

    ┌────────┬──────────┬───────────┬──────────────┬───────────┐  ┌───────────────┬────────┬──────
    │ "RQE1" │ crc32 (4)│ begin (8) │ position (8) │ count (4) │  │ topic len (2) │ id (4) │ …
    └────────┴──────────┴───────────┴──────────────┴───────────┘  └───────────────┴────────┴──────
    of the log, the latter as in the checkpoint      queues        … begin (8) │ end (8) │
                                                                   last position (8) │ topic

A queue file says of itself where it ends: zeros follow. One that is cut, zeroed or gone says the
same of a wrong place, and offsets that were acknowledged would be given to other messages. So the
ends are kept beside the files. Everything is big endian. A genuine broker passes the file over.
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
    """One queue of then."""

    begin: int
    """The first offset that had a place in a file."""
    end: int
    """The offset of the next message."""
    last: int
    """Position in the log that the last entry leads to; -1 for a queue without entries."""


class QueueEnds(msgspec.Struct, frozen=True):
    """All queues that had messages when the log reached from `log_begin` to `position`."""

    log_begin: int
    position: int
    ends: Mapping[QueueName, QueueEnd]


def pack_end(name: QueueName, end: QueueEnd) -> bytes:
    """The bytes of one queue."""
    topic, queue_id = name
    text = topic.encode()
    return _ROW.pack(len(text), queue_id, end.begin, end.end, end.last) + text


def pack_ends(log_begin: int, position: int, rows: Iterable[bytes]) -> bytes:
    """The whole file, from what `pack_end` gave for each queue."""
    rows = list(rows)
    body = b"".join(rows)
    plain = _HEAD.pack(_MAGIC, 0, log_begin, position, len(rows))
    return _HEAD.pack(_MAGIC, crc32(body, crc32(plain)), log_begin, position, len(rows)) + body


def unpack_ends(data: bytes) -> QueueEnds | None:
    """The queues that a file names; None for one that is damaged."""
    try:
        magic, crc, log_begin, position, count = _HEAD.unpack_from(data)
        plain = _HEAD.pack(_MAGIC, 0, log_begin, position, count)
        if magic != _MAGIC or crc32(data[_HEAD.size :], crc32(plain)) != crc:
            return None
        return QueueEnds(log_begin, position, _rows(data, count))
    except (error, UnicodeDecodeError):
        return None


def _rows(data: bytes, count: int) -> dict[QueueName, QueueEnd]:
    found: dict[QueueName, QueueEnd] = {}
    at = _HEAD.size
    for _ in range(count):
        size, queue_id, begin, end, last = _ROW.unpack_from(data, at)
        at += _ROW.size + size
        found[data[at - size : at].decode(), queue_id] = QueueEnd(begin, end, last)
    return found
