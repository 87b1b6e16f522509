"""Exactly-once sender: sends rows to queues in order, each once, also when a reply is lost.

Each queue has one request in flight; the next one follows when a broker has stored it.

- A run first reads the copies that its earlier attempts have sent.
- When a reply is lost, the sender waits until the queue shows its broker's whole log, and reads it
  before it sends anything again: see `dispatch_wait`.
- A batch that is stored less durably than its broker promises counts as stored once readers see it:
  a master under a controller hides what another master may lack.
- A reply says at which offset the messages are. Messages that others sent in between are read; if
  they are copies of the same rows, another run is active, and this one stops. A few requests of
  both may have been stored by then.

Two cases cannot be excluded: a broker that stores a request long after its connection ended, when
the same rows were already sent again; and a lost reply of an Apache broker under a controller,
which does not say what it hides. They are detected and counted in `doubled`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquet.arrow.encode import join_items, split_evenly
from roquet.log_records import logger
from roquet.model.errors import CallError, CallRefused, CallTimeout, RoquetError
from roquet.net.clock import SYSTEM_CLOCK
from roquet.rules.backoff import backoff_ms
from roquet.rules.send_retry import is_transient
from roquet.spark.cluster.cluster_client import (
    RETRY_PAUSE_MS,
    RETRY_PAUSE_MS_MAX,
    ClusterClient,
)
from roquet.spark.cluster.dispatch_wait import wait_for_dispatch
from roquet.spark.cluster.range_reader import RangeReader
from roquet.spark.jobs.intervals import OffsetArray, OffsetSet
from roquet.spark.jobs.rate_limit import RowRateLimit
from roquet.spark.jobs.resend_rows import originals_in
from roquet.spark.queue_offsets import OffsetRange, QueueKey, QueueOffsets, queue_text
from roquet.spark.source.tasks import BrokerUnavailable
from roquet.wire.calls.send import SendBatch, SendReply
from roquet.wire.codes import ResponseCode

log = logger(__name__)

GROUP: Final = "roquet-spark-replay"
"""The producer group."""

BATCH_BYTES: Final = 1024 * 1024
"""Size limit of one request, counted as stored by the broker."""

RECORD_OVERHEAD_BYTES: Final = 256
"""Assumed overhead of a stored message: the fixed part of its record, names and addresses."""

BATCH_COUNT_MAX: Final = 8_192
"""Messages of one request."""


class ConcurrentRun(RoquetError):
    """Another run is sending the same rows."""


class RowBatch:
    """Rows of one source that go in one request."""

    def __init__(self, source: QueueKey, offsets: OffsetArray, body: bytes) -> None:
        self.source, self.body = source, body
        self.offsets = OffsetSet.of(offsets)
        self.count = len(offsets)


class FailedAttempt(msgspec.Struct, frozen=True):
    """An attempt to send a batch that may have stored it."""

    error: CallError
    end: int = 0
    """Where the batch ends in its queue, if it is there: until the queue ends there readers do not
    see it, and it is not sent again. 0 is unknown."""


class ExactlyOnceSender:
    """Sends the rows of some source queues; it must be the only one that sends to their queues."""

    def __init__(
        self,
        cluster: ClusterClient,
        queue_map: Mapping[QueueKey, QueueKey],
        since: QueueOffsets,
        rate_limit: RowRateLimit | None = None,
    ) -> None:
        """Prepare to send.

        `queue_map` has the destination of each source queue. `since` has the ends of the
        destination's queues before the run: copies before these offsets are not looked for.
        """
        self._cluster, self._queue_map = cluster, queue_map
        self._ends = {queue: since.get(queue, 0) for queue in set(queue_map.values())}
        """The offset up to which each destination queue was read."""
        self._rate_limit = rate_limit or RowRateLimit(None, cluster.pause)
        self._already_sent = dict.fromkeys(queue_map, OffsetSet())
        """By source, the offsets that earlier attempts have sent."""
        self._last_sent = dict.fromkeys(queue_map, -1)
        """By source, the offset that this attempt sent last."""
        self._hides_nothing = False
        """Whether the broker read last showed all that its log held."""
        self.doubled = 0

    def begin(self) -> int:
        """Read the copies that earlier attempts have sent; returns their count."""
        count = 0
        for queue in sorted(self._ends):
            for source, offsets in self._read_new_copies(queue).items():
                if self._queue_map.get(source) == queue:
                    self._already_sent[source] |= offsets
                    count += len(offsets)
        return count

    def send(self, source: QueueKey, offsets: pa.Array, items: pa.Array) -> int:
        """Send rows of one source in their order; returns how many were not sent before."""
        numbers = offsets.cast(pa.int64()).to_numpy()
        is_new = (numbers > self._last_sent[source]) & ~self._already_sent[source].holds(numbers)
        new = np.flatnonzero(is_new)
        if not len(new):
            return 0
        items, numbers = items.take(pa.array(new)), numbers[new]
        sizes = pc.binary_length(items).to_numpy().astype(np.int64) + RECORD_OVERHEAD_BYTES
        step = min(self._rate_limit.step or BATCH_COUNT_MAX, BATCH_COUNT_MAX)
        for first, end in split_evenly(sizes, BATCH_BYTES, step):
            self._rate_limit.wait(end - first)
            batch = RowBatch(source, numbers[first:end], join_items(items, first, end))
            self._deliver(batch, self._queue_map[source])
            self._last_sent[source] = batch.offsets.last
        return len(new)

    def _deliver(self, batch: RowBatch, queue: QueueKey) -> None:
        """Send a batch until it is stored, once; BrokerUnavailable after the timeout."""
        deadline_ms = SYSTEM_CLOCK.monotonic_ms() + self._cluster.settings.timeout_ms
        pauses_ms = backoff_ms(RETRY_PAUSE_MS, RETRY_PAUSE_MS_MAX)
        while (failure := self._attempt(batch, queue)) is not None:
            is_covered = False
            while not is_covered:
                if SYSTEM_CLOCK.monotonic_ms() >= deadline_ms:
                    raise BrokerUnavailable(
                        f"{queue_text(queue)} takes no messages: {failure.error}; "
                        "start the job again"
                    ) from failure.error
                self._cluster.pause(next(pauses_ms))
                if self._is_batch(batch, self._read_new_copies(queue), is_acknowledged=False):
                    return
                is_covered = self._hides_nothing or self._ends[queue] >= failure.end

    def _attempt(self, batch: RowBatch, queue: QueueKey) -> FailedAttempt | None:
        """Send a batch; None when it is stored as durably as its broker promises."""
        try:
            reply = self._cluster.ask_once(queue[1], _call(batch, queue))
        except CallError as error:
            _raise_unless_transient(error, batch, queue)
            return FailedAttempt(error)
        if reply.code != ResponseCode.SUCCESS:
            refused = CallRefused(reply.code, reply.remark, definite=False)
            return FailedAttempt(refused, reply.queue_offset + batch.count)
        self._check_offset(batch, queue, reply)
        return None

    def _check_offset(self, batch: RowBatch, queue: QueueKey, reply: SendReply) -> None:
        """Read the messages that others stored between the last batch and this one."""
        offset = reply.queue_offset
        if offset > self._ends[queue]:
            copies = self._read_copies(queue, self._ends[queue], offset)
            self._is_batch(batch, copies, is_acknowledged=True)
        self._ends[queue] = offset + batch.count

    def _is_batch(
        self, batch: RowBatch, copies: Mapping[QueueKey, OffsetSet], *, is_acknowledged: bool
    ) -> bool:
        """Whether these copies are those of the batch; ConcurrentRun for copies of other rows.

        When the batch was acknowledged, too, these copies are duplicates of it.
        """
        ours = {source: offsets for source, offsets in copies.items() if source in self._queue_map}
        if not ours:
            return False
        offsets = ours.get(batch.source, OffsetSet())
        if len(ours) > 1 or len(offsets | batch.offsets) != batch.count:
            raise ConcurrentRun(
                f"another run is sending messages of {queue_text(batch.source)}: wait until it has "
                "ended, and start again"
            )
        self.doubled += len(offsets) if is_acknowledged else 0
        return True

    def _read_new_copies(self, queue: QueueKey) -> dict[QueueKey, OffsetSet]:
        """Read the copies stored since the last read, once the queue covers its broker's log."""
        topic, broker, queue_id = queue
        try:
            self._hides_nothing = wait_for_dispatch(self._cluster, broker)
        except CallTimeout as error:
            raise BrokerUnavailable(
                f"{queue_text(queue)} cannot be read to its end: {error}; start the job again"
            ) from error
        bounds = self._cluster.with_retries(
            lambda: self._cluster.queue_bounds(topic, broker, (queue_id,)), broker
        )
        first, end = bounds[queue_id]
        start, self._ends[queue] = max(first, self._ends[queue]), max(end, self._ends[queue])
        return self._read_copies(queue, start, end)

    def _read_copies(self, queue: QueueKey, start: int, end: int) -> dict[QueueKey, OffsetSet]:
        ranges = [OffsetRange(*queue, start, end)] if start < end else []
        return read_originals(self._cluster, ranges)


def read_originals(
    cluster: ClusterClient, ranges: Sequence[OffsetRange]
) -> dict[QueueKey, OffsetSet]:
    """The originals, by source queue, of the copies within these ranges of the destination."""
    return originals_in(RangeReader(cluster, ("properties",)).batches(ranges)) if ranges else {}


def _call(batch: RowBatch, queue: QueueKey) -> SendBatch:
    topic, _, queue_id = queue
    return SendBatch(
        body=batch.body,
        producer_group=GROUP,
        topic=topic,
        queue_id=queue_id,
        born_timestamp=SYSTEM_CLOCK.now_ms(),
    )


def _raise_unless_transient(error: CallError, batch: RowBatch, queue: QueueKey) -> None:
    """Raise RoquetError for a refusal that every retry would meet."""
    if not is_transient(error):
        first = int(batch.offsets.starts[0])
        raise RoquetError(
            f"{queue_text(queue)} refuses {queue_text(batch.source)}, "
            f"offsets {first} to {batch.offsets.last}: {error}"
        ) from error
