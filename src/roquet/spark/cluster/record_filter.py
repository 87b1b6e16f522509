"""Record filter: the tags or SQL expression of a pull, and the same filter on its reply.

A broker compares hashes of tags, which may collide, so tags are compared again as text. A SQL
expression is evaluated by the broker alone.
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
    """Filters the messages of one task; it remembers row keys for option dropDoubles."""

    def __init__(self, settings: "SourceOptions") -> None:
        self._tags = settings.tags
        self._sql = settings.sql92
        self._deduplicator = Deduplicator() if settings.drop_doubles else None

    @property
    def takes_all(self) -> bool:
        """Whether brokers filter nothing, so that every missing offset is a lost message."""
        return self._tags is None and self._sql is None

    @property
    def expression(self) -> tuple[str, str]:
        """The expression of a pull and its type, TAG or SQL92."""
        if self._sql is not None:
            return self._sql, SQL92
        return (ALL if self._tags is None else f" {SEPARATOR} ".join(self._tags)), TAG

    def apply(self, records: "RecordColumns") -> "RecordColumns":
        """The records without hash collisions of tags and, with dropDoubles, without duplicates."""
        if self._tags is not None and len(records):
            records = _where(records, _is_among(records.property(names.TAGS), self._tags))
        if self._deduplicator is not None and len(records):
            keys = records.property(names.SINK_ROW)
            records = _where(records, self._deduplicator.first_occurrences(keys))
        return records


def _where(records: "RecordColumns", wanted: NDArray[np.bool_]) -> "RecordColumns":
    return records if wanted.all() else records.where(wanted)


def _is_among(values: pa.Array, wanted: tuple[str, ...]) -> NDArray[np.bool_]:
    mask = pc.is_in(values, pa.array(wanted, pa.string()))
    return np.asarray(mask.to_numpy(zero_copy_only=False), np.bool_)
