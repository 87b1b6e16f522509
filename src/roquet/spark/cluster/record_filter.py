"""Selection: which messages a read takes, as brokers are told, and as their answers are checked.

A broker compares hashes of tags, and some tags have the same: what comes is compared again as text.
What an expression says of properties brokers evaluate to the end.
"""

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from roquet.model import properties as names
from roquet.model.subscription import ALL, SQL92, TAG
from roquet.rules.tag_filter import SEPARATOR
from roquet.spark.cluster.deduplication import Deduplicator

if TYPE_CHECKING:
    from roquet.arrow.records import RecordColumns
    from roquet.spark.options import SourceOptions


class RecordFilter:
    """What of some queues is taken; one for each task, since it remembers what was there."""

    def __init__(self, settings: "SourceOptions") -> None:
        self._tags = settings.tags
        self._sql = settings.sql92
        self._doubles = Deduplicator() if settings.drop_doubles else None

    @property
    def takes_all(self) -> bool:
        """Whether no message is left out, so that each one that is missing is lost."""
        return self._tags is None and self._sql is None

    @property
    def expression(self) -> tuple[str, str]:
        """What a pull says of it: the expression, and its kind."""
        if self._sql is not None:
            return self._sql, SQL92
        return (ALL if self._tags is None else f" {SEPARATOR} ".join(self._tags)), TAG

    def of(self, records: "RecordColumns") -> "RecordColumns":
        """The records that are really wanted."""
        if self._tags is not None and len(records):
            records = _where(records, _is_among(records.property(names.TAGS), self._tags))
        if self._doubles is not None and len(records):
            records = _where(records, self._doubles.firsts(records.property(names.SINK_ROW)))
        return records


def _where(records: "RecordColumns", wanted: NDArray[np.bool_]) -> "RecordColumns":
    return records if wanted.all() else records.where(wanted)


def _is_among(values: pa.Array, wanted: tuple[str, ...]) -> NDArray[np.bool_]:
    found = pc.is_in(values, pa.array(wanted, pa.string()))
    return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)
