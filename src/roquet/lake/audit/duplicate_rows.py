"""Duplicate rows: the messages of rows that our sink sent more than once.

Reads the files a second time, for the few row numbers that occur twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquet.lake.audit.file_summary import numbered_rows, read_audit_columns
from roquet.lake.intervals import NumberRange, OffsetSet
from roquet.lake.task_set import TaskResult

LOCATIONS_MAX: Final = 1_000
"""Locations that one task returns; the report counts all duplicates without them."""


class SinkRowLocation(msgspec.Struct, frozen=True, order=True):
    """A row of the sink, and the message that it became."""

    writer: str
    row: int
    broker: str
    queue_id: int
    offset: int

    def __str__(self) -> str:
        return f"{self.broker}:{self.queue_id} at {self.offset}"


class RowSearchTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that search a group of files each for rows of the sink."""

    groups: Sequence[Sequence[str]]
    topic: str
    wanted: Mapping[str, Sequence[NumberRange]]
    """The row numbers of each writer."""
    storage: Mapping[str, str] = {}
    """The options of the object store that the files lie in."""

    def __len__(self) -> int:
        return len(self.groups)

    def run(self, number: int) -> TaskResult:
        """Search the files of one group."""
        locations: list[SinkRowLocation] = []
        for path in self.groups[number]:
            for rows in read_audit_columns(path, self.topic, self.storage, keys=True):
                if len(locations) >= LOCATIONS_MAX:
                    break
                locations += locate_rows(rows, self.wanted)
        return TaskResult(payload=msgspec.json.encode(locations[:LOCATIONS_MAX]).decode())


def locate_rows(
    rows: pa.RecordBatch, wanted: Mapping[str, Sequence[NumberRange]]
) -> list[SinkRowLocation]:
    """The locations of wanted rows, at most LOCATIONS_MAX of each writer. Pure."""
    numbered = numbered_rows(rows)
    writers = numbered.writers.cast(numbered.writers.type.value_type)
    locations: list[SinkRowLocation] = []
    for writer, spans in sorted(wanted.items()):
        is_own = pc.equal(writers, writer).to_numpy(zero_copy_only=False)
        starts, ends = np.array([(span.start, span.end) for span in spans], np.int64).T
        is_wanted = OffsetSet(starts, ends).holds(numbered.numbers)
        places = np.flatnonzero(is_own & is_wanted)[:LOCATIONS_MAX]
        own_rows = numbered.rows.take(pa.array(places))
        locations += _locations(own_rows, writer, numbered.numbers[places].tolist())
    return locations


def _locations(
    rows: pa.RecordBatch, writer: str, numbers: Sequence[int]
) -> Iterator[SinkRowLocation]:
    columns = [rows[name].to_pylist() for name in ("broker", "queue_id", "queue_offset")]
    for number, broker, queue_id, offset in zip(numbers, *columns, strict=True):
        yield SinkRowLocation(writer, number, broker, queue_id, offset)
