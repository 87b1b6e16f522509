"""Courier: sends rows to queues in their order, each once, also when an answer gets lost.

To one queue one request goes at a time, and the next one when a broker has it:

- An attempt that begins reads what earlier ones of the same run have sent.
- When an answer is lost, the queue is read before anything is sent again, once it tells of all that
  its broker's log holds: genuine brokers answer when the log has a message, its queue has it later.
- An answer says where the messages lie. What others have sent in between is looked at: when it is
  ours, a second courier is under way, and this one stops. A few requests of both may be there.

One thing nobody can exclude: a broker that takes a request long after its connection ended, when
the same rows were sent again already. That is seen, and counted in `doubled`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquet.arrow.encode import join_items, split_evenly
from roquet.log_records import logger
from roquet.model.errors import CallError, CallRefused, RoquetError
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.cluster.cluster_client import RETRY_PAUSES_MS, ClusterClient
from roquet.spark.cluster.range_reader import RangeReader
from roquet.spark.jobs.intervals import OffsetArray, OffsetSet
from roquet.spark.jobs.rate_limit import RowRateLimit
from roquet.spark.jobs.resend_rows import originals_in
from roquet.spark.queue_offsets import OffsetRange, QueueKey, QueueOffsets, queue_text
from roquet.spark.source.tasks import BrokerUnavailable
from roquet.wire.calls.admin.stats import GetRuntimeInfo
from roquet.wire.calls.bodies import KVTable
from roquet.wire.calls.send import SendBatch, SendReply
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson.codec import loads

log = logger(__name__)

GROUP: Final = "roquet-spark-replay"
"""The producer group."""

BATCH_BYTES: Final = 1024 * 1024
"""Of one request, as the broker stores it."""

RECORD_OVERHEAD_BYTES: Final = 256
"""What a broker adds to a message: the fixed part of a record, names and addresses."""

BATCH_COUNT_MAX: Final = 8_192
"""Messages of one request."""

DISPATCH_WAIT_MS_MAX: Final = 10_000
"""How long queues that are behind their log are waited for. Genuine ones are so for milliseconds,
longer where no core is free; ours never, but what they tell counts their index of keys as well."""

TRANSIENT_CODES: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.GO_AWAY,
    }
)
"""Refusals that may pass."""


class ConcurrentRun(RoquetError):
    """Somebody else sends the same rows at this moment."""


class RowBatch:
    """Rows of one source that go in one request."""

    def __init__(self, source: QueueKey, offsets: OffsetArray, body: bytes) -> None:
        self.source, self.body = source, body
        self.offsets = OffsetSet.of(offsets)
        self.count = len(offsets)


class ExactlyOnceSender:
    """Sends the rows of some sources; nobody else sends to their queues."""

    def __init__(
        self,
        cluster: ClusterClient,
        ways: Mapping[QueueKey, QueueKey],
        since: QueueOffsets,
        pace: RowRateLimit | None = None,
    ) -> None:
        """`ways` lead from sources to queues; `since` is where the queues were before the run."""
        self._cluster, self._ways = cluster, ways
        self._at = {queue: since.get(queue, 0) for queue in set(ways.values())}
        self._pace = pace or RowRateLimit(None, cluster.pause)
        self._there = dict.fromkeys(ways, OffsetSet())
        """What earlier attempts have sent."""
        self._last = dict.fromkeys(ways, -1)
        """The offset of each source that was sent last."""
        self.doubled = 0

    def begin(self) -> int:
        """Find what earlier attempts have sent; gives how many messages."""
        count = 0
        for queue in sorted(self._at):
            for source, runs in self._look(queue).items():
                if self._ways.get(source) == queue:
                    self._there[source] |= runs
                    count += len(runs)
        return count

    def send(self, source: QueueKey, offsets: pa.Array, items: pa.Array) -> int:
        """Send rows of one source, in their order; gives how many were not there before."""
        numbers = offsets.cast(pa.int64()).to_numpy()
        is_new = (numbers > self._last[source]) & ~self._there[source].holds(numbers)
        fresh = np.flatnonzero(is_new)
        if not len(fresh):
            return 0
        items, numbers = items.take(pa.array(fresh)), numbers[fresh]
        sizes = pc.binary_length(items).to_numpy().astype(np.int64) + RECORD_OVERHEAD_BYTES
        step = min(self._pace.step or BATCH_COUNT_MAX, BATCH_COUNT_MAX)
        for first, end in split_evenly(sizes, BATCH_BYTES, step):
            self._pace.wait(end - first)
            load = RowBatch(source, numbers[first:end], join_items(items, first, end))
            self._deliver(load, self._ways[source])
            self._last[source] = load.offsets.last
        return len(fresh)

    def _deliver(self, load: RowBatch, queue: QueueKey) -> None:
        """Have a load stored, once."""
        deadline_ms = SYSTEM_CLOCK.monotonic_ms() + self._cluster.settings.timeout_ms
        tries = 0
        while True:
            try:
                reply = self._cluster.ask_once(queue[1], _call(load, queue))
            except CallError as error:
                _raise_unless_transient(error, load, queue)
                if SYSTEM_CLOCK.monotonic_ms() >= deadline_ms:
                    raise BrokerUnavailable(
                        f"{queue_text(queue)} takes nothing: {error}; start again"
                    ) from error
                self._cluster.pause(RETRY_PAUSES_MS[min(tries, len(RETRY_PAUSES_MS) - 1)])
                tries += 1
                if self._has_come(load, queue):
                    return
            else:
                self._settle(load, queue, reply)
                return

    def _settle(self, load: RowBatch, queue: QueueKey, reply: SendReply) -> None:
        """A load is stored; look at what came before it since the last one."""
        at = reply.queue_offset
        if at > self._at[queue]:
            self._judge(load, self._read(queue, self._at[queue], at), is_late=True)
        self._at[queue] = at + load.count

    def _has_come(self, load: RowBatch, queue: QueueKey) -> bool:
        """Whether a load whose answer was lost is there."""
        return self._judge(load, self._look(queue), is_late=False)

    def _judge(self, load: RowBatch, found: Mapping[QueueKey, OffsetSet], *, is_late: bool) -> bool:
        """Whether what was found is the load itself; ConcurrentRun for other rows of ours."""
        ours = {source: runs for source, runs in found.items() if source in self._ways}
        if not ours:
            return False
        runs = ours.get(load.source, OffsetSet())
        is_it = len(ours) == 1 and len(runs | load.offsets) == load.count
        if not is_it:
            raise ConcurrentRun(
                f"another run sends messages of {queue_text(load.source)} at this moment: wait "
                "until it has ended, and start again"
            )
        self.doubled += len(runs) if is_late else 0
        return True

    def _look(self, queue: QueueKey) -> dict[QueueKey, OffsetSet]:
        """What is new in a queue; from now on it is known."""
        topic, broker, queue_id = queue
        wait_for_dispatch(self._cluster, broker)
        told = self._cluster.with_retries(
            lambda: self._cluster.queue_bounds(topic, broker, (queue_id,)), broker
        )
        first, end = told[queue_id]
        start, self._at[queue] = max(first, self._at[queue]), max(end, self._at[queue])
        return self._read(queue, start, end)

    def _read(self, queue: QueueKey, start: int, end: int) -> dict[QueueKey, OffsetSet]:
        return read_originals(
            self._cluster, [OffsetRange(*queue, start, end)] if start < end else []
        )


def wait_for_dispatch(cluster: ClusterClient, broker: str) -> None:
    """Wait until the queues of a broker tell of all that its log holds now."""
    deadline_ms = SYSTEM_CLOCK.monotonic_ms() + DISPATCH_WAIT_MS_MAX
    wanted, done = _dispatch_progress(cluster, broker)
    while done < wanted:
        if SYSTEM_CLOCK.monotonic_ms() >= deadline_ms:
            log.warning("queues of broker %r are %d bytes behind its log", broker, wanted - done)
            return
        cluster.pause(RETRY_PAUSES_MS[0])
        done = _dispatch_progress(cluster, broker)[1]


def _dispatch_progress(cluster: ClusterClient, broker: str) -> tuple[int, int]:
    """Where a broker's log ends, and how far its queues tell of it."""
    try:
        reply = cluster.ask(broker, GetRuntimeInfo())
    except CallRefused:
        return 0, 0  # who may not ask goes by what the queues tell
    table = loads(bytes(reply.body), KVTable).table
    end, behind = (
        int(table.get(name, 0)) for name in ("commitLogMaxOffset", "dispatchBehindBytes")
    )
    return end, end - behind


def read_originals(
    cluster: ClusterClient, pieces: Sequence[OffsetRange]
) -> dict[QueueKey, OffsetSet]:
    """The originals of the copies that lie in these ranges."""
    return originals_in(RangeReader(cluster, ("properties",)).batches(pieces)) if pieces else {}


def _call(load: RowBatch, queue: QueueKey) -> SendBatch:
    topic, _, queue_id = queue
    return SendBatch(
        body=load.body,
        producer_group=GROUP,
        topic=topic,
        queue_id=queue_id,
        born_timestamp=SYSTEM_CLOCK.now_ms(),
    )


def _raise_unless_transient(error: CallError, load: RowBatch, queue: QueueKey) -> None:
    """RoquetError for a refusal that will be the same each time."""
    if isinstance(error, CallRefused) and error.code not in TRANSIENT_CODES:
        first = int(load.offsets.starts[0])
        raise RoquetError(
            f"{queue_text(queue)} refuses {queue_text(load.source)}, "
            f"offsets {first} to {load.offsets.last}: {error}"
        ) from error
