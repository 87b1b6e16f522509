"""Slots of the wheel, units of the timer log, the timers' checkpoint: drawn and packed.

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

Everything is big endian. A unit's slot is `write ms + delay`. A file of the log that has no room
for another unit and a blank ends with one: rest (4), 0 (8), magic (4).
"""

from struct import Struct
from typing import Final
from zlib import crc32

import msgspec

SLOT: Final = Struct(">qqqii")
SLOT_SIZE: Final = SLOT.size

WHEEL_SLOTS: Final = 2 * 7 * 86_400
"""Twice a week of seconds, as in the genuine broker."""

UNIT: Final = Struct(">iqiqiqiiq")
UNIT_SIZE: Final = UNIT.size

BLANK: Final = Struct(">iqi")
BLANK_SIZE: Final = BLANK.size
BLANK_MAGIC: Final = -875286124

CHECKPOINT_SIZE: Final = 4096
CHECKPOINT: Final = Struct(">7q")
"""What the genuine broker reads and writes; it keeps the rest of the page."""

NOTE_AT: Final = 1024
_NOTE: Final = Struct(">4sIqq")
_NOTE_MAGIC: Final = b"RQW1"

DELAY_MIN_MS: Final = -(2**31) // 1_000 * 1_000 + 1_000
"""The least delay that a unit's 32 bits hold, in whole seconds: 24.8 days before it was written."""

NONE: Final = -1
"""Where a slot's first unit has none before it."""

_MAGIC_MAX: Final = 15
"""The genuine broker takes four bits for its own."""


class TimerSlot(msgspec.Struct, frozen=True):
    """The units of one second."""

    first: int
    last: int
    count: int
    """Messages that wait, less those that are taken back: a sum, not a promise."""


class TimerUnit(msgspec.Struct, frozen=True):
    """One message that waits in a slot, or takes another back."""

    magic: int
    write_ms: int
    slot_ms: int
    position: int
    size: int
    topic_hash: int
    before: int = NONE
    """Its slot's unit before it."""

    def pack(self, before: int) -> bytes:
        """Its 52 bytes, as the one behind another of its slot.

        The slot is what counts. Where it lies farther back than a delay can say, after weeks
        without this process or with another clock, the unit claims to be written earlier.
        """
        write_ms = min(self.write_ms, self.slot_ms - DELAY_MIN_MS)
        return UNIT.pack(
            UNIT_SIZE, before, self.magic, write_ms, self.slot_ms - write_ms,
            self.position, self.size, self.topic_hash, 0,
        )  # fmt: skip


def unpack_unit(buffer: memoryview, at: int) -> TimerUnit | None:
    """The unit that lies there, if it looks like one."""
    size, before, magic, write_ms, delay, position, length, topic_hash, _ = UNIT.unpack_from(
        buffer, at
    )
    if size != UNIT_SIZE or not 0 < magic <= _MAGIC_MAX or length <= 0 or position < 0:
        return None
    return TimerUnit(magic, write_ms, write_ms + delay, position, length, topic_hash, before)


class TimerCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """How far the timers had reached the disk."""

    read_ms: int = 0
    """The slot that is being delivered, or is next."""
    log_end: int = 0
    """The timer log in front of it is durable."""
    offset: int = 0
    """Of the timer topic's next message."""
    master_offset: int = 0
    state_version: int = 0
    changed_ms: int = 0
    changes: int = 0
    cursor: tuple[int, int] | None = None
    """In that slot, until when (ms) and at which unit it is delivered; (0, 0) for not begun.

    None also when a genuine broker has written the checkpoint since: then log and offset need not
    belong together.
    """


def encode_checkpoint(checkpoint: TimerCheckpoint) -> bytes:
    """The 56 bytes that travel to who asks for them."""
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
    """What the file says; a short one says nothing."""
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
    """Our note, if it is whole and the head is still the one that it was written with."""
    if len(page) < NOTE_AT + _NOTE.size:
        return None
    magic, crc, moment, position = _NOTE.unpack_from(page, NOTE_AT)
    plain = _NOTE.pack(magic, 0, moment, position)
    if magic != _NOTE_MAGIC or crc32(plain, crc32(page[: CHECKPOINT.size])) != crc:
        return None
    return moment, position
