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

from roquet.spark.jobs.coverage import Ints, Span
from roquet.spark.jobs.errand import Answer
from roquet.spark.jobs.footprint import keyed, read

PLACES_MAX: Final = 1_000
"""That one task tells of: whoever has more looks at the page for how many."""


class Place(msgspec.Struct, frozen=True, order=True):
    """A row of the sink, and the message that it became."""

    writer: str
    row: int
    broker: str
    queue_id: int
    offset: int

    def __str__(self) -> str:
        return f"{self.broker}:{self.queue_id} at {self.offset}"


class Locating(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of files in which rows are looked for; for Spark's workers."""

    groups: Sequence[Sequence[str]]
    topic: str
    wanted: Mapping[str, Sequence[Span]]
    """Of each writer the rows."""

    def __len__(self) -> int:
        return len(self.groups)

    def do(self, number: int) -> Answer:
        """One group of files."""
        found: list[Place] = []
        for path in self.groups[number]:
            if len(found) < PLACES_MAX:
                found += places(read(path, self.topic, keys=True), self.wanted)
        return Answer(found=msgspec.json.encode(found[:PLACES_MAX]).decode())


def places(rows: pa.Table, wanted: Mapping[str, Sequence[Span]]) -> list[Place]:
    """Where the wanted rows are. Pure."""
    rows, writers, numbers = keyed(rows)
    texts = writers.cast(writers.type.value_type)
    found: list[Place] = []
    for writer, spans in sorted(wanted.items()):
        is_own = pc.equal(texts, writer).to_numpy(zero_copy_only=False)
        is_wanted = is_own & _within(numbers, spans)
        at = pa.array(np.flatnonzero(is_wanted)[:PLACES_MAX])
        found += _told(rows.take(at), writer, numbers[is_wanted][:PLACES_MAX].tolist())
    return found


def _within(numbers: Ints, spans: Sequence[Span]) -> NDArray[np.bool_]:
    """Which numbers lie in some span; spans come in order."""
    starts = np.array([span.start for span in spans])
    ends = np.array([span.end for span in spans])
    before = np.searchsorted(starts, numbers, "right") - 1
    found: NDArray[np.bool_] = (before >= 0) & (numbers < ends[before])
    return found


def _told(rows: pa.Table, writer: str, numbers: Sequence[int]) -> Iterator[Place]:
    columns = [rows[name].to_pylist() for name in ("broker", "queue_id", "queue_offset")]
    for number, broker, queue_id, offset in zip(numbers, *columns, strict=True):
        yield Place(writer, number, broker, queue_id, offset)
