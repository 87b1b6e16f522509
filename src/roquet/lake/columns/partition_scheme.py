"""Partition scheme: by what the files of an archive are divided, and how rows are split by it.

    day                  a directory for each day of `stored_at`, in UTC: the default
    hour                 and in it one for each hour
    day,bucket(key,16)   and in it one for each of 16 buckets of the keys (Iceberg alone)

A day is always the first division, since retention goes by days. A bucket is Iceberg's: the 32-bit
Murmur3 hash of a text modulo the buckets, as appendix B of Iceberg's specification defines it: seed
0, the UTF-8 bytes, the sign bit cleared. It is computed with numpy, four bytes of all rows at once.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from roquet.arrow.records import SCHEMA
from roquet.lake.columns.partitioning import NO_DAY, split_by_day
from roquet.lake.schema import check_names
from roquet.model.errors import ConfigError

BUCKETS_MAX: Final = 64
"""Each bucket is a file that every task holds open."""

HOUR: Final = "hour"

BUCKET: Final = "bucket="
"""The beginning of the directories of tables that are divided by buckets alone."""

_BUCKET: Final = re.compile(r"bucket\(\s*(\w+)\s*,\s*(\d{1,4})\s*\)", re.ASCII)
_COMMA: Final = re.compile(r",(?![^(]*\))")
"""A comma outside of brackets."""

U32 = npt.NDArray[np.uint32]

NO_BUCKET: Final = -1
"""The bucket of a null, and the hour of a row without a time."""

_C1: Final = np.uint32(0xCC9E2D51)
_C2: Final = np.uint32(0x1B873593)
_BLOCK: Final = 4

_US_OF_HOUR: Final = 3_600_000_000


class Partition(NamedTuple):
    """A division of a table: its day, and directories below it such as `hour=23`.

    The day is empty in a table that is not divided by days.
    """

    day: str
    within: str = ""

    @property
    def path(self) -> str:
        """The directory, relative to the table's files."""
        day = (f"day={self.day}",) if self.day else ()
        return "/".join((*day, self.within) if self.within else day)


class RowDivision(Protocol):
    """How rows are divided among files."""

    @property
    def open_files(self) -> int:
        """Files that are held open besides those that any table has."""

    def split(self, batch: pa.RecordBatch) -> Iterable[tuple[Partition, pa.RecordBatch]]:
        """The rows by partition."""


class PartitionScheme(msgspec.Struct, frozen=True, kw_only=True):
    """By what a table is divided."""

    is_hourly: bool = False
    bucket_column: str = ""
    buckets: int = 0

    def __str__(self) -> str:
        parts = [HOUR if self.is_hourly else "day"]
        if self.buckets:
            parts.append(f"bucket({self.bucket_column},{self.buckets})")
        return ",".join(parts)

    @property
    def bucket_name(self) -> str:
        """The name of the partition field of the bucket."""
        return f"{self.bucket_column}_bucket"

    @property
    def open_files(self) -> int:
        """Files that a task holds open besides those of a table without buckets."""
        return self.buckets

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        """The rows by partition; mostly of one day."""
        for day, rows in split_by_day(batch):
            if self == DAILY:
                yield Partition(day), rows
            else:
                yield from _split_day(Partition(day), rows, self)


DAILY: Final = PartitionScheme()


def parse_scheme(text: str, columns: Sequence[str]) -> PartitionScheme:
    """The scheme of a text such as `hour` or `day,bucket(key,16)`; empty is `day`.

    Raises ConfigError for another text, and for a bucket of a column that the table has not.
    """
    parts = [part.strip().lower() for part in _COMMA.split(text) if part.strip()]
    times = [part for part in parts if part in ("day", HOUR)]
    found = [match for part in parts if (match := _BUCKET.fullmatch(part))]
    if len(times) > 1 or len(found) > 1 or len(times) + len(found) != len(parts):
        raise ConfigError(
            f"--partition-by {text!r}: day, hour, bucket(COLUMN,COUNT), or one of the first two "
            "and the third: hour,bucket(key,16)"
        )
    scheme = PartitionScheme(is_hourly=times == [HOUR])
    if not found:
        return scheme
    [column, count] = found[0].groups()
    if column not in columns or SCHEMA.field(column).type != pa.string():
        texts = [name for name in columns if SCHEMA.field(name).type == pa.string()]
        raise ConfigError(f"--partition-by: buckets are of a text column: {', '.join(texts)}")
    if not 1 < int(count) <= BUCKETS_MAX:
        raise ConfigError(f"--partition-by: {count} buckets, and 2 to {BUCKETS_MAX} are possible")
    return msgspec.structs.replace(scheme, bucket_column=column, buckets=int(count))


def parse_sort(texts: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """The columns to sort by; ConfigError for those that the table has not or cannot compare."""
    if not texts:
        return ()
    names = check_names(texts)
    for name in names:
        if name not in columns or pa.types.is_nested(SCHEMA.field(name).type):
            raise ConfigError(f"--sort-by {name}: the table has no such column to sort by")
    return names


def place_of(path: str) -> tuple[Partition, str]:
    """The partition and the name of a file, from a path as archives write it."""
    directories, _, name = path.rpartition("/")
    _, day_found, below = f"/{directories}".rpartition("/day=")
    if not day_found:
        last = directories.rpartition("/")[2]
        # Tables of latest states are divided by buckets alone.
        return Partition("", last) if last.startswith(BUCKET) else Partition(last), name
    day, _, within = below.partition("/")
    return Partition(day, within), name


def number_within(partition: Partition, name: str) -> int | None:
    """The value of a field below the day; None where rows have none."""
    for part in partition.within.split("/"):
        field, _, value = part.partition("=")
        if field == name:
            return None if value == NO_DAY else int(value)
    return None


def _split_day(
    partition: Partition, rows: pa.RecordBatch, scheme: PartitionScheme
) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    hours = np.zeros(len(rows), np.int64)
    buckets = np.zeros(len(rows), np.int64)
    if scheme.is_hourly:
        hours = _hours(rows, partition)
    if scheme.buckets:
        buckets = bucket_of(rows.column(scheme.bucket_column), scheme.buckets)
    codes = hours * (scheme.buckets + 1) + buckets
    distinct, first = np.unique(codes, return_index=True)
    for code, at in zip(distinct, first, strict=True):
        parts = []
        if scheme.is_hourly:
            parts.append(f"{HOUR}={_text(hours[at])}")
        if scheme.buckets:
            parts.append(f"{scheme.bucket_name}={_text(buckets[at])}")
        chosen = rows if len(distinct) == 1 else rows.filter(pa.array(codes == code))
        yield Partition(partition.day, "/".join(parts)), chosen


def _hours(rows: pa.RecordBatch, partition: Partition) -> npt.NDArray[np.int64]:
    """The hour of the day of each row; `NO_BUCKET` for rows without a time."""
    if partition.day == NO_DAY:
        return np.full(len(rows), NO_BUCKET, np.int64)
    stored: npt.NDArray[np.int64] = rows.column("stored_at").view(pa.int64()).to_numpy()
    return stored // _US_OF_HOUR % 24


def _text(value: np.int64) -> str:
    return NO_DAY if value == NO_BUCKET else str(int(value))


def bucket_of(texts: pa.Array, buckets: int) -> npt.NDArray[np.int64]:
    """The bucket of each text of a string column, from 0; `NO_BUCKET` for nulls."""
    positive = murmur3(texts).astype(np.int64) & 0x7FFF_FFFF
    found = positive % buckets
    if texts.null_count:
        found[texts.is_null().to_numpy(zero_copy_only=False)] = NO_BUCKET
    return found


def murmur3(texts: pa.Array) -> U32:
    """The 32-bit Murmur3 hash of each text of a string column; that of nulls has no meaning."""
    if not len(texts):
        return np.zeros(0, np.uint32)
    starts, ends, raw = _text_bytes(texts)
    lengths = ends - starts
    blocks = lengths // _BLOCK
    hashes = np.zeros(len(texts), np.uint32)
    rows = np.arange(len(texts))
    for at in range(int(blocks.max(initial=0))):
        rows = rows[blocks[rows] > at]
        first = starts[rows] + _BLOCK * at
        mixed = _rotated(hashes[rows] ^ _mixed(_little_endian(raw, first)), 13)
        hashes[rows] = mixed * np.uint32(5) + np.uint32(0xE6546B64)
    tails = _little_endian(raw, starts + _BLOCK * blocks)
    left_bits = ((lengths % _BLOCK) * 8).astype(np.uint32)
    tails &= (np.uint32(1) << left_bits) - np.uint32(1)
    return _finished(hashes ^ _mixed(tails) ^ lengths.astype(np.uint32))


def _text_bytes(
    texts: pa.Array,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Where each text starts and ends in the bytes of all, which have a block more at the end."""
    _, offsets, data = texts.cast(pa.string()).buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    bounds = ends.astype(np.int64)
    return bounds[:-1], bounds[1:], np.append(raw, np.zeros(_BLOCK, np.uint8))


def _little_endian(raw: npt.NDArray[np.uint8], first: npt.NDArray[np.int64]) -> U32:
    found = raw[first].astype(np.uint32)
    for at in range(1, _BLOCK):
        found |= raw[first + at].astype(np.uint32) << np.uint32(8 * at)
    return found


def _mixed(block: U32) -> U32:
    return _rotated(block * _C1, 15) * _C2


def _rotated(value: U32, bits: int) -> U32:
    return (value << np.uint32(bits)) | (value >> np.uint32(32 - bits))


def _finished(hashes: U32) -> U32:
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))
