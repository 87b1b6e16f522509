"""Finish a decided batch: each row becomes visible exactly once, whatever happened before.

    begin ──▶ commit half messages ──▶ all done? ──▶ finished
                 ▲                       │ no: some were refused, or not answered
                 │                       ▼
                 └── those not visible ◀── wait until no commit is in flight, then read

A broker may deliver a half message twice that is committed twice. So a half message that may have
been committed before is committed again only when its message is not visible.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from roquet.lake.queue_offsets import OffsetsJson
from roquet.log_records import logger
from roquet.model.errors import CallTimeout
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.sink.commit_half_messages import CommitOutcome, HalfMessageRef
from roquet.spark.sink.commit_records import CommitRecord
from roquet.spark.sink.half_message_refs import row_codes
from roquet.spark.sink.visibility import VisibleRows

log = logger(__name__)

QUIET_MS: Final = 5_000
"""The time after which a commit that was sent is done or never will be: brokers, Apache's and ours,
refuse calls that waited for 3 s in their queue."""


class VisibilityCheck(Protocol):
    """Reads visible rows: `visibility.VisibilityReader`."""

    def since(self, ends: OffsetsJson, prefix: str) -> VisibleRows:
        """Rows whose messages were stored, or discarded, since `ends`."""


class BatchFinisher:
    """Commits the half messages of decided batches until all rows are visible."""

    def __init__(
        self,
        commit: Callable[[Sequence[HalfMessageRef]], dict[int, CommitOutcome]],
        visibility: VisibilityCheck,
        pause: Callable[[int], object],
        timeout_ms: int,
        quiet_ms: int = QUIET_MS,
    ) -> None:
        self._commit = commit
        self._visibility = visibility
        self._pause = pause
        self._timeout_ms = timeout_ms
        self._settled_ms = quiet_ms

    def finish(self, record: CommitRecord, *, fresh: bool) -> None:
        """Return when each row is visible. `fresh`: no commit of this batch was ever sent."""
        table = record.halves
        numbers = row_codes(table["partition"].combine_chunks(), table["row"].combine_chunks())
        open_, discarded = np.ones(len(numbers), np.bool_), np.zeros(len(numbers), np.bool_)
        ends, reads_first = record.ends, not fresh
        progress_ms = SYSTEM_CLOCK.monotonic_ms()
        while open_.any():
            if reads_first:
                self._pause(self._settled_ms)
                rows = self._visibility.since(ends, record.prefix)
                ends = rows.ends
                open_ &= ~np.isin(numbers, rows.visible)
                discarded |= np.isin(numbers, rows.discarded)
                log.info("%s: %d rows are not visible yet", record.prefix, int(open_.sum()))
            before = int(open_.sum())
            outcomes = self._commit(_remaining(table, open_, discarded))
            for number, outcome in outcomes.items():
                if outcome is CommitOutcome.DONE:
                    open_[number] = False
                elif outcome is CommitOutcome.REFUSED:
                    discarded[number] = True
            if int(open_.sum()) < before:
                progress_ms = SYSTEM_CLOCK.monotonic_ms()
            elif SYSTEM_CLOCK.monotonic_ms() - progress_ms > self._timeout_ms:
                raise CallTimeout(
                    f"{before} rows of batch {record.batch} could not be made visible: they are in "
                    "the batch's commit record, and a restart of the query continues with them"
                )
            reads_first = True


def refs_at(
    table: pa.Table, at: Sequence[int] | NDArray[np.int64], discarded: Sequence[bool] = ()
) -> list[HalfMessageRef]:
    """References to the half messages at these indices of a batch's table."""
    picked = table.take(pa.array(at, pa.int64()))
    names = ("topic", "broker", "queue_id", "half_offset", "position", "unique_key", "ordered")
    columns = [picked[name].to_pylist() for name in names]
    marks = list(discarded) or [False] * len(at)
    return [HalfMessageRef(*values) for values in zip(list(at), *columns, marks, strict=True)]


def _remaining(
    table: pa.Table, open_: NDArray[np.bool_], discarded: NDArray[np.bool_]
) -> list[HalfMessageRef]:
    at = np.flatnonzero(open_)
    return refs_at(table, at.tolist(), discarded[at].tolist())
