"""Exactly-once sender: sends rows to queues in order, each once, also when a reply is lost.

Each queue has one request in flight; the next one follows when a broker has stored it.

- A run first reads the copies that its earlier attempts have sent.
- When a reply is lost, the sender waits until the queue shows its broker's whole log, and reads it
  before it sends anything again: see `dispatch_wait`. A new master may have the first rows of a
  batch alone; then the others are sent.
- A batch that is stored less durably than its broker promises counts as stored once readers see it:
  a master under a controller hides what another master may lack.
- A reply says at which offset the messages are. Messages that others sent in between are read; if
  they are copies of the same rows, another run is active, and this one stops. A few requests of
  both may have been stored by then.

Two cases cannot be excluded: a broker that stores a request long after its connection ended, when
the same rows were already sent again; and a lost reply of an Apache broker under a controller,
which does not say what it hides. They are detected and counted in `doubled`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquet.arrow.encode import join_items, split_evenly
from roquet.lake.intervals import OffsetArray, OffsetSet
from roquet.lake.queue_offsets import OffsetRange, QueueKey, QueueOffsets, queue_text
from roquet.log_records import logger
from roquet.model.errors import CallError, CallRefused, CallTimeout, ConnectFailed, RoquetError
from roquet.net.clock import SYSTEM_CLOCK
from roquet.rules.backoff import backoff_ms
from roquet.rules.rate_limit import RateLimit
from roquet.rules.send_retry import is_transient
from roquet.spark.cluster.cluster_client import RETRY_PAUSE_MS, RETRY_PAUSE_MS_MAX, ClusterClient
from roquet.spark.cluster.dispatch_wait import wait_for_dispatch
from roquet.spark.cluster.range_reader import RangeReader
from roquet.spark.jobs.resend_rows import originals_in
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
    """Rows of one source that go in one request, without those that are known to be stored."""

    def __init__(self, source: QueueKey, offsets: OffsetArray, items: pa.Array) -> None:
        self.source = source
        self.offsets = OffsetSet.of(offsets)
        """The offsets of all rows, also of those that are stored."""
        self._unsent, self._items = offsets, items

    @property
    def count(self) -> int:
        """The number of rows to send."""
        return len(self._unsent)

    @property
    def body(self) -> bytes:
        """The body of a request with the rows to send."""
        return join_items(self._items, 0, self.count)

    def leave_out(self, stored: OffsetSet) -> None:
        """Leave out rows that are stored."""
        is_left = ~stored.holds(self._unsent)
        self._unsent, self._items = self._unsent[is_left], self._items.filter(pa.array(is_left))


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
        rate_limit: RateLimit | None = None,
    ) -> None:
        """Prepare to send.

        `queue_map` has the destination of each source queue. `since` has the ends of the
        destination's queues before the run: copies before these offsets are not looked for.
        """
        self._cluster, self._queue_map = cluster, queue_map
        self._ends = {queue: since.get(queue, 0) for queue in set(queue_map.values())}
        """The offset up to which each destination queue was read."""
        self._read_at = dict[QueueKey, str | None]()
        """The address at which each destination queue was read last."""
        self._rate_limit = rate_limit or RateLimit(None)
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
        while unread := [queue for queue in sorted(self._ends) if not self._is_read(queue)]:
            for queue in unread:
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
            delay_ms = self._rate_limit.delay_ms(end - first, SYSTEM_CLOCK.monotonic_ms())
            if delay_ms:
                self._cluster.pause(delay_ms)
            batch = RowBatch(source, numbers[first:end], items.slice(first, end - first))
            self._deliver(batch, self._queue_map[source])
            self._last_sent[source] = batch.offsets.last
        return len(new)

    def _deliver(self, batch: RowBatch, queue: QueueKey) -> None:
        """Send a batch until all of it is stored, once; BrokerUnavailable after the timeout."""
        deadline_ms = SYSTEM_CLOCK.monotonic_ms() + self._cluster.settings.timeout_ms
        pauses_ms = backoff_ms(RETRY_PAUSE_MS, RETRY_PAUSE_MS_MAX)
        while (failure := self._attempt(batch, queue)) is not None:
            is_covered, count = False, batch.count
            while not is_covered:
                if SYSTEM_CLOCK.monotonic_ms() >= deadline_ms:
                    raise BrokerUnavailable(
                        f"{queue_text(queue)} takes no messages: {failure.error}; "
                        "start the job again once all brokers of the topic are back"
                    ) from failure.error
                self._cluster.pause(next(pauses_ms))
                batch.leave_out(self._copies_of(batch, self._read_new_copies(queue)))
                if not batch.count:
                    return
                is_covered = self._is_covered(queue, failure, is_partial=batch.count < count)

    def _is_covered(self, queue: QueueKey, failure: FailedAttempt, *, is_partial: bool) -> bool:
        """Whether rows of a failed attempt that were not found may be sent again.

        `is_partial` says that others of its rows were found: a broker that may hide messages hides
        the rest of these, unless the queue goes on behind them.
        """
        if not self._is_read(queue):
            return False
        if self._hides_nothing:
            return True
        return self._ends[queue] >= failure.end if failure.end else not is_partial

    def _attempt(self, batch: RowBatch, queue: QueueKey) -> FailedAttempt | None:
        """Send a batch; None when it is stored as durably as its broker promises."""
        topic, broker, queue_id = queue
        call = SendBatch(
            batch=True, body=batch.body, producer_group=GROUP, topic=topic, queue_id=queue_id,
            born_timestamp=SYSTEM_CLOCK.now_ms(),
        )  # fmt: skip
        try:
            reply = self._cluster.ask_once(broker, call)
        except CallError as error:
            _raise_unless_transient(error, batch, queue)
            return FailedAttempt(error)
        if reply.queue_offset < self._ends[queue]:
            raise self._cut_error(queue, reply.queue_offset)
        if reply.code != ResponseCode.SUCCESS:
            refused = CallRefused(reply.code, reply.remark, definite=False)
            return FailedAttempt(refused, reply.queue_offset + batch.count)
        self._check_offset(batch, queue, reply)
        return None

    def _check_offset(self, batch: RowBatch, queue: QueueKey, reply: SendReply) -> None:
        """Read the messages that others stored between the last batch and this one."""
        offset = reply.queue_offset
        if offset > self._ends[queue]:
            # All of the batch is stored here, so these are duplicates.
            copies = self._read_copies(queue, self._ends[queue], offset)
            self.doubled += len(self._copies_of(batch, copies))
        self._ends[queue] = offset + batch.count

    def _copies_of(self, batch: RowBatch, copies: Mapping[QueueKey, OffsetSet]) -> OffsetSet:
        """Which rows of the batch these are copies of; ConcurrentRun for copies of other rows."""
        ours = {source: offsets for source, offsets in copies.items() if source in self._queue_map}
        offsets = ours.pop(batch.source, OffsetSet())
        if ours or len(offsets | batch.offsets) != len(batch.offsets):
            raise ConcurrentRun(
                f"another run is sending messages of {queue_text(batch.source)}: wait until it has "
                "ended, and start again"
            )
        return offsets

    def _read_new_copies(self, queue: QueueKey) -> dict[QueueKey, OffsetSet]:
        """Read the copies stored since the last read, once the queue covers its broker's log."""
        broker = queue[1]
        try:
            self._hides_nothing = wait_for_dispatch(self._cluster, broker)
        except CallTimeout as error:
            raise BrokerUnavailable(
                f"{queue_text(queue)} cannot be read to its end: {error}; start the job again"
            ) from error
        self._read_at[queue] = self._cluster.addresses.get(broker)
        first, end = self._cluster.with_retries(lambda: self._bounds(queue), broker)
        start, self._ends[queue] = max(first, self._ends[queue]), end
        return self._read_copies(queue, start, end)

    def _is_read(self, queue: QueueKey) -> bool:
        """Whether a queue was read at the address that its broker has now.

        A former master may lack messages that its successor has.
        """
        return queue in self._read_at and (
            self._read_at[queue] == self._cluster.addresses.get(queue[1])
        )

    def _bounds(self, queue: QueueKey) -> tuple[int, int]:
        """First and next offset of a queue; CallError while it is shorter than before."""
        topic, broker, queue_id = queue
        first, end = self._cluster.queue_bounds(topic, broker, (queue_id,))[queue_id]
        if end < self._ends[queue]:
            self._cluster.look_up()  # a former master may be shorter than its successor
            raise self._cut_error(queue, end)
        return first, end

    def _cut_error(self, queue: QueueKey, end: int) -> CallError:
        """The error for a queue that is shorter than before.

        Rows that were sent may be lost; a further attempt reads which ones are still there.
        """
        return CallError(
            f"{queue_text(queue)} has lost its messages from offset {end} to "
            f"{self._ends[queue] - 1}: start the job again to send those of its rows again",
            definite=False,
        )

    def _read_copies(self, queue: QueueKey, start: int, end: int) -> dict[QueueKey, OffsetSet]:
        ranges = [OffsetRange(*queue, start, end)] if start < end else []
        return read_originals(self._cluster, ranges)


def read_originals(
    cluster: ClusterClient, ranges: Sequence[OffsetRange]
) -> dict[QueueKey, OffsetSet]:
    """The originals, by source queue, of the copies within these ranges of the destination."""
    return originals_in(RangeReader(cluster, ("properties",)).batches(ranges)) if ranges else {}


def writable_queues(
    cluster: ClusterClient, topic: str, known: Iterable[QueueKey]
) -> list[QueueKey]:
    """The queues of a topic that rows may be sent to; the client must have `leaders_only`.

    Raises ConnectFailed, after the timeout, while the broker of a known queue has no leader: the
    rows for its queues would be sent to others, where neither their copies nor their order are.
    """
    brokers = {broker for _, broker, _ in known}

    def queues() -> list[QueueKey]:
        route = cluster.route(topic)
        led = {data.broker_name for data in route.broker_datas} & cluster.addresses.keys()
        if away := sorted(brokers - led):
            raise ConnectFailed(
                f"broker {away[0]!r} has no master now, and rows for its queues of topic {topic!r} "
                "may not be sent to others: start the job again once it is back"
            )
        return [
            (queue.topic, queue.broker_name, queue.queue_id) for queue in route.write_queues(topic)
        ]

    return cluster.with_retries(queues, "route")


def _raise_unless_transient(error: CallError, batch: RowBatch, queue: QueueKey) -> None:
    if not is_transient(error):
        first = int(batch.offsets.starts[0])
        raise RoquetError(
            f"{queue_text(queue)} refuses {queue_text(batch.source)}, "
            f"offsets {first} to {batch.offsets.last}: {error}"
        ) from error
