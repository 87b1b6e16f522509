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
    latencies.left -= 3
    assert latencies.untimed == 3
    latencies.observe(7)
    assert latencies.untimed == 0
    latencies.left -= 2
    for _ in range(2):
        histogram = latencies.histogram()
        assert (histogram.count, histogram.sum) == (6, 42)


def test_how_many_need_not_be_timed_is_set_without_counting_any() -> None:
    latencies = RequestLatencies()
    latencies.left -= 1
    for allowed in (15, 0, 7):
        latencies.allow_untimed(allowed)
        assert (latencies.left, latencies.untimed) == (allowed, 1)
    latencies.left -= 2
    assert latencies.untimed == 3
    latencies.observe(5)
    assert (latencies.left, latencies.untimed, latencies.histogram().count) == (5, 0, 4)


def test_a_kind_that_never_occurred_is_not_shown() -> None:
    counts = RequestCounts()
    counts.of(RequestKind(11, 0, False, OK)).allow_untimed(15)
    assert list(counts.items()) == []


def test_codes_beyond_the_limit_are_counted_together() -> None:
    counts = RequestCounts()
    for code in range(KEYS_MAX + 50):
        counts.of(RequestKind(code, 3, False, OK)).observe(0)
    found = dict(counts.items())
    assert len(found) == KEYS_MAX + 1
    others = [h.count for kind, h in found.items() if kind.request_code == OTHER_CODE]
    assert others == [50]
