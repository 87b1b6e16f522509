"""Places: where in a topic rows of our sink are that were sent more than once.

A second look at the files, for the few rows whose numbers are there twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from roquet.spark.jobs.audit.file_summary import numbered_rows, read_audit_columns
from roquet.spark.jobs.offset_counts import Ints, NumberRange
from roquet.spark.jobs.task_set import TaskResult

LOCATIONS_MAX: Final = 1_000
"""That one task tells of: whoever has more looks at the page for how many."""


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
    """Groups of files in which rows are looked for; for Spark's workers."""

    groups: Sequence[Sequence[str]]
    topic: str
    wanted: Mapping[str, Sequence[NumberRange]]
    """Of each writer the rows."""

    def __len__(self) -> int:
        return len(self.groups)

    def do(self, number: int) -> TaskResult:
        """One group of files."""
        found: list[SinkRowLocation] = []
        for path in self.groups[number]:
            if len(found) < LOCATIONS_MAX:
                found += locate_rows(read_audit_columns(path, self.topic, keys=True), self.wanted)
        return TaskResult(found=msgspec.json.encode(found[:LOCATIONS_MAX]).decode())


def locate_rows(
    rows: pa.Table, wanted: Mapping[str, Sequence[NumberRange]]
) -> list[SinkRowLocation]:
    """Where the wanted rows are. Pure."""
    rows, writers, numbers = numbered_rows(rows)
    texts = writers.cast(writers.type.value_type)
    found: list[SinkRowLocation] = []
    for writer, spans in sorted(wanted.items()):
        is_own = pc.equal(texts, writer).to_numpy(zero_copy_only=False)
        is_wanted = is_own & _in_intervals(numbers, spans)
        at = pa.array(np.flatnonzero(is_wanted)[:LOCATIONS_MAX])
        found += _locations(rows.take(at), writer, numbers[is_wanted][:LOCATIONS_MAX].tolist())
    return found


def _in_intervals(numbers: Ints, spans: Sequence[NumberRange]) -> NDArray[np.bool_]:
    """Which numbers lie in some span; spans come in order."""
    starts = np.array([span.start for span in spans])
    ends = np.array([span.end for span in spans])
    before = np.searchsorted(starts, numbers, "right") - 1
    found: NDArray[np.bool_] = (before >= 0) & (numbers < ends[before])
    return found


def _locations(rows: pa.Table, writer: str, numbers: Sequence[int]) -> Iterator[SinkRowLocation]:
    columns = [rows[name].to_pylist() for name in ("broker", "queue_id", "queue_offset")]
    for number, broker, queue_id, offset in zip(numbers, *columns, strict=True):
        yield SinkRowLocation(writer, number, broker, queue_id, offset)
