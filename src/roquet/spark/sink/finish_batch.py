"""Settle: a batch that was decided is made visible, each row once, whatever happened before.

    begin ──▶ tell the ends ──▶ all done? ──▶ over
                 ▲                │ no: some were refused, or nobody answered
                 │                ▼
                 └── less what is visible ◀── wait until nothing is on its way, and read

A broker may deliver a half message twice that is committed twice. So one whose end may have been
told before is committed only when its message is not there to be seen.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from roquet.log_records import logger
from roquet.model.errors import CallTimeout
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.queue_offsets import OffsetsJson
from roquet.spark.sink.commit_half_messages import CommitOutcome, HalfMessageRef
from roquet.spark.sink.commit_records import CommitRecord
from roquet.spark.sink.half_message_refs import row_codes

log = logger(__name__)

QUIET_MS: Final = 5_000
"""After this an end that was sent is done or will not be: genuine brokers refuse what has waited
for 3 s in their queue, ours as well."""


RowCodes = NDArray[np.int64]


class VisibilityCheck(Protocol):
    """Who reads what became visible: `visible.Watch`."""

    def since(
        self, ends: OffsetsJson, prefix: str
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], OffsetsJson]:
        """The rows seen, those given up, and how far both were read."""


class BatchFinisher:
    """Settles batches."""

    def __init__(
        self,
        end: Callable[[Sequence[HalfMessageRef]], dict[int, CommitOutcome]],
        watch: VisibilityCheck,
        pause: Callable[[int], object],
        timeout_ms: int,
        settled_ms: int = QUIET_MS,
    ) -> None:
        self._end = end
        self._watch = watch
        self._pause = pause
        self._timeout_ms = timeout_ms
        self._settled_ms = settled_ms

    def settle(self, record: CommitRecord, *, fresh: bool) -> None:
        """Return when each row is visible. `fresh`: no end of this batch was ever told."""
        table = record.halves
        numbers = row_codes(table["partition"].combine_chunks(), table["row"].combine_chunks())
        open_, given_up = np.ones(len(numbers), np.bool_), np.zeros(len(numbers), np.bool_)
        ends, looks = record.ends, not fresh
        progress_ms = SYSTEM_CLOCK.monotonic_ms()
        while open_.any():
            if looks:
                self._pause(self._settled_ms)
                seen, laid, ends = self._watch.since(ends, record.prefix)
                open_ &= ~np.isin(numbers, seen)
                given_up |= np.isin(numbers, laid)
                log.info("%s: %d rows are not visible yet", record.prefix, open_.sum())
            before = int(open_.sum())
            outcomes = self._end(_remaining(table, open_, given_up))
            for number, outcome in outcomes.items():
                if outcome is CommitOutcome.DONE:
                    open_[number] = False
                elif outcome is CommitOutcome.REFUSED:
                    given_up[number] = True
            if int(open_.sum()) < before:
                progress_ms = SYSTEM_CLOCK.monotonic_ms()
            elif SYSTEM_CLOCK.monotonic_ms() - progress_ms > self._timeout_ms:
                raise CallTimeout(
                    f"{before} rows of batch {record.batch} could not be made visible: they are in "
                    "the batch's commit record; a restart of the query goes on with them"
                )
            looks = True


def refs_at(
    table: pa.Table, at: Sequence[int] | NDArray[np.int64], given_up: Sequence[bool] = ()
) -> list[HalfMessageRef]:
    """These half messages of a batch, as values."""
    picked = table.take(pa.array(at, pa.int64()))
    names = ("topic", "broker", "queue_id", "half_offset", "position", "unique_key", "ordered")
    columns = [picked[name].to_pylist() for name in names]
    marks = list(given_up) or [False] * len(at)
    return [HalfMessageRef(*values) for values in zip(list(at), *columns, marks, strict=True)]


def _remaining(
    table: pa.Table, open_: NDArray[np.bool_], given_up: NDArray[np.bool_]
) -> list[HalfMessageRef]:
    at = np.flatnonzero(open_)
    return refs_at(table, at.tolist(), given_up[at].tolist())
