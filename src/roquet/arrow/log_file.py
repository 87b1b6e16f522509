"""A commit-log file as blocks of whole records, and the damaged ranges between them.

Each record holds its own position in the log, so a walk may begin anywhere: at the first magic
number whose record is at its own position. The walk continues in the same way behind damage. The
checksum of each body is compared, and topics have to be text. Damage is reported, never passed on
as a message.

    [start, stop)   a record belongs to the part of the file in which it begins
"""

from collections.abc import Iterator
from mmap import mmap
from struct import Struct
from typing import Final
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from roquet.arrow.column_slices import slice_column
from roquet.arrow.record_layout import RecordLayout
from roquet.model.errors import RecordError
from roquet.wire.records.partial_decode import is_torn
from roquet.wire.records.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN

BLOCK: Final = 4 * 1024 * 1024
"""Bytes examined together, as in a pull."""

SEARCH_NEAR: Final = 4 * 1024
SEARCH_FAR: Final = 1024 * 1024
"""Bytes in which a record is searched for at first, and then, if none begins nearby."""

DAMAGE_MAX: Final = 64 * 1024
"""Bytes of a damaged range that are kept for inspection."""

_RECORD_START: Final = Struct(">iI20xq")
"""Total size, magic number and the record's own position."""

_HEAD: Final = Struct(">iI")
"""Total size and magic number: all of a blank, which may have no room for more."""

_MAGICS: Final = (MAGIC_V1, MAGIC_V2)
_BEGINNING: Final = MAGIC_V1.to_bytes(4, "big")[:3]
"""The common beginning of both magic numbers."""

_CRC_MASK: Final = 0x7FFF_FFFF
_CHECKSUM_AT: Final = 8


class LogFileDamage(msgspec.Struct, frozen=True, kw_only=True):
    """A range of the log without a whole record."""

    position: int
    """Its position in the log."""
    size: int
    why: str
    found: bytes = b""
    """Its first bytes, up to `DAMAGE_MAX`."""
    is_end: bool = False
    """Whether nothing follows: a record that was being written, or that a crash has cut short."""


class LogFile:
    """One file of a commit log, which begins at `position` of the log.

    Bytes behind `used` are ignored: log files are created in their full length. A file that another
    follows, at position `until`, has to be full: what it lacks is damage.
    """

    def __init__(
        self, data: bytes | mmap, position: int, used: int | None = None, until: int | None = None
    ) -> None:
        self._view = memoryview(data)
        self._size = len(self._view) if used is None else min(used, len(self._view))
        self._until = until
        self.position = position

    def walk(self, start: int, stop: int) -> Iterator[RecordLayout | LogFileDamage]:
        """Blocks of the records that begin in [start, stop), and the damage between them."""
        at = 0 if start == 0 else self.boundary(start)
        if at == self._size == 0:
            yield from self._tail(0)
        while at is not None and at < min(stop, self._size):
            ahead = self.boundary(min(at + BLOCK, stop))
            if ahead is None:
                end = self._end_of_chain(at)
                # A record behind damage shows that the log does not end here.
                ahead = self.boundary(end + 1)
            if ahead is not None:
                end = ahead
            if end > at:
                yield from self._block(at, end)
            if ahead is None:
                yield from self._tail(end)
            at = ahead

    def boundary(self, at: int) -> int | None:
        """Where the next record begins that holds its own position, from `at` on; or None."""
        at += 4
        step = SEARCH_NEAR
        while at < self._size:
            magic_at = bytes(self._view[at : at + step]).find(_BEGINNING)
            if magic_at < 0:
                at, step = at + step - 2, SEARCH_FAR
            elif self._is_record(at + magic_at - 4):
                return at + magic_at - 4
            else:
                at += magic_at + 1
        return None

    def _is_record(self, at: int) -> bool:
        if at + RECORD_SIZE_MIN > self._size:
            return False
        total, magic, own = _RECORD_START.unpack_from(self._view, at)
        is_whole = RECORD_SIZE_MIN <= total <= self._size - at
        return magic in _MAGICS and own == self.position + at and is_whole

    def _end_of_chain(self, at: int) -> int:
        """The end of the adjacent records from `at` on, without a torn last one."""
        last = at
        while self._is_record(at):
            last, at = at, at + _RECORD_START.unpack_from(self._view, at)[0]
        return last if last < at and self._is_torn(last, at) else at

    def _is_torn(self, at: int, end: int) -> bool:
        try:
            layout = RecordLayout.of(self._view[at:end])
        except RecordError:
            return True
        topic_at, topic_end = int(layout.topic_at[0]), int(layout.topic_end[0])
        block, properties_at = layout.block, int(layout.properties_at[0])
        torn = is_torn(bytes(block[topic_at:topic_end]), bytes(block[properties_at:]))
        return torn or not _has_valid_body(layout).all()

    def _block(self, at: int, end: int) -> Iterator[RecordLayout | LogFileDamage]:
        """A range between two records as one block, if it holds nothing but valid records."""
        try:
            layout = RecordLayout.of(self._view[at:end])
        except RecordError:
            yield from self._record_by_record(at, end)
            return
        in_place = ((layout.fields["position"] - layout.starts) == self.position + at).all()
        if in_place and _has_valid_body(layout).all() and _have_valid_topics(layout):
            yield layout
        else:
            yield from self._record_by_record(at, end)

    def _record_by_record(self, at: int, end: int) -> Iterator[RecordLayout | LogFileDamage]:
        """Examine a range record by record, since something in it is wrong."""
        while at < end:
            result = self._record_at(at, end)
            if isinstance(result, RecordLayout):
                stop = at + len(result.block)
                yield result
            else:
                # Its length may be what is wrong, so the next record says where it ends.
                stop = min(self.boundary(at + 1) or end, end)
                yield self._damage(at, stop, result)
            at = stop

    def _record_at(self, at: int, end: int) -> RecordLayout | str:
        """The record at an index, or the reason why there is none."""
        stop = at + _RECORD_START.unpack_from(self._view, at)[0] if self._is_record(at) else None
        if stop is None or stop > end:
            return "no record begins here"
        try:
            layout = RecordLayout.of(self._view[at:stop])
        except RecordError as error:
            return str(error)
        if not _has_valid_body(layout).all():
            return "the checksum of the body disagrees"
        return layout if _have_valid_topics(layout) else "the topic is not UTF-8"

    def _tail(self, at: int) -> Iterator[LogFileDamage]:
        """Damage behind the last record, unless only a blank or zeros follow."""
        size = len(self._view)
        if self._is_blank(at):
            at = size
        if self._until is not None:
            yield from self._missing(at, size, self._until)
            return
        end = at + len(bytes(self._view[at : at + DAMAGE_MAX]).rstrip(b"\0"))
        if end > at:
            why, is_end = "the log ends in the middle of a record", self._may_be_torn(at)
            yield self._damage(at, end, why if is_end else "this is no commit log", is_end=is_end)

    def _missing(self, at: int, size: int, until: int) -> Iterator[LogFileDamage]:
        """Damage at the end of a file that another follows: it has to be full."""
        if until != self.position + size:
            why = f"the log goes on at {until}, and this file ends at {self.position + size}"
            yield self._damage(at, max(size, until - self.position), why)
        elif at < size:
            yield self._damage(at, size, "no record begins here, and others follow in another file")

    def _is_blank(self, at: int) -> bool:
        left = len(self._view) - at
        return left >= _HEAD.size and _HEAD.unpack_from(self._view, at) == (left, MAGIC_BLANK)

    def _may_be_torn(self, at: int) -> bool:
        """Whether a record may begin here; in a file without any it has to look like one."""
        if at or len(self._view) < _RECORD_START.size:
            return True
        _, magic, own = _RECORD_START.unpack_from(self._view, at)
        return magic in (0, *_MAGICS) and own in (0, self.position)

    def _damage(self, at: int, stop: int, why: str, *, is_end: bool = False) -> LogFileDamage:
        return LogFileDamage(
            position=self.position + at,
            size=stop - at,
            why=why,
            found=bytes(self._view[at : min(stop, at + DAMAGE_MAX)]),
            is_end=is_end,
        )


def _has_valid_body(layout: RecordLayout) -> NDArray[np.bool_]:
    """Which records' bodies match their checksums; an empty body has none."""
    block = memoryview(layout.block)
    bodies = zip(layout.body_at.tolist(), layout.body_end.tolist(), strict=True)
    sums = [crc32(block[at:end]) & _CRC_MASK for at, end in bodies]
    stored = layout.gather(layout.starts + _CHECKSUM_AT, ">u4").astype(np.int64)
    is_empty = layout.body_at == layout.body_end
    sound: NDArray[np.bool_] = (stored == np.array(sums, np.int64)) | is_empty
    return sound


def _have_valid_topics(layout: RecordLayout) -> bool:
    try:
        slice_column(layout.block, layout.topic_at, layout.topic_end, pa.string()).validate(
            full=True
        )
    except pa.ArrowInvalid:
        return False
    return True
