"""Ranges of queues as RecordBatches: pulls until a range is whole, or says what is gone.

Our broker fills four mebibytes a pull, a genuine one gives 32 messages; so what comes is gathered
until it is worth a batch.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from roquet.arrow.records import Records
from roquet.model.errors import RecordError
from roquet.model.flags import PullFlag
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.cluster import Cluster
from roquet.spark.plan import Piece
from roquet.wire.calls.pull import Pull, PullReply

PULL_MESSAGES: Final = 10_000
"""Messages of one pull; a broker that gives fewer is asked again."""

PULL_BYTES: Final = 4 * 1024 * 1024
"""Bytes of one pull: decoding is as fast as it gets, and a worker's memory stays small."""

BATCH_BYTES: Final = 1024 * 1024
"""Bytes that are worth a batch; less is gathered first."""

STALL_PAUSE_MS: Final = 100
"""Before a broker is asked again for messages that it promised and does not give."""


class RangeReader:
    """Reads ranges of a topic's queues, in order and without gaps."""

    def __init__(self, cluster: Cluster, columns: Sequence[str]) -> None:
        self._cluster = cluster
        self._columns = columns

    def batches(self, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
        """The messages of the pieces."""
        for piece in pieces:
            for records in self._records(piece):
                if len(records):
                    yield records.batch(self._columns)

    def _records(self, piece: Piece) -> Iterator[Records]:
        """The piece's records, block by block."""
        first, gathered, size = piece.start, list[bytes | memoryview](), 0
        for at, body in self._pulls(piece):
            size += len(body)
            is_enough = size >= BATCH_BYTES or at >= piece.end
            # What is kept is copied: the next pull uses the buffer of this one again.
            gathered.append(body if is_enough else bytes(body))
            if is_enough:
                block = gathered[0] if len(gathered) == 1 else b"".join(gathered)
                yield self._whole(block, piece, first, min(at, piece.end))
                first, size = at, 0
                gathered.clear()

    def _pulls(self, piece: Piece) -> Iterator[tuple[int, bytes | memoryview]]:
        """Where each pull leads, and what it brought: perhaps nothing, when messages are gone."""
        at = piece.start
        while at < piece.end:
            reply = self._pull(piece, at)
            if reply is None:
                at = piece.end
                yield at, b""
            else:
                at = reply.next_begin_offset
                yield at, reply.body

    def _pull(self, piece: Piece, at: int) -> PullReply | None:
        """A reply that leads on; None when the broker gave none until the time was up.

        The offsets were promised by the broker itself, so it may only need a moment.
        """
        settings = self._cluster.settings
        call = Pull(
            consumer_group=settings.group,
            topic=settings.topic,
            queue_id=piece.queue_id,
            queue_offset=at,
            max_msg_nums=min(piece.end - at, PULL_MESSAGES),
            sys_flag=int(PullFlag.SUBSCRIPTION),
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
            expression_type="TAG",
            max_msg_bytes=PULL_BYTES,
        )
        deadline = SYSTEM_CLOCK.monotonic_ms() + settings.timeout_ms
        while True:
            reply = self._cluster.ask(piece.broker, call)
            if reply.next_begin_offset > at:
                return reply
            if SYSTEM_CLOCK.monotonic_ms() >= deadline:
                return None
            self._cluster.pause(STALL_PAUSE_MS)

    def _whole(self, block: bytes | memoryview, piece: Piece, first: int, stop: int) -> Records:
        """The records of a block from `first` to `stop`, all of them or an outcry."""
        settings = self._cluster.settings
        records = Records.of(block, broker=piece.broker, restore=settings.decompress)
        offsets = records.queue_offsets
        name = f"queue {piece.queue_id} of broker {piece.broker!r}"
        if (np.diff(offsets) <= 0).any():
            raise RecordError(f"{name} gave messages out of order between {first} and {stop}")
        begin, end = (int(row) for row in np.searchsorted(offsets, (first, stop)))
        if missing := stop - first - (end - begin):
            span = f"from offset {first} to {stop - 1}"
            self._cluster.lost(f"{name} lacks {missing} of its messages {span}")
        return records if end - begin == len(records) else records.between(begin, end)
