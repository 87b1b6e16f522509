"""Buckets: the partitions of a table of latest states, by a hash of the key.

A change can only concern rows of its own bucket, so a merge rewrites the buckets that have changes
and leaves the others alone.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Final
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa

from roquet.lake.columns.partition_scheme import Partition, bucket_of
from roquet.lake.columns.partitioning import NO_DAY
from roquet.lake.table import DataFile
from roquet.model.errors import ConfigError

COLUMN: Final = "bucket"
"""The partition column of the table: a number, or null for rows without a key."""

NO_KEY: Final = f"{COLUMN}={NO_DAY}"
"""The directory of rows without a key."""

BUCKETS: Final = 16
"""Default number of buckets. A worker holds one bucket in memory while it is rewritten."""

BUCKETS_MAX: Final = 4096

CRC32: Final = "crc32"
"""The hash of Delta tables."""

MURMUR3: Final = "murmur3"
"""The hash of Iceberg's own bucket transform."""


class KeyBuckets(msgspec.Struct, frozen=True, kw_only=True):
    """Division of rows by bucket."""

    count: int
    key_hash: str = CRC32
    """CRC32 or MURMUR3."""

    @property
    def open_files(self) -> int:
        """Files held open besides those that any table has: rows come by bucket, one at a time."""
        return 0

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        """The rows by bucket; buckets without rows are left out.

        Both hashes are of the key in UTF-8, and the same in every process and version.
        """
        keys = batch.column("key")
        if keys.null_count:
            yield Partition("", NO_KEY), batch.filter(keys.is_null())
            batch = batch.filter(keys.is_valid())
            keys = batch.column("key")
        if not len(batch):
            return
        if self.key_hash == MURMUR3:
            numbers = bucket_of(keys, self.count)
        else:
            hashes = (crc32(key) for key in keys.cast(pa.binary()).to_pylist())
            numbers = np.fromiter(hashes, np.int64, len(keys)) % self.count
        order = np.argsort(numbers, kind="stable")
        present, begins = np.unique(numbers[order], return_index=True)
        sorted_rows = batch.take(pa.array(order))
        for number, begin, end in zip(present, begins, [*begins[1:], len(order)], strict=True):
            rows = sorted_rows.slice(int(begin), int(end) - int(begin))
            yield Partition("", f"{COLUMN}={number}"), rows


def files_of_buckets(files: Iterable[DataFile], directories: Collection[str]) -> list[DataFile]:
    """The files of these buckets.

    Raises ConfigError for a file of another writer whose path does not say its bucket: rows that a
    change replaces may be in it, and would stay beside the new ones.
    """
    found = []
    for file in files:
        if not file.within.startswith(f"{COLUMN}="):
            raise ConfigError(
                f"the table has a file in no bucket's directory ({file.name}): another writer put "
                "it there. Nothing was committed; write it anew to the directories of the "
                f"partitions ({COLUMN}=…), or make another table"
            )
        if file.within in directories:
            found.append(file)
    return found
