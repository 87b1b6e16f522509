"""Tasks of materialize: read the changes of a batch, then rewrite the buckets that they touch.

A first set of tasks reads ranges of queues, keeps the last change of each key and writes those to
files of the attempt, one for each bucket. A second set has a task for each bucket with changes,
which merges them with the bucket's rows. No commit ever names the files of the first set.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from roquet.lake.columns.body_columns import BodyField
from roquet.lake.columns.body_parser import BodyParser, FieldCounter
from roquet.lake.columns.body_schemas import BodySchema
from roquet.lake.files.parquet_writer import COMPRESSION, PartitionedWriter
from roquet.lake.objects.object_location import StagingDirectory
from roquet.lake.objects.object_store import explained_read, open_source
from roquet.lake.queue_offsets import QueueKey, to_json
from roquet.lake.states.buckets import NO_KEY, KeyBuckets
from roquet.lake.states.latest_rows import latest_by_key, latest_by_queue
from roquet.lake.states.state_table import DELETED, StateIdentity
from roquet.lake.table import DataFile
from roquet.lake.task_set import TaskResult
from roquet.spark.jobs.archive.archive_tasks import RangeTasks

TOMBSTONE: Final = "tombstone"
"""Property of a message that deletes its key, with the value `true`."""

TOMBSTONE_BODIES: Final = (b"", b"null")
"""Bodies of messages that delete their key. Brokers refuse empty ones; JSON has `null`."""

REDUCE_ROWS: Final = 500_000
"""Changes that a task gathers before it keeps the last one of each key."""


class ChangeCounts(msgspec.Struct, kw_only=True):
    """Counts of a task that reads changes."""

    null_keys: int = 0
    """Messages without a key."""
    first_null_key: str = ""
    """The first of them, for an error's text."""


class ChangeTasks(RangeTasks, frozen=True, kw_only=True):
    """Tasks that read ranges of queues, and write the last change of each key by bucket."""

    identity: StateIdentity
    body_fields: tuple[BodyField, ...] | None = None
    """The fields of the bodies that become columns; None when bodies are not parsed."""
    body_source: BodySchema | None = None
    """The schema of bodies that are no JSON."""

    def run(self, number: int) -> TaskResult:
        """Read the ranges of one task."""
        rows: Counter[QueueKey] = Counter()
        changes = LatestChanges(self.identity)
        columns = tuple(dict.fromkeys((*self.identity.columns, "body", "properties")))
        with self.read(number, columns, rows) as batches:
            for batch in batches:
                changes.add(batch)
        schema, identity = self.identity.change_schema(self.body_fields), self.identity
        counter = FieldCounter(field.source for field in self.body_fields or ())
        parser = BodyParser(self.body_fields or (), counter, self.body_source)
        tables: Iterable[pa.Table] = changes.tables()
        if self.body_fields is not None:
            tables = (with_body_columns(table, parser, schema) for table in tables)
        files = write_buckets(tables, self.directory, schema, identity.key_buckets)
        return TaskResult(
            files=tuple(files),
            rows=to_json(dict(rows)),
            unknown_fields=counter.counts,
            bad_bodies=parser.bad_bodies,
            payload=msgspec.json.encode(changes.counts).decode(),
        )


class BucketFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one bucket, as paths or URLs."""

    bucket: str
    """Directory of the bucket in the table."""
    present: tuple[str, ...]
    """The files of the table; none for rows without a key, which are only added to."""
    changes: tuple[str, ...]


class MergeCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the merge of one bucket."""

    changed: int = 0
    """Keys whose row is new or another one."""
    deleted: int = 0
    """Keys whose row went, or was marked as deleted."""
    moved: int = 0
    """Keys with changes in several queues."""


class MergeTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that merge the changes of a bucket with its rows, and write them as new files."""

    buckets: Sequence[BucketFiles]
    identity: StateIdentity
    directory: StagingDirectory
    storage: Mapping[str, str] = {}
    compression: str = COMPRESSION
    body_fields: tuple[BodyField, ...] | None = None

    def __len__(self) -> int:
        return len(self.buckets)

    def run(self, number: int) -> TaskResult:
        """Merge one bucket."""
        work, identity = self.buckets[number], self.identity
        schema = identity.file_schema(self.body_fields or ())
        changes = self._read(work.changes, identity.change_schema(self.body_fields))
        if work.bucket == NO_KEY:
            rows, counts = changes, MergeCounts()
        else:
            rows, counts = merged(self._read(work.present, schema), changes, identity)
        rows = rows.select(schema.names)
        files = write_buckets(
            [rows], self.directory, schema, identity.key_buckets, self.compression
        )
        payload = msgspec.json.encode(counts).decode()
        return TaskResult(files=tuple(files), payload=payload)

    def _read(self, paths: Sequence[str], schema: pa.Schema) -> pa.Table:
        if not paths:
            return schema.empty_table()
        with explained_read(paths[0], self.storage):
            return pa.concat_tables(
                pq.read_table(open_source(path, self.storage), schema=schema, partitioning=None)
                for path in paths
            )


class LatestChanges:
    """Gathers changes, and keeps the last one of each key and queue."""

    def __init__(self, identity: StateIdentity) -> None:
        self.counts = ChangeCounts()
        self._identity = identity
        self._latest = identity.change_schema().empty_table()
        self._gathered: list[pa.RecordBatch] = []
        self._rows = 0
        self._without_key: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add messages of one or more queues."""
        changes = as_changes(batch, self._identity)
        keys = changes.column("key")
        if keys.null_count:
            self._set_aside(changes.filter(keys.is_null()))
            changes = changes.filter(keys.is_valid())
        self._gathered.append(changes)
        self._rows += len(changes)
        if self._rows >= max(REDUCE_ROWS, self._latest.num_rows):
            self._reduce()

    def tables(self) -> Iterator[pa.Table]:
        """The last changes, and the rows without a key."""
        self._reduce()
        yield self._latest
        yield pa.Table.from_batches(self._without_key, self._identity.change_schema())

    def _reduce(self) -> None:
        new = pa.Table.from_batches(self._gathered, self._identity.change_schema())
        self._latest = latest_by_queue(pa.concat_tables([self._latest, new]))
        self._gathered, self._rows = [], 0

    def _set_aside(self, rows: pa.RecordBatch) -> None:
        self._without_key.append(rows)
        self.counts.null_keys += len(rows)
        if not self.counts.first_null_key:
            broker, queue_id, at = (
                rows.column(name)[0].as_py() for name in ("broker", "queue_id", "queue_offset")
            )
            self.counts.first_null_key = f"{broker}, queue {queue_id}, offset {at}"


def as_changes(batch: pa.RecordBatch, identity: StateIdentity) -> pa.RecordBatch:
    """Messages as changes: with the key of the table, null if empty, and whether they delete."""
    properties = batch.column("properties")
    name = identity.key_property
    keys = batch.column("key") if name is None else pc.map_lookup(properties, name, "first")
    keys = pc.if_else(pc.equal(keys, ""), pa.scalar(None, pa.string()), keys)
    mark = pc.fill_null(pc.equal(pc.map_lookup(properties, TOMBSTONE, "first"), "true"), False)
    bodies = pc.is_in(batch.column("body"), pa.array(TOMBSTONE_BODIES, pa.binary()))
    columns = {**{field: batch.column(field) for field in identity.columns}, "key": keys}
    columns[DELETED] = pc.or_(mark, bodies)
    return pa.RecordBatch.from_pydict(columns, schema=identity.change_schema())


def with_body_columns(rows: pa.Table, parser: BodyParser, schema: pa.Schema) -> pa.Table:
    """Changes with the columns for the fields of their bodies; a tombstone has none."""
    bodies, is_deleted = rows["body"].combine_chunks(), rows[DELETED].combine_chunks()
    for field, column in zip(parser.schema, parser.parse(bodies, is_deleted), strict=True):
        rows = rows.append_column(field, column)
    return rows.select(schema.names)


def merged(
    present: pa.Table, changes: pa.Table, identity: StateIdentity
) -> tuple[pa.Table, MergeCounts]:
    """The rows of a bucket after these changes. Pure."""
    if not identity.keeps_deleted:
        present = present.append_column(DELETED, pa.repeat(False, present.num_rows))
    names = changes.schema.names
    is_new = pa.chunked_array(
        [pa.repeat(False, present.num_rows), pa.repeat(True, changes.num_rows)]
    )
    both = pa.concat_tables([present.select(names), changes])
    latest, moved = latest_by_key(both.append_column("is_new", is_new))
    was_changed = latest["is_new"]
    is_gone = pc.and_(was_changed, latest[DELETED])
    deleted = pc.sum(is_gone).as_py() or 0
    changed = (pc.sum(was_changed).as_py() or 0) - deleted
    rows = latest if identity.keeps_deleted else latest.filter(pc.invert(latest[DELETED]))
    return rows.drop_columns("is_new"), MergeCounts(changed=changed, deleted=deleted, moved=moved)


def write_buckets(
    tables: Iterable[pa.Table],
    directory: StagingDirectory,
    schema: pa.Schema,
    buckets: KeyBuckets,
    compression: str = COMPRESSION,
) -> list[DataFile]:
    """Write rows to new files by bucket; none stays when an error is raised."""
    writer = PartitionedWriter(directory, schema, compression, buckets)
    try:
        for table in tables:
            for batch in table.combine_chunks().to_batches():
                writer.write(batch)
        return writer.close()
    except BaseException:
        writer.abort()
        raise


def staged_path(directory: StagingDirectory, file: DataFile) -> str:
    """The path or URL of a file that no commit names yet."""
    if isinstance(directory, Path):
        return str(directory / file.name)
    return directory.location.file(file.path)
