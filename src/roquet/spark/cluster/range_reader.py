"""Ranges of queues as RecordBatches: pulls until a range is whole, or says what is gone.

Our broker fills four mebibytes a pull, with other queues' messages that are wanted as well where
they lie between; a genuine one gives 32 messages of one queue. What comes is gathered until it is
worth a batch. While a batch is made, the broker is already at work on the next pull.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from roquet.arrow.records import RecordColumns
from roquet.log_records import logger
from roquet.model.errors import CallRefused, RecordError
from roquet.model.flags import PullFlag
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.cluster.queue_cursors import QueueCursor, QueueCursors, group_ranges
from roquet.spark.cluster.record_filter import RecordFilter
from roquet.spark.queue_offsets import OffsetRange, queue_text
from roquet.wire.calls.bodies import MultiQueueOffsets
from roquet.wire.calls.pull import Pull, PullReply
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson.codec import dumps

log = logger(__name__)

PULL_MESSAGES: Final = 10_000
"""Messages of one pull; a broker that gives fewer is asked again."""

PULL_BYTES: Final = 4 * 1024 * 1024
"""Bytes of one pull: decoding is as fast as it gets, and a worker's memory stays small."""

BATCH_BYTES: Final = 1024 * 1024
"""Bytes that are worth a batch; less is gathered first."""

GAPS_SHOWN: Final = 5
"""Gaps that an error names."""

STALL_PAUSE_MS: Final = 100
"""Before a broker is asked again for messages that it promised and does not give."""


class RangeReader:
    """Reads ranges of a topic's queues: the messages of each in order and without gaps."""

    def __init__(self, cluster: ClusterClient, columns: Sequence[str]) -> None:
        self._cluster = cluster
        self._columns = columns
        self._selection = RecordFilter(cluster.settings)

    def batches(self, pieces: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
        """The messages of the pieces."""
        for group in group_ranges(pieces):
            for block in _GroupReader(self._cluster, group, self._selection).records():
                records = self._selection.of(block)
                if len(records):
                    yield self._rows_of(records)

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
            log.warning("%s; it stays as it is stored, as failOnDataLoss=false says", why)
        return records.keeping_unreadable().batch(self._columns)


class _GroupReader:
    """The reading of pieces that lie in different queues of one broker."""

    def __init__(
        self, cluster: ClusterClient, pieces: Sequence[OffsetRange], selection: RecordFilter
    ) -> None:
        self._cluster = cluster
        self._takes_all = selection.takes_all
        self._expression, self._kind = selection.expression
        self._broker = pieces[0].broker
        self._fronts = QueueCursors(pieces)

    def records(self) -> Iterator[RecordColumns]:
        """The messages, block by block."""
        while (front := self._fronts.leading()) is not None:
            # Brokers do not filter what they give of several queues.
            others = self._fronts.alongside(front) if self._takes_all else {}
            if others:
                yield from self._together(front, others)
            else:
                yield from self._alone(front)

    # -- many queues -------------------------------------------------------------------------

    def _together(self, front: QueueCursor, others: Mapping[int, int]) -> Iterator[RecordColumns]:
        """What one pull brings of all."""
        call = self._call(front.piece, front.at, others)
        try:
            reply = self._cluster.ask(self._broker, call)
        except CallRefused as error:
            if not _is_another_topic(call, error):
                raise
            self._fronts.keep_apart()  # each queue says what it has lost
            return
        before = front.at
        records = self._run(reply.body)
        if records is None:
            self._fronts.keep_apart()
            return
        wanted = self._fronts.take(records)
        if front.at == before:
            self._fronts.keep_apart()
        self._look_ahead()
        yield records if wanted.all() else records.where(wanted)

    def _run(self, block: bytes | memoryview) -> RecordColumns | None:
        """The records of a run of the log; None for what is no such run, or a damaged one.

        The broker has not looked at it. When it gives one queue alone, it does, and says what is
        gone.
        """
        try:
            records = self._parsed(block)
        except RecordError:
            return None
        return records if records.is_contiguous else None

    def _look_ahead(self) -> None:
        """Have the broker begin with what will be asked next."""
        front = self._fronts.leading()
        if front is not None:
            others = self._fronts.alongside(front) if self._takes_all else {}
            self._cluster.ask_ahead(self._broker, self._call(front.piece, front.at, others))

    # -- one queue ---------------------------------------------------------------------------

    def _alone(self, front: QueueCursor) -> Iterator[RecordColumns]:
        """What one pull of a queue brings, and pulls before it that were not worth a batch."""
        piece, first = front.piece, front.at
        gathered, size = list[bytes | memoryview](), 0
        while size < BATCH_BYTES and front.left:
            if gathered:
                self._cluster.ask_ahead(self._broker, self._call(piece, front.at, {}))
                # What is kept is copied: the next pull uses the buffer of this one again.
                gathered[-1] = bytes(gathered[-1])
            reply = self._pull(piece, front.at)
            if not self._takes_all:
                self._check_kept(piece, front.at, reply)
            front.at = piece.end if reply is None else reply.next_begin_offset
            gathered.append(b"" if reply is None else reply.body)
            size += len(gathered[-1])
        block = gathered[0] if len(gathered) == 1 else b"".join(gathered)
        records = self._ordered(block, piece, first, min(front.at, piece.end))
        if len(records):
            front.position = int(records.positions[-1])
        self._fronts.went_alone()
        self._look_ahead()
        yield records

    def _pull(self, piece: OffsetRange, at: int) -> PullReply | None:
        """A reply that leads on; None when the broker gave none until the time was up.

        The offsets were promised by the broker itself, so it may only need a moment.
        """
        call = self._call(piece, at, {})
        deadline = SYSTEM_CLOCK.monotonic_ms() + self._cluster.settings.timeout_ms
        while True:
            try:
                reply = self._cluster.ask(self._broker, call)
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

    def _check_kept(self, piece: OffsetRange, at: int, reply: PullReply | None) -> None:
        """Say what is gone of what a filtered pull looks at: what comes tells nothing of it."""
        gone = piece.end if reply is None else min(reply.min_offset, piece.end)
        if gone > at:
            self._lost(piece, [(at, gone)])

    def _ordered(
        self, block: bytes | memoryview, piece: OffsetRange, first: int, stop: int
    ) -> RecordColumns:
        """The records of a block from `first` to `stop`: all of them, but for a filter."""
        records = self._parsed(block)
        offsets = records.queue_offsets
        if (np.diff(offsets) <= 0).any():
            name = queue_text(piece.queue)
            raise RecordError(f"{name} gave messages out of order between {first} and {stop}")
        begin, end = (int(row) for row in np.searchsorted(offsets, (first, stop)))
        if self._takes_all and end - begin < stop - first:
            edges = np.concatenate(([first - 1], offsets[begin:end], [stop]))
            rows = np.flatnonzero(np.diff(edges) > 1)
            self._lost(piece, [(int(edges[row]) + 1, int(edges[row + 1])) for row in rows])
        return records if end - begin == len(records) else records.between(begin, end)

    def _lost(self, piece: OffsetRange, gaps: Sequence[tuple[int, int]]) -> None:
        """Say which messages of a queue are gone, the end of each gap excluded."""
        count = sum(end - start for start, end in gaps)
        spans = ", ".join(
            f"{start} to {end - 1}" if end - start > 1 else f"{start}"
            for start, end in gaps[:GAPS_SHOWN]
        )
        more = f" and {len(gaps) - GAPS_SHOWN} more gaps" if len(gaps) > GAPS_SHOWN else ""
        what = f"{queue_text(piece.queue)} lacks {count} of its messages: offsets {spans}{more}"
        self._cluster.report_loss(what, count)

    # -- both --------------------------------------------------------------------------------

    def _call(self, piece: OffsetRange, at: int, others: Mapping[int, int]) -> Pull:
        settings = self._cluster.settings
        return Pull(
            consumer_group=settings.group,
            topic=piece.topic,
            queue_id=piece.queue_id,
            queue_offset=at,
            max_msg_nums=min(piece.end - at, PULL_MESSAGES),
            sys_flag=int(PullFlag.SUBSCRIPTION),
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=self._expression,
            sub_version=0,
            expression_type=self._kind,
            max_msg_bytes=PULL_BYTES,
            topic_id=piece.topic_id,
            body=dumps(MultiQueueOffsets(offsets=dict(others)), standard=True) if others else b"",
        )

    def _parsed(self, block: bytes | memoryview) -> RecordColumns:
        decompress = self._cluster.settings.decompress
        return RecordColumns.of(block, broker=self._broker, restore=decompress)


def _is_another_topic(call: Pull, error: CallRefused) -> bool:
    """Whether a pull was refused because the topic that it means was deleted since."""
    return call.topic_id is not None and error.code == ResponseCode.TOPIC_NOT_EXIST
