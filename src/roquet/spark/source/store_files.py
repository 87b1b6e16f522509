"""Store files as a DataFrame: commit-log files read in place, without a broker.

    spark.read.format("roquet").option("store", "/var/lib/roquet").option("topic", "orders")

The directory may be a Roquet or an Apache broker's, in use or a copy: nothing is written and no
lock is taken. Rows come in log order. The log holds more than consumers see: half messages, delayed
ones, and those of deleted topics; column `message_type` tells them apart.
"""

import mmap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition

from roquet.arrow.log_file import DAMAGE_MAX, LogFile, LogFileDamage
from roquet.arrow.records import SCHEMA, BatchTooLarge, RecordColumns
from roquet.lake.schema import check_fields, ddl
from roquet.log_records import logger
from roquet.model.errors import ConfigError, RecordError
from roquet.model.settings import parse_bool, suggest
from roquet.spark.offset_spec import AtTime, TimeAgo
from roquet.spark.options import SOURCE_OPTIONS, SourceOptions, matching, parse
from roquet.spark.source.log_splits import LogSplit, plan_splits, used_bytes

log = logger(__name__)

PROBLEM: Final = "problem"
"""The column that says what is wrong with damaged bytes; null for messages."""

_OWN_OPTIONS: Final = ("store", "badRecords", "broker")
_SHARED_OPTIONS: Final = (
    "topic", "topicPattern", "columns", "startingTime", "endingTime", "failOnDataLoss",
    "decompress", "minPartitions", "maxPartitions",
)  # fmt: skip
"""Options of reads from brokers that apply to store files as well."""


class StoreFileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a read of store files."""

    folder: str
    source: SourceOptions
    """The settings shared with reads from brokers."""
    has_topics: bool
    """Whether only some topics are read."""
    bad_records: bool = False
    """Damaged bytes become rows, whose `problem` says what is wrong, instead of an error."""
    broker: str = ""
    """The value of column `broker`: the files do not contain the broker's name."""


def parse_store(options: Mapping[str, str], now_ms: int) -> StoreFileOptions:
    """The settings of Spark's options; ConfigError for options that do not apply to files.

    `now_ms` is the time that relative times refer to.
    """
    allowed = {name.lower(): name for name in (*_OWN_OPTIONS, *_SHARED_OPTIONS)}
    for name in options:
        if name.lower() not in allowed:
            known = {other.lower() for other in SOURCE_OPTIONS}
            if name.lower() in known:
                text = f"option {name!r} is for brokers: a read of store files has none"
                raise ConfigError(text)
            raise ConfigError(f"no option {name!r}{suggest(name, allowed.values())}")
    low = {name.lower(): text for name, text in options.items()}
    shared = {name: low[name.lower()] for name in _SHARED_OPTIONS if name.lower() in low}
    has_topics = "topic" in shared or "topicPattern" in shared
    if not has_topics:
        shared["topicPattern"] = ".*"
    return StoreFileOptions(
        folder=low["store"],
        source=_with_fixed_times(parse({**shared, "namesrv": "none:1"}, {}), now_ms),
        has_topics=has_topics,
        bad_records=parse_bool(low.get("badrecords", "false"), "badRecords"),
        broker=low.get("broker", ""),
    )


def _with_fixed_times(settings: SourceOptions, now_ms: int) -> SourceOptions:
    """The settings with relative times made absolute, so that all tasks use the same ones."""
    first, last = settings.starting_offsets, settings.ending_offsets
    return msgspec.structs.replace(
        settings,
        starting_offsets=AtTime(now_ms - first.ms) if isinstance(first, TimeAgo) else first,
        ending_offsets=AtTime(now_ms - last.ms) if isinstance(last, TimeAgo) else last,
    )


def schema_of(settings: StoreFileOptions) -> str:
    """The selected columns as SQL, with `problem` when damaged bytes are read."""
    columns = ddl(settings.source.columns)
    return f"{columns}, {PROBLEM} string" if settings.bad_records else columns


class StoreFileReader(DataSourceReader):
    """Reads the log files of a store."""

    def __init__(self, settings: StoreFileOptions, fields: Sequence[tuple[str, str]]) -> None:
        self._settings = settings
        self._columns = tuple(name for name, _ in fields)
        ours = [field for field in fields if field != (PROBLEM, "string")]
        if len(ours) == len(fields) or ours:
            check_fields(ours)

    def partitions(self) -> Sequence[InputPartition]:
        """The present log files, cut into splits for each task."""
        tasks = plan_splits(Path(self._settings.folder), self._settings.source)
        return [InputPartition(splits) for splits in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one task's splits."""
        for split in partition.value or ():
            yield from LogSplitReader(self._settings, self._columns, split).batches()


class LogSplitReader:
    """Reads one log split, in a worker."""

    def __init__(self, settings: StoreFileOptions, columns: Sequence[str], split: LogSplit) -> None:
        self._settings = settings
        self._order = list(columns)
        self._columns = [name for name in columns if name != PROBLEM]
        self._split = split

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The messages, and damaged bytes as rows with badRecords=true."""
        split, settings = self._split, self._settings
        data = _map_file(split.path)
        file = LogFile(data, split.position, used_bytes(Path(split.path)), split.until)
        for block in file.walk(split.start, split.stop):
            if isinstance(block, LogFileDamage):
                if self._is_row(block):
                    yield self._row_of(block)
                continue
            restore = settings.source.decompress
            records = self._select(RecordColumns(block, broker=settings.broker, restore=restore))
            if len(records):
                yield from self._batches_of(records)

    def _select(self, records: RecordColumns) -> RecordColumns:
        """The records of the read's topics and times."""
        source, mask = self._settings.source, np.ones(len(records), np.bool_)
        if self._settings.has_topics:
            topics = records.topics()
            wanted = source.topics
            if source.topic_pattern is not None:
                wanted = matching(source.topic_pattern, topics.unique().to_pylist(), ())
            mask &= pc.is_in(topics, pa.array(list(wanted), pa.string())).to_numpy(
                zero_copy_only=False
            )
        since, until = _time_ms(source.starting_offsets), _time_ms(source.ending_offsets)
        if since is not None:
            mask &= records.stored_ms >= since
        if until is not None:
            mask &= records.stored_ms < until
        return records if mask.all() else records.where(mask)

    def _batches_of(self, records: RecordColumns) -> Iterator[pa.RecordBatch]:
        """The messages; one whose body cannot be decompressed counts as damaged bytes."""
        try:
            rows = self._rows_of(records)
        except BatchTooLarge:
            for half in records.halves():
                yield from self._batches_of(half)
        except RecordError:
            yield from self._batches_around_damage(records)
        else:
            yield rows

    def _batches_around_damage(self, records: RecordColumns) -> Iterator[pa.RecordBatch]:
        first, positions = 0, records.positions
        for row, why in records.unreadable():
            if row > first:
                yield from self._batches_of(records.between(first, row))
            raw = records.raw(row)
            position, head = int(positions[row]), bytes(raw[:DAMAGE_MAX])
            damage = LogFileDamage(position=position, size=len(raw), why=why, found=head)
            if self._is_row(damage):
                yield self._row_of(damage)
            first = row + 1
        if first < len(records):
            yield from self._batches_of(records.between(first, len(records)))

    def _rows_of(self, records: RecordColumns) -> pa.RecordBatch:
        batch = records.batch(self._columns)
        return self._with_problem(batch, pa.nulls(len(records), pa.string()))

    def _with_problem(self, batch: pa.RecordBatch, problems: pa.Array) -> pa.RecordBatch:
        if PROBLEM not in self._order:
            return batch
        columns = {**dict(zip(self._columns, batch.columns, strict=True)), PROBLEM: problems}
        return pa.RecordBatch.from_pydict({name: columns[name] for name in self._order})

    def _is_row(self, damage: LogFileDamage) -> bool:
        """Whether damaged bytes become a row.

        Otherwise raises RecordError, unless they are the log's end or failOnDataLoss is false.
        """
        if self._settings.bad_records:
            return True
        if not damage.is_end:
            what = f"{self._split.path}: {damage.size} bytes at {damage.position}: {damage.why}"
            if self._settings.source.fail_on_data_loss:
                raise RecordError(
                    f"{what}; badRecords=true returns damaged bytes as rows, failOnDataLoss=false "
                    "skips them"
                )
            log.warning("%s; skipped, since failOnDataLoss=false", what)
        return False

    def _row_of(self, damage: LogFileDamage) -> pa.RecordBatch:
        size = min(damage.size, 2**31 - 1)  # the column is an int; whole files may be missing
        known: Mapping[str, Any] = MappingProxyType(
            {"position": damage.position, "size": size, "body": damage.found}
        )
        fields = [SCHEMA.field(name) for name in self._columns]
        columns = [pa.array([known.get(field.name)], field.type) for field in fields]
        batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
        return self._with_problem(batch, pa.array([damage.why], pa.string()))


def _time_ms(edge: Any) -> int | None:
    return edge.ms if isinstance(edge, AtTime) else None


def _map_file(path: str) -> mmap.mmap | bytes:
    try:
        with Path(path).open("rb") as file:
            if not Path(path).stat().st_size:
                return b""  # nothing to map
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as error:
        raise RecordError(
            f"{path} is gone: retention deleted it meanwhile, or the worker is on another machine "
            "(the directory must exist on each machine)"
        ) from error
