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
from roquet.rules.filter import SEPARATOR
from roquet.spark.doubles import Doubles

if TYPE_CHECKING:
    from roquet.arrow.records import Records
    from roquet.spark.options import SourceOptions


class Selection:
    """What of some queues is taken; one for each task, since it remembers what was there."""

    def __init__(self, settings: "SourceOptions") -> None:
        self._tags = settings.tags
        self._sql = settings.sql92
        self._doubles = Doubles() if settings.drop_doubles else None

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

    def of(self, records: "Records") -> "Records":
        """The records that are really wanted."""
        if self._tags is not None and len(records):
            records = _only(records, _among(records.property(names.TAGS), self._tags))
        if self._doubles is not None and len(records):
            records = _only(records, self._doubles.firsts(records.property(names.SINK_ROW)))
        return records


def _only(records: "Records", wanted: NDArray[np.bool_]) -> "Records":
    return records if wanted.all() else records.where(wanted)


def _among(values: pa.Array, wanted: tuple[str, ...]) -> NDArray[np.bool_]:
    found = pc.is_in(values, pa.array(wanted, pa.string()))
    return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)
