"""Range reader: ranges of queues as RecordBatches, complete or with the lost offsets reported.

A Roquet broker fills four mebibytes a pull, also with interleaved messages of other queues of the
read; an Apache one returns 32 messages of one queue. Small replies are gathered into larger
batches. While a batch is decoded, the broker already works on the next pull.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from roquet.arrow.records import BatchTooLarge, RecordColumns
from roquet.lake.queue_offsets import OffsetRange, queue_text
from roquet.log_records import logger
from roquet.model.errors import CallRefused, RecordError
from roquet.model.flags import PullFlag
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.cluster.pull_sources import PullSources
from roquet.spark.cluster.queue_cursors import QueueCursor, QueueCursors, group_ranges
from roquet.spark.cluster.record_filter import RecordFilter
from roquet.wire.calls.bodies import MultiQueueOffsets
from roquet.wire.calls.pull import Pull, PullReply
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson.codec import dumps

log = logger(__name__)

PULL_MESSAGES: Final = 10_000
"""Most messages of one pull; a broker that returns fewer is asked again."""

PULL_BYTES: Final = 4 * 1024 * 1024
"""Bytes of one pull: more would not decode faster, and a worker's memory stays small."""

BATCH_BYTES: Final = 1024 * 1024
"""Bytes from which on a batch is made; smaller replies are gathered first."""

GAPS_SHOWN: Final = 5
"""Most gaps that an error names."""

STALL_PAUSE_MS: Final = 100
"""Pause before a broker is asked again for messages below its own maximum offset."""


class RangeReader:
    """Reads ranges of queues: the messages of each in order and without gaps."""

    def __init__(self, cluster: ClusterClient, columns: Sequence[str]) -> None:
        self._cluster = cluster
        self._columns = columns
        self._filter = RecordFilter(cluster.settings)
        self._sources = PullSources(cluster)

    def batches(self, ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
        """The messages of the ranges."""
        for group in group_ranges(ranges):
            group_reader = _GroupReader(self._cluster, self._sources, group, self._filter)
            for block in group_reader.records():
                records = self._filter.apply(block)
                if len(records):
                    yield from self._batches_of(records)

    def _batches_of(self, records: RecordColumns) -> Iterator[pa.RecordBatch]:
        """The rows in one batch, or in several where bodies are restored to very much."""
        try:
            rows = self._rows_of(records)
        except BatchTooLarge:
            for half in records.halves():
                yield from self._batches_of(half)
        else:
            yield rows

    def _rows_of(self, records: RecordColumns) -> pa.RecordBatch:
        try:
            return records.batch(self._columns)
        except RecordError as error:
            if self._cluster.settings.fail_on_data_loss:
                raise RecordError(
                    f"{error}; failOnDataLoss=false leaves such a body as it is stored, "
                    "decompress=false all of them"
                ) from error
        for _, why in records.unreadable():
            log.warning("%s; returned as it is stored, since failOnDataLoss=false", why)
        return records.keeping_unreadable().batch(self._columns)


class _GroupReader:
    """Reads ranges in different queues of one broker."""

    def __init__(
        self,
        cluster: ClusterClient,
        sources: PullSources,
        ranges: Sequence[OffsetRange],
        record_filter: RecordFilter,
    ) -> None:
        self._cluster = cluster
        self._sources = sources
        self._takes_all = record_filter.takes_all
        self._expression, self._kind = record_filter.expression
        self._broker = ranges[0].broker
        self._cursors = QueueCursors(ranges)

    def records(self) -> Iterator[RecordColumns]:
        """The messages, one block of pulled bytes at a time."""
        while (cursor := self._cursors.leading()) is not None:
            # Brokers do not filter pulls of several queues.
            others = self._cursors.other_offsets(cursor) if self._takes_all else {}
            if others:
                yield from self._together(cursor, others)
            else:
                yield from self._alone(cursor)

    # -- many queues -------------------------------------------------------------------------

    def _together(self, cursor: QueueCursor, others: Mapping[int, int]) -> Iterator[RecordColumns]:
        """The messages of one pull for all queues."""
        call = self._call(cursor.range, cursor.at, others)
        try:
            reply = self._sources.pull(self._broker, call)
        except CallRefused as error:
            if not _is_another_topic(call, error):
                raise
            self._cursors.pull_singly()  # pulls of one queue say what is lost
            return
        before = cursor.at
        records = self._run(reply.body)
        if records is None:
            self._cursors.pull_singly()
            return
        wanted = self._cursors.advance(records)
        if cursor.at == before:
            self._cursors.pull_singly()
        self._look_ahead()
        yield records if wanted.all() else records.where(wanted)

    def _run(self, block: bytes | memoryview) -> RecordColumns | None:
        """The records of a contiguous part of the log; None when it has gaps or damage.

        The broker does not check such a part. It does check pulls of one queue, which then say
        what is lost.
        """
        try:
            records = self._parsed(block)
        except RecordError:
            return None
        return records if records.is_contiguous else None

    def _look_ahead(self) -> None:
        """Send the next pull ahead, so that the broker works on it."""
        cursor = self._cursors.leading()
        if cursor is not None:
            others = self._cursors.other_offsets(cursor) if self._takes_all else {}
            call = self._call(cursor.range, cursor.at, others)
            self._sources.pull_ahead(self._broker, call)

    # -- one queue ---------------------------------------------------------------------------

    def _alone(self, cursor: QueueCursor) -> Iterator[RecordColumns]:
        """The messages of one queue, of as many pulls as fill a batch."""
        first = cursor.at
        self._sources.begin_block()
        block = self._gathered(cursor)
        records = self._checked(block, cursor.range, first, min(cursor.at, cursor.range.end))
        if records is None:
            cursor.at = first  # the master is read next
            return
        if len(records):
            cursor.position = int(records.positions[-1])
        self._cursors.count_single_pull()
        self._look_ahead()
        yield records

    def _gathered(self, cursor: QueueCursor) -> bytes | memoryview:
        """The bytes of pulls from the cursor on, which moves it."""
        offset_range = cursor.range
        gathered, size = list[bytes | memoryview](), 0
        while size < BATCH_BYTES and cursor.left:
            if gathered:
                call = self._call(offset_range, cursor.at, {})
                self._sources.pull_ahead(self._broker, call)
                # Copied, since the next pull reuses the buffer of this one.
                gathered[-1] = bytes(gathered[-1])
            reply = self._pull(offset_range, cursor.at)
            if not self._takes_all:
                self._check_kept(offset_range, cursor.at, reply)
            cursor.at = offset_range.end if reply is None else reply.next_begin_offset
            gathered.append(b"" if reply is None else reply.body)
            size += len(gathered[-1])
        return gathered[0] if len(gathered) == 1 else b"".join(gathered)

    def _checked(
        self, block: bytes | memoryview, offset_range: OffsetRange, first: int, stop: int
    ) -> RecordColumns | None:
        """The records of a block in [first, stop); lost ones are reported.

        None when a replica gave damaged messages or left some out: the master may have them.
        """
        try:
            records = self._ordered(block, offset_range, first, stop)
        except RecordError:
            if self._sources.leave_replicas(self._broker):
                return None
            raise
        if gaps := self._gaps(records, first, stop):
            if self._sources.leave_replicas(self._broker):
                return None
            self._lost(offset_range, gaps)
        return records

    def _pull(self, offset_range: OffsetRange, at: int) -> PullReply | None:
        """A reply that goes beyond `at`; None when there was none within the timeout.

        The broker itself reported these offsets, so an empty reply may only need a retry.
        """
        call = self._call(offset_range, at, {})
        deadline = SYSTEM_CLOCK.monotonic_ms() + self._cluster.settings.timeout_ms
        while True:
            try:
                reply = self._sources.pull(self._broker, call)
            except CallRefused as error:
                if not _is_another_topic(call, error):
                    raise
                self._cluster.report_loss(str(error))
                return None
            if reply.next_begin_offset > at:
                return reply
            if SYSTEM_CLOCK.monotonic_ms() >= deadline:
                return None
            self._cluster.pause(STALL_PAUSE_MS)

    def _check_kept(self, offset_range: OffsetRange, at: int, reply: PullReply | None) -> None:
        """Report offsets below the broker's minimum: gaps in a filtered reply do not show them."""
        gone = offset_range.end if reply is None else min(reply.min_offset, offset_range.end)
        if gone > at:
            self._lost(offset_range, [(at, gone)])

    def _ordered(
        self, block: bytes | memoryview, offset_range: OffsetRange, first: int, stop: int
    ) -> RecordColumns:
        """The records of a block in [first, stop). RecordError unless they are in order."""
        records = self._parsed(block)
        offsets = records.queue_offsets
        if (np.diff(offsets) <= 0).any():
            name = queue_text(offset_range.queue)
            raise RecordError(f"{name} gave messages out of order between {first} and {stop}")
        begin, end = (int(row) for row in np.searchsorted(offsets, (first, stop)))
        return records if end - begin == len(records) else records.between(begin, end)

    def _gaps(self, records: RecordColumns, first: int, stop: int) -> Sequence[tuple[int, int]]:
        """Missing offsets of [first, stop) as half-open ranges; none with a filter."""
        if not self._takes_all or len(records) == stop - first:
            return []
        edges = np.concatenate(([first - 1], records.queue_offsets, [stop]))
        rows = np.flatnonzero(np.diff(edges) > 1)
        return [(int(edges[row]) + 1, int(edges[row + 1])) for row in rows]

    def _lost(self, offset_range: OffsetRange, gaps: Sequence[tuple[int, int]]) -> None:
        """Report lost messages of a queue; gaps are half-open ranges of offsets."""
        count = sum(end - start for start, end in gaps)
        spans = ", ".join(
            f"{start} to {end - 1}" if end - start > 1 else f"{start}"
            for start, end in gaps[:GAPS_SHOWN]
        )
        more = f" and {len(gaps) - GAPS_SHOWN} more gaps" if len(gaps) > GAPS_SHOWN else ""
        what = (
            f"{queue_text(offset_range.queue)} lacks {count} of its messages: offsets {spans}{more}"
        )
        self._cluster.report_loss(what, count)

    # -- both --------------------------------------------------------------------------------

    def _call(self, offset_range: OffsetRange, at: int, others: Mapping[int, int]) -> Pull:
        settings = self._cluster.settings
        return Pull(
            consumer_group=settings.group,
            topic=offset_range.topic,
            queue_id=offset_range.queue_id,
            queue_offset=at,
            max_msg_nums=min(offset_range.end - at, PULL_MESSAGES),
            sys_flag=int(PullFlag.SUBSCRIPTION),
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=self._expression,
            sub_version=0,
            expression_type=self._kind,
            max_msg_bytes=PULL_BYTES,
            topic_id=offset_range.topic_id,
            body=dumps(MultiQueueOffsets(offsets=dict(others)), standard=True) if others else b"",
        )

    def _parsed(self, block: bytes | memoryview) -> RecordColumns:
        decompress = self._cluster.settings.decompress
        return RecordColumns.of(block, broker=self._broker, restore=decompress)


def _is_another_topic(call: Pull, error: CallRefused) -> bool:
    """Whether a pull was refused because its topic was deleted, and perhaps recreated, since."""
    return call.topic_id is not None and error.code == ResponseCode.TOPIC_NOT_EXIST
