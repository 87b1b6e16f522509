"""Search by time is exact, however roughly a broker searches."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from roquet.spark.cluster.time_search import first_since, probe_call
from roquet.wire.call import Call
from roquet.wire.calls.offset import OffsetByTime, OffsetReply
from roquet.wire.calls.pull import Pull, PullReply
from roquet.wire.codes import ResponseCode
from roquet.wire.records import record

HOST = bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F])
QUEUE = ("orders", "a", 0)
Search = Callable[[Sequence[int], int], int]


def exact(times: Sequence[int], ms: int) -> int:
    """The search of Roquet brokers and of Apache brokers from version 5."""
    return bisect_left(times, ms)


def nearest(times: Sequence[int], ms: int) -> int:
    """The search of Apache brokers of version 4: one of several equals, or the nearer neighbour."""
    low, high = 0, len(times) - 1
    left, right = -1, -1
    while low <= high:
        middle = (low + high) // 2
        if times[middle] == ms:
            return middle
        if times[middle] > ms:
            high, right = middle - 1, middle
        else:
            low, left = middle + 1, middle
    if left < 0:
        return max(right, 0)
    if right < 0:
        return left
    return right if ms - times[left] > times[right] - ms else left


class TimedBroker:
    """A queue whose messages were stored at these times; the first `gone` of them are deleted."""

    def __init__(self, times: Sequence[int], search: Search, gone: int = 0) -> None:
        self._times, self._search, self.gone = times, search, gone
        self.is_silent = False
        """Whether pulls return neither messages nor a further offset."""
        self.calls = 0

    def ask(self, _broker: str, call: Call[Any]) -> Any:
        self.calls += 1
        first, end = self.gone, len(self._times)
        if isinstance(call, OffsetByTime):
            kept = self._times[first:]
            return OffsetReply(offset=first + self._search(kept, call.timestamp) if kept else -1)
        assert isinstance(call, Pull)
        if not first <= call.queue_offset < end:
            code = ResponseCode.PULL_OFFSET_MOVED
            return PullReply(code=code, next_begin_offset=first, min_offset=first, max_offset=end)
        if self.is_silent:
            return PullReply(next_begin_offset=0, min_offset=first, max_offset=end, body=b"")
        last = min(call.queue_offset + min(call.max_msg_nums, 3), end)
        body = b"".join(packed(at, self._times[at]) for at in range(call.queue_offset, last))
        return PullReply(next_begin_offset=last, min_offset=first, max_offset=end, body=body)


def packed(at: int, stored_ms: int) -> bytes:
    return record.pack(0, 0, at, at, 0, 1, HOST, stored_ms, HOST, 0, 0, b"", b"orders", b"")


TIMES = st.lists(st.integers(1_000, 1_030), max_size=40).map(sorted)


@given(TIMES, st.integers(990, 1_040), st.sampled_from([exact, nearest]), st.integers(0, 5))
def test_the_first_message_since_any_time_is_found_in_any_queue(
    times: list[int], ms: int, search: Search, gone: int
) -> None:
    gone = min(gone, len(times))
    broker: Any = TimedBroker(times, search, gone)
    expected = max(bisect_left(times, ms), gone)
    assert first_since(broker.ask, "lake", QUEUE, (gone, len(times)), ms) == expected


@given(TIMES, st.integers(990, 1_040), st.integers(0, 20), st.integers(0, 20))
@example([*[1_000] * 7, 1_022, 1_022, 1_023], 1_023, 0, 8)
def test_the_answer_stays_within_the_span(times: list[int], ms: int, low: int, more: int) -> None:
    low = min(low, len(times))
    high = min(low + more, len(times))
    broker: Any = TimedBroker(times, exact)
    expected = min(max(bisect_left(times, ms), low), high)
    assert first_since(broker.ask, "lake", QUEUE, (low, high), ms) == expected


@given(TIMES, st.integers(990, 1_040), st.sampled_from([exact, nearest]), st.integers(0, 5))
def test_messages_that_retention_deletes_during_the_search_do_not_end_it(
    times: list[int], ms: int, search: Search, gone: int
) -> None:
    gone = min(gone, len(times))
    broker: Any = TimedBroker(times, search, gone)
    ask = broker.ask

    def late(name: str, call: Call[Any]) -> Any:
        if not isinstance(call, OffsetByTime):
            return ask(name, call)
        before, broker.gone = broker.gone, 0  # as it was when the broker searched
        try:
            return ask(name, call)
        finally:
            broker.gone = before

    broker.ask = late
    offset = first_since(broker.ask, "lake", QUEUE, (0, len(times)), ms)
    assert max(offset, gone) == max(bisect_left(times, ms), gone)


def test_an_exact_search_costs_two_calls() -> None:
    broker: Any = TimedBroker([1_000 + at // 50 for at in range(1_000)], exact)
    assert first_since(broker.ask, "lake", QUEUE, (0, 1_000), 1_009) == 450
    assert broker.calls == 2


def test_a_queue_whose_pulls_return_nothing_is_read_rather_than_left_out() -> None:
    broker = TimedBroker([1_000, 1_001, 1_002], exact)
    broker.is_silent = True
    assert first_since(broker.ask, "lake", QUEUE, (0, 3), 1_002) == 1


def test_a_glance_is_for_all_messages_from_an_offset_on() -> None:
    call = probe_call("lake", ("orders", "broker-a", 3), 40, 2)
    assert (call.consumer_group, call.topic, call.queue_id) == ("lake", "orders", 3)
    assert (call.queue_offset, call.max_msg_nums, call.max_msg_bytes) == (40, 2, None)
    assert (call.subscription, call.expression_type) == ("*", "TAG")
    assert call.suspend_timeout_millis == call.commit_offset == 0


def test_its_bytes_may_be_bounded() -> None:
    assert probe_call("lake", ("orders", "broker-a", 3), 0, 32, 64).max_msg_bytes == 64
