"""Queue entries, index slots, checkpoints: every fixed layout, drawn and packed.

    a queue entry (20)           an index file
    ┌──────────┬──────┬─────┐    ┌───────────┬────────────┬───────────────┐
    │ position │ size │ tag │    │ head (40) │ slots of 4 │ entries of 20 │
    │ 8        │ 4    │ 8   │    └───────────┴────────────┴───────────────┘
    └──────────┴──────┴─────┘    head   begin ms, end ms, begin position, end position (8 each),
                                        slots in use (4), next entry (4)
                                 slot   number of its newest entry, 0 for none
                                 entry  hash (4), position (8), seconds since begin (4),
                                        the slot's entry before it (4)
    the checkpoint (4096)
    ┌────────────────────────────────────────────────┬───────────┬──────────────────────┐
    │ log ms, queues ms, index ms, flushed, confirmed│ 0 … 0     │ at 1024: our own note│
    └────────────────────────────────────────────────┴───────────┴──────────────────────┘
    at 2048: where the log begins, noted before retention deletes files

Everything is big endian. Files of the log and of queues are named by the first position that they
hold, in 20 digits; index files by the local time of their creation, in 17.
"""

from datetime import UTC, datetime
from struct import Struct
from typing import Final
from zlib import crc32

import msgspec

from roquet.wire.records.record import ENTRY as ENTRY  # of queues, as of batches

ENTRY_SIZE: Final = ENTRY.size

FILLER: Final = ENTRY.pack(0, 0x7FFF_FFFF, 0)
"""An entry without a record: in front of a queue's first message, or for a lost one."""
FILLER_SIZE: Final = 0x7FFF_FFFF

INDEX_HEAD: Final = Struct(">qqqqii")
INDEX_ENTRY: Final = Struct(">iqii")
INDEX_SLOT: Final = Struct(">i")

CHECKPOINT_SIZE: Final = 4096
NOTE_AT: Final = 1024
"""Apache RocketMQ reads and writes the first 40 bytes only and keeps the rest."""

_TIMES: Final = Struct(">5q")
_NOTE: Final = Struct(">4sIqqqqqiqq3q")
_NOTE_MAGIC: Final = b"RQT1"


BEGIN_AT: Final = 2048
_BEGIN: Final = Struct(">4sIq")
_BEGIN_MAGIC: Final = b"RQB1"


class CheckpointNote(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that a scan after a crash may rely on. Only Roquet writes them."""

    made_ms: int
    """When the note was written."""
    position: int
    """Log and queues in front of this position are durable."""
    last_record: int
    """Where the record begins that ends at `position`, -1 for none: shows that nobody has changed
    the log."""
    index_position: int
    """The key index of records in front of this position is durable."""
    index_name: int
    """The name of the newest index file at that time, as a number; 0 for none."""
    index_count: int
    """The number of its next entry at that time."""
    log_file_size: int
    """Size of each file of the log in bytes: a file of another size was truncated."""
    queue_file_size: int
    """Size of each consume queue file in bytes."""


class StoreCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """How far log, queues and index were durable."""

    log_ms: int = 0
    queues_ms: int = 0
    index_ms: int = 0
    flushed_position: int = 0
    confirmed_position: int = 0
    note: CheckpointNote | None = None
    """None also when Apache's broker has written the checkpoint since."""
    log_begin: int | None = None
    """Retention deleted the log's files in front of this position; None when that is not known."""


def pack_begin(log_begin: int) -> bytes:
    """The bytes that stand at `BEGIN_AT`."""
    crc = crc32(_BEGIN.pack(_BEGIN_MAGIC, 0, log_begin))
    return _BEGIN.pack(_BEGIN_MAGIC, crc, log_begin)


def _unpack_begin(page: bytes) -> int | None:
    if len(page) < BEGIN_AT + _BEGIN.size:
        return None
    _, _, log_begin = _BEGIN.unpack_from(page, BEGIN_AT)
    is_whole = page[BEGIN_AT : BEGIN_AT + _BEGIN.size] == pack_begin(log_begin)
    return int(log_begin) if is_whole else None


def pack_checkpoint(checkpoint: StoreCheckpoint) -> bytes:
    """The 4,096 bytes of the file."""
    times = (checkpoint.log_ms, checkpoint.queues_ms, checkpoint.index_ms)
    page = bytearray(CHECKPOINT_SIZE)
    _TIMES.pack_into(page, 0, *times, checkpoint.flushed_position, checkpoint.confirmed_position)
    if note := checkpoint.note:
        facts = (
            note.made_ms,
            note.position,
            note.last_record,
            note.index_position,
            note.index_name,
            note.index_count,
            note.log_file_size,
            note.queue_file_size,
            *times,
        )
        crc = crc32(_NOTE.pack(_NOTE_MAGIC, 0, *facts))
        _NOTE.pack_into(page, NOTE_AT, _NOTE_MAGIC, crc, *facts)
    if checkpoint.log_begin is not None:
        page[BEGIN_AT : BEGIN_AT + _BEGIN.size] = pack_begin(checkpoint.log_begin)
    return bytes(page)


def unpack_checkpoint(page: bytes) -> StoreCheckpoint:
    """Decode the checkpoint file; a short one gives an empty checkpoint."""
    if len(page) < _TIMES.size:
        return StoreCheckpoint()
    log_ms, queues_ms, index_ms, flushed, confirmed = _TIMES.unpack_from(page)
    return StoreCheckpoint(
        log_ms=log_ms,
        queues_ms=queues_ms,
        index_ms=index_ms,
        flushed_position=flushed,
        confirmed_position=confirmed,
        note=_unpack_note(page, (log_ms, queues_ms, index_ms)),
        log_begin=_unpack_begin(page),
    )


def _unpack_note(page: bytes, times: tuple[int, int, int]) -> CheckpointNote | None:
    """Our note, if its checksum holds and the times in front of it were written with it.

    Other times mean that Apache's broker wrote the checkpoint last.
    """
    if len(page) < NOTE_AT + _NOTE.size:
        return None
    magic, crc, *facts = _NOTE.unpack_from(page, NOTE_AT)
    if magic != _NOTE_MAGIC or crc32(_NOTE.pack(magic, 0, *facts)) != crc:
        return None
    if tuple(facts[8:]) != times:
        return None
    return CheckpointNote(
        made_ms=facts[0],
        position=facts[1],
        last_record=facts[2],
        index_position=facts[3],
        index_name=facts[4],
        index_count=facts[5],
        log_file_size=facts[6],
        queue_file_size=facts[7],
    )


def file_name(start: int) -> str:
    """The name of a file of the log or of a queue, from the first position that it holds."""
    return f"{start:020d}"


def file_start(name: str) -> int | None:
    """The first position of a file, from its name; None for any other name."""
    return int(name) if len(name) == 20 and name.isascii() and name.isdigit() else None


DATE_MS_MIN: Final = 86_400_000
DATE_MS_MAX: Final = 253_370_764_800_000
"""From the second day of 1970 to the year 9999: dates whose local year has four digits."""


def index_name(made_ms: int) -> str:
    """The name of an index file: yyyyMMddHHmmssSSS in local time, as Apache's broker names them."""
    made_ms = min(max(made_ms, DATE_MS_MIN), DATE_MS_MAX)  # a record may hold any number
    made = datetime.fromtimestamp(made_ms // 1000, tz=UTC).astimezone()
    return f"{made:%Y%m%d%H%M%S}{made_ms % 1000:03d}"
