"""Search by time: the offset of the first message stored at a time or later.

Brokers search by time themselves, but some only approximately: they return a neighbour of the
message, or any of several stored in the same millisecond. So their answer is checked by probes:
unfiltered pulls for a few messages, which also tell a queue's times or sizes.
"""

from typing import Final, Protocol, TypeVar

from roquet.lake.queue_offsets import QueueKey
from roquet.model.flags import PullFlag
from roquet.model.subscription import ALL, TAG
from roquet.wire.call import Call, Reply
from roquet.wire.calls.offset import OffsetByTime
from roquet.wire.calls.pull import Pull


def probe_call(
    group: str, queue: QueueKey, at: int, count: int, size_max: int | None = None
) -> Pull:
    """A pull of up to `count` messages from `at` on, or `size_max` bytes, without long polling."""
    topic, _, queue_id = queue
    return Pull(
        consumer_group=group,
        topic=topic,
        queue_id=queue_id,
        queue_offset=at,
        max_msg_nums=count,
        sys_flag=int(PullFlag.SUBSCRIPTION),
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=ALL,
        sub_version=0,
        expression_type=TAG,
        max_msg_bytes=size_max,
    )


R = TypeVar("R", bound=Reply)

PROBE_MESSAGES: Final = 32
"""Messages of one probe: as many as an Apache broker returns."""


class BrokerCall(Protocol):
    """Calls a broker by its name and returns its reply: `cluster.Cluster.ask`."""

    def __call__(self, broker: str, call: Call[R], /) -> R:
        """The reply; waits while the broker is away."""


def first_since(
    ask: BrokerCall, group: str, queue: QueueKey, span: tuple[int, int], ms: int
) -> int:
    """The offset, within the span, of the first message stored at `ms` or later.

    The span's end when there is none.
    """
    low, high = span
    at = _search(ask, queue, ms)
    if low < at < high:
        seen, _ = stored_times(ask, group, queue, at - 1, 2)
        if seen.get(at - 1, ms) < ms <= seen.get(at, -1):
            return at
    # The result for the millisecond before is never after the first message of this one.
    at = max(_search(ask, queue, ms - 1), low)
    while at < high:
        seen, after = stored_times(ask, group, queue, at, PROBE_MESSAGES)
        for offset, stored_ms in seen.items():
            if stored_ms >= ms:
                return min(offset, high)
        if not seen and after <= at:
            return at  # the broker gives no further offset
        at = max(seen) + 1 if seen else after  # retention has just deleted the others
    return high


def _search(ask: BrokerCall, queue: QueueKey, ms: int) -> int:
    topic, broker, queue_id = queue
    call = OffsetByTime(topic=topic, queue_id=queue_id, timestamp=max(ms, 0))
    return ask(broker, call).offset


def stored_times(
    ask: BrokerCall, group: str, queue: QueueKey, at: int, count: int
) -> tuple[dict[int, int], int]:
    """Stored times in ms by offset of up to `count` messages, and the next offset."""
    # Imported here: it decodes messages, which few drivers need.
    from roquet.arrow.records import RecordColumns

    _, broker, _ = queue
    call = probe_call(group, queue, at, count)
    reply = ask(broker, call)
    records = RecordColumns.of(reply.body, broker=broker)
    stored = zip(records.queue_offsets.tolist(), records.stored_ms.tolist(), strict=True)
    return {offset: ms for offset, ms in stored if offset >= at}, reply.next_begin_offset
