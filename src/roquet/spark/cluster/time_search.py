"""Moments: where in a queue a time is, to the message.

Brokers search by time themselves, but some only nearly: they give a message that is next to the
one that is wanted, or any of several stored in the same millisecond. So what they say is looked at.
"""

from typing import Final, Protocol, TypeVar

from roquet.arrow.records import RecordColumns
from roquet.spark.cluster.probe import probe_call
from roquet.spark.queue_offsets import QueueKey
from roquet.wire.call import Call, Reply
from roquet.wire.calls.offset import OffsetByTime

R = TypeVar("R", bound=Reply)

PROBE_MESSAGES: Final = 32
"""Messages of one look: as many as a genuine broker gives."""


class BrokerCall(Protocol):
    """Calls a broker by its name and returns its reply: `cluster.Cluster.ask`."""

    def __call__(self, broker: str, call: Call[R], /) -> R:
        """The reply; waits while the broker is away."""


def first_since(
    ask: BrokerCall, group: str, queue: QueueKey, span: tuple[int, int], ms: int
) -> int:
    """The offset of the first message stored at a time or later, within the span's ends."""
    low, high = span
    at = _search(ask, queue, ms)
    if low < at < high:
        seen, _ = _stored_times(ask, group, queue, at - 1, 2)
        if seen.get(at - 1, ms) < ms <= seen.get(at, -1):
            return at
    # What the search gives for the millisecond before is never behind the first of this one.
    at = max(_search(ask, queue, ms - 1), low)
    while at < high:
        seen, after = _stored_times(ask, group, queue, at, PROBE_MESSAGES)
        for offset, stored_ms in seen.items():
            if stored_ms >= ms:
                return min(offset, high)
        if not seen and after <= at:
            return at  # the broker does not lead on
        at = max(seen) + 1 if seen else after  # retention took the others this moment
    return high


def _search(ask: BrokerCall, queue: QueueKey, ms: int) -> int:
    topic, broker, queue_id = queue
    call = OffsetByTime(topic=topic, queue_id=queue_id, timestamp=max(ms, 0))
    return ask(broker, call).offset


def _stored_times(
    ask: BrokerCall, group: str, queue: QueueKey, at: int, count: int
) -> tuple[dict[int, int], int]:
    """When some messages were stored, by their offset; and where others follow."""
    _, broker, _ = queue
    call = probe_call(group, queue, at, count)
    reply = ask(broker, call)
    records = RecordColumns.of(reply.body, broker=broker)
    stored = zip(records.queue_offsets.tolist(), records.stored_ms.tolist(), strict=True)
    return {offset: ms for offset, ms in stored if offset >= at}, reply.next_begin_offset
