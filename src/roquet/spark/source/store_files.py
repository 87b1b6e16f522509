"""Store files as a table: commit-log files read where they lie, with no broker.

    spark.read.format("roquet").option("store", "/var/lib/roquet").option("topic", "orders")

The directory may be ours or a genuine broker's, in use or a copy: nothing is written and no lock is
taken. Rows come in the order of the log. The log holds more than consumers see: half messages,
delayed ones, and those of deleted topics; `message_type` says what each is.
"""

import mmap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql.datasource import DataSourceReader, InputPartition

from roquet.log_records import logger
from roquet.model.errors import ConfigError, RecordError
from roquet.model.settings import parse_bool, suggest
from roquet.spark.offset_spec import AtTime, TimeAgo
from roquet.spark.options import SOURCE_OPTIONS, SourceOptions, parse
from roquet.spark.schema import check_fields, ddl
from roquet.spark.source.log_splits import LogSplit, plan_splits, used_bytes
from roquet.spark.topic_pattern import matching

if TYPE_CHECKING:
    import pyarrow as pa

    from roquet.arrow.log_file import LogFileDamage
    from roquet.arrow.records import RecordColumns

log = logger(__name__)

PROBLEM: Final = "problem"
"""The column that says what is wrong with a damaged place; null for messages."""

_OWN_OPTIONS: Final = ("store", "badRecords", "broker")
_SHARED_OPTIONS: Final = (
    "topic", "topicPattern", "columns", "startingTime", "endingTime", "failOnDataLoss",
    "decompress", "minPartitions", "maxPartitions",
)  # fmt: skip
"""Options of reads from brokers that mean something here, too."""


class StoreFileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a user said of a read of store files."""

    folder: str
    given: SourceOptions
    """What is said of any read; without topics all are read."""
    has_topics: bool
    bad_records: bool = False
    """Damaged places are rows, whose `problem` says what is wrong, instead of an error."""
    broker: str = ""
    """What column `broker` says: files do not know whose they are."""


def parse_store(options: Mapping[str, str], now_ms: int) -> StoreFileOptions:
    """The settings of Spark's options; ConfigError for one that means nothing for files."""
    allowed = {name.lower(): name for name in (*_OWN_OPTIONS, *_SHARED_OPTIONS)}
    for name in options:
        if name.lower() not in allowed:
            known = {other.lower() for other in SOURCE_OPTIONS}
            why = "is for brokers: a read of store files has none" if name.lower() in known else ""
            raise ConfigError(
                f"option {name!r} {why}"
                if why
                else f"no option {name!r}{suggest(name, allowed.values())}"
            )
    low = {name.lower(): text for name, text in options.items()}
    shared = {name: low[name.lower()] for name in _SHARED_OPTIONS if name.lower() in low}
    has_topics = "topic" in shared or "topicPattern" in shared
    if not has_topics:
        shared["topicPattern"] = ".*"
    return StoreFileOptions(
        folder=low["store"],
        given=_with_fixed_times(parse({**shared, "namesrv": "none:1"}, {}), now_ms),
        has_topics=has_topics,
        bad_records=parse_bool(low.get("badrecords", "false"), "badRecords"),
        broker=low.get("broker", ""),
    )


def _with_fixed_times(given: SourceOptions, now_ms: int) -> SourceOptions:
    """The same with times that do not move while tasks run."""
    first, last = given.starting_offsets, given.ending_offsets
    return msgspec.structs.replace(
        given,
        starting_offsets=AtTime(now_ms - first.ms) if isinstance(first, TimeAgo) else first,
        ending_offsets=AtTime(now_ms - last.ms) if isinstance(last, TimeAgo) else last,
    )


def schema_of(settings: StoreFileOptions) -> str:
    """The chosen columns, and what is wrong with a row when that is asked for."""
    columns = ddl(settings.given.columns)
    return f"{columns}, {PROBLEM} string" if settings.bad_records else columns


class StoreFileReader(DataSourceReader):
    """Reads a store's log files, each part by a task."""

    def __init__(self, settings: StoreFileOptions, fields: Sequence[tuple[str, str]]) -> None:
        self._settings = settings
        self._columns = tuple(name for name, _ in fields)
        ours = [field for field in fields if field != (PROBLEM, "string")]
        if len(ours) == len(fields) or ours:
            check_fields(ours)

    def partitions(self) -> Sequence[InputPartition]:
        """The files as they are now."""
        found = plan_splits(Path(self._settings.folder), self._settings.given)
        return [InputPartition(part) for part in found]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The messages of some parts."""
        for part in partition.value or ():
            yield from LogSplitReader(self._settings, self._columns, part).batches()


class LogSplitReader:
    """The reading of one part, in a worker."""

    def __init__(self, settings: StoreFileOptions, columns: Sequence[str], part: LogSplit) -> None:
        self._settings = settings
        self._order = list(columns)
        self._columns = [name for name in columns if name != PROBLEM]
        self._part = part

    def batches(self) -> Iterator["pa.RecordBatch"]:
        """The messages, and damaged places where they are asked for."""
        from roquet.arrow.log_file import LogFile, LogFileDamage
        from roquet.arrow.records import RecordColumns

        part, settings = self._part, self._settings
        data = _map_file(part.path)
        file = LogFile(data, part.position, used_bytes(Path(part.path)), part.until)
        for piece in file.walk(part.start, part.stop):
            if isinstance(piece, LogFileDamage):
                if self._is_told(piece):
                    yield self._row_of(piece)
                continue
            restore = settings.given.decompress
            found = self._wanted(RecordColumns(piece, broker=settings.broker, restore=restore))
            if len(found):
                yield from self._told(found)

    def _wanted(self, records: "RecordColumns") -> "RecordColumns":
        """Those of the topics and the times that are asked for."""
        import numpy as np
        import pyarrow.compute as pc

        given, wanted = self._settings.given, np.ones(len(records), np.bool_)
        if self._settings.has_topics:
            topics = records.topics()
            asked = given.topics
            if given.topic_pattern is not None:
                asked = matching(given.topic_pattern, topics.unique().to_pylist(), ())
            wanted &= pc.is_in(topics, _string_array(asked)).to_numpy(zero_copy_only=False)
        since, until = _time_ms(given.starting_offsets), _time_ms(given.ending_offsets)
        if since is not None:
            wanted &= records.stored_ms >= since
        if until is not None:
            wanted &= records.stored_ms < until
        return records if wanted.all() else records.where(wanted)

    def _told(self, records: "RecordColumns") -> Iterator["pa.RecordBatch"]:
        """The messages; one whose body cannot be restored is a damaged place."""
        try:
            rows = self._rows_of(records)
        except RecordError:
            yield from self._closely(records)
        else:
            yield rows

    def _closely(self, records: "RecordColumns") -> Iterator["pa.RecordBatch"]:
        from roquet.arrow.log_file import DAMAGE_MAX, LogFileDamage

        first, positions = 0, records.positions
        for row, why in records.unreadable():
            if row > first:
                yield self._rows_of(records.between(first, row))
            raw = records.raw(row)
            position, found = int(positions[row]), bytes(raw[:DAMAGE_MAX])
            damage = LogFileDamage(position=position, size=len(raw), why=why, found=found)
            if self._is_told(damage):
                yield self._row_of(damage)
            first = row + 1
        if first < len(records):
            yield self._rows_of(records.between(first, len(records)))

    def _rows_of(self, records: "RecordColumns") -> "pa.RecordBatch":
        import pyarrow as pa

        batch = records.batch(self._columns)
        return self._with_problem(batch, pa.nulls(len(records), pa.string()))

    def _with_problem(self, batch: "pa.RecordBatch", problems: "pa.Array") -> "pa.RecordBatch":
        import pyarrow as pa

        if PROBLEM not in self._order:
            return batch
        columns = {**dict(zip(self._columns, batch.columns, strict=True)), PROBLEM: problems}
        return pa.RecordBatch.from_pydict({name: columns[name] for name in self._order})

    def _is_told(self, damage: "LogFileDamage") -> bool:
        """Whether it is a row; otherwise an error, unless it is the end or may be stepped over."""
        if self._settings.bad_records:
            return True
        if not damage.is_end:
            what = f"{self._part.path}: {damage.size} bytes at {damage.position}: {damage.why}"
            if self._settings.given.fail_on_data_loss:
                raise RecordError(
                    f"{what}; badRecords=true gives such places as rows, failOnDataLoss=false "
                    "steps over them"
                )
            log.warning("%s; going on, as failOnDataLoss=false says", what)
        return False

    def _row_of(self, damage: "LogFileDamage") -> "pa.RecordBatch":
        import pyarrow as pa

        from roquet.arrow.records import SCHEMA

        size = min(damage.size, 2**31 - 1)  # the column's most; whole files may be missing
        known: Mapping[str, Any] = MappingProxyType(
            {"position": damage.position, "size": size, "body": damage.found}
        )
        fields = [SCHEMA.field(name) for name in self._columns]
        columns = [pa.array([known.get(field.name)], field.type) for field in fields]
        batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
        return self._with_problem(batch, pa.array([damage.why], pa.string()))


def _string_array(names: Sequence[str]) -> "pa.Array":
    import pyarrow as pa

    return pa.array(list(names), pa.string())


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
            f"{path} is gone: retention took it meanwhile, or a worker on another machine was to "
            "read it (the directory must be there on each of them)"
        ) from error
