"""Timer slots, timer units and the timer checkpoint: drawn and packed.

    a slot (32)                              a unit (52)
    ┌────────┬───────┬──────┬───────┬───┐    ┌──────┬────────┬───────┬──────────┬───────┐
    │ second │ first │ last │ count │ 0 │    │ 52   │ before │ magic │ write ms │ delay │
    │ 8      │ 8     │ 8    │ 4     │ 4 │    │ 4    │ 8      │ 4     │ 8        │ 4     │
    └────────┴───────┴──────┴───────┴───┘    ├──────┴───┬────┴─┬─────┴──────┬───┴───────┤
                                             │ position │ size │ topic hash │ 0         │
    first, last   units of the timer log     │ 8        │ 4    │ 4          │ 8         │
    before        the slot's unit before it  └──────────┴──────┴────────────┴───────────┘
    position      of the record in the commit log

    the checkpoint (4096)
    ┌──────────────────────────────────────────────────┬───────┬──────────────────────┐
    │ read ms, log end, offset, master's offset,       │ 0 … 0 │ at 1024: our own note│
    │ state version, changed ms, changes (8 each)      │       │                      │
    └──────────────────────────────────────────────────┴───────┴──────────────────────┘

Everything is big endian. A unit's slot is `write ms + delay`. A file of the timer log without room
for another unit and a blank ends with a blank: rest (4), 0 (8), magic (4).
"""

from struct import Struct
from typing import Final
from zlib import crc32

import msgspec

SLOT: Final = Struct(">qqqii")
SLOT_SIZE: Final = SLOT.size

WHEEL_SLOTS: Final = 2 * 7 * 86_400
"""Twice the seconds of a week, as in Apache's broker."""

UNIT: Final = Struct(">iqiqiqiiq")
UNIT_SIZE: Final = UNIT.size

BLANK: Final = Struct(">iqi")
BLANK_SIZE: Final = BLANK.size
BLANK_MAGIC: Final = -875286124

CHECKPOINT_SIZE: Final = 4096
CHECKPOINT: Final = Struct(">7q")
"""The part that Apache's broker reads and writes; it keeps the rest of the page."""

NOTE_AT: Final = 1024
_NOTE: Final = Struct(">4sIqq")
_NOTE_MAGIC: Final = b"RQW1"

DELAY_MIN_MS: Final = -(2**31) // 1_000 * 1_000 + 1_000
"""The least delay that a unit's 32 bits hold, in whole seconds: 24.8 days before it was written."""

NONE: Final = -1
"""Position of a missing unit: the one before a slot's first."""

_MAGIC_MAX: Final = 15
"""Apache's broker uses four bits of the magic number."""


class TimerSlot(msgspec.Struct, frozen=True):
    """The units of one second: positions of the first and the last."""

    first: int
    last: int
    count: int
    """Waiting messages less cancelled ones: a sum that may be off."""


class TimerUnit(msgspec.Struct, frozen=True):
    """One message that waits in a slot, or the cancellation of another."""

    magic: int
    write_ms: int
    slot_ms: int
    position: int
    size: int
    topic_hash: int
    before: int = NONE
    """The position of the slot's unit before it."""

    def pack(self, before: int) -> bytes:
        """The unit's 52 bytes, linked to the unit before it in its slot.

        The slot is what counts. If it lies farther back than a delay can express, after weeks
        without this process or with another clock, the unit's write time is set earlier.
        """
        write_ms = min(self.write_ms, self.slot_ms - DELAY_MIN_MS)
        return UNIT.pack(
            UNIT_SIZE, before, self.magic, write_ms, self.slot_ms - write_ms,
            self.position, self.size, self.topic_hash, 0,
        )  # fmt: skip


def unpack_unit(buffer: memoryview, at: int) -> TimerUnit | None:
    """The unit at an index of the buffer; None if no plausible one is there."""
    size, before, magic, write_ms, delay, position, length, topic_hash, _ = UNIT.unpack_from(
        buffer, at
    )
    if size != UNIT_SIZE or not 0 < magic <= _MAGIC_MAX or length <= 0 or position < 0:
        return None
    return TimerUnit(magic, write_ms, write_ms + delay, position, length, topic_hash, before)


class TimerCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """How far the timers were durable."""

    read_ms: int = 0
    """The slot whose messages are being delivered, or that is next."""
    log_end: int = 0
    """The timer log in front of this position is durable."""
    offset: int = 0
    """Offset of the timer topic's next message."""
    master_offset: int = 0
    state_version: int = 0
    changed_ms: int = 0
    changes: int = 0
    cursor: tuple[int, int] | None = None
    """Progress within that slot: the delivery time (ms) and the unit reached; (0, 0) if not begun.

    None also when Apache's broker has written the checkpoint since: then log end and offset need
    not belong together."""


def encode_checkpoint(checkpoint: TimerCheckpoint) -> bytes:
    """The checkpoint's first 56 bytes, which the broker sends on request."""
    return CHECKPOINT.pack(
        checkpoint.read_ms, checkpoint.log_end, checkpoint.offset, checkpoint.master_offset,
        checkpoint.state_version, checkpoint.changed_ms, checkpoint.changes,
    )  # fmt: skip


def pack_checkpoint(checkpoint: TimerCheckpoint) -> bytes:
    """The 4,096 bytes of the file."""
    head = encode_checkpoint(checkpoint)
    page = bytearray(CHECKPOINT_SIZE)
    page[: len(head)] = head
    if checkpoint.cursor is not None:
        crc = crc32(_NOTE.pack(_NOTE_MAGIC, 0, *checkpoint.cursor), crc32(head))
        _NOTE.pack_into(page, NOTE_AT, _NOTE_MAGIC, crc, *checkpoint.cursor)
    return bytes(page)


def unpack_checkpoint(page: bytes) -> TimerCheckpoint:
    """Decode the checkpoint file; a short one gives an empty checkpoint."""
    if len(page) < CHECKPOINT.size:
        return TimerCheckpoint()
    read_ms, log_end, offset, master, version, changed_ms, changes = CHECKPOINT.unpack_from(page)
    return TimerCheckpoint(
        read_ms=read_ms,
        log_end=log_end,
        offset=offset,
        master_offset=master,
        state_version=version,
        changed_ms=changed_ms,
        changes=changes,
        cursor=_unpack_cursor(page),
    )


def _unpack_cursor(page: bytes) -> tuple[int, int] | None:
    """The cursor in our note, if its checksum holds and covers the present head."""
    if len(page) < NOTE_AT + _NOTE.size:
        return None
    magic, crc, moment, position = _NOTE.unpack_from(page, NOTE_AT)
    plain = _NOTE.pack(magic, 0, moment, position)
    if magic != _NOTE_MAGIC or crc32(plain, crc32(page[: CHECKPOINT.size])) != crc:
        return None
    return moment, position
