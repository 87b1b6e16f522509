from roquet.metrics.request_counts import (
    KEYS_MAX,
    LATENCY_MS,
    OTHER_CODE,
    RequestCounts,
    RequestKind,
    RequestLatencies,
    RequestResult,
)

OK = RequestResult.SUCCESS


def test_requests_are_told_apart_by_code_reply_and_wait() -> None:
    counts = RequestCounts()
    counts.of(RequestKind(11, 0, False, OK)).observe(2)
    counts.of(RequestKind(11, 0, False, OK)).observe(3)
    counts.of(RequestKind(11, 0, True, OK)).observe(15_000)
    counts.of(RequestKind(11, 19, False, OK)).observe(0)
    found = dict(counts.items())
    assert found[RequestKind(11, 0, False, OK)].count == 2
    assert found[RequestKind(11, 0, False, OK)].counts[LATENCY_MS.index(3)] == 2
    assert found[RequestKind(11, 0, True, OK)].counts[-1] == 1
    assert found[RequestKind(11, 19, False, OK)].count == 1


def test_requests_that_were_not_timed_count_with_the_time_of_one_that_was() -> None:
    latencies = RequestLatencies()
    latencies.untimed = 3
    latencies.observe(7)
    latencies.untimed = 2
    for _ in range(2):
        histogram = latencies.histogram()
        assert (histogram.count, histogram.sum) == (6, 42)


def test_codes_beyond_the_limit_are_counted_together() -> None:
    counts = RequestCounts()
    for code in range(KEYS_MAX + 50):
        counts.of(RequestKind(code, 3, False, OK)).observe(0)
    found = dict(counts.items())
    assert len(found) == KEYS_MAX + 1
    others = [h.count for kind, h in found.items() if kind.request_code == OTHER_CODE]
    assert others == [50]
