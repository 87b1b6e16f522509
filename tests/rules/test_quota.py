import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import ConfigError
from roquet.rules.quota import (
    BUCKETS_MAX,
    Quota,
    QuotaBuckets,
    QuotaDirection,
    QuotaKind,
    QuotaSubject,
    QuotaUnit,
    TokenBucket,
    parse_quotas,
    write_quotas,
)

SUBJECT = QuotaSubject(user="shop", topic="orders", client="10.0.0.1")


def buckets(text: str) -> QuotaBuckets:
    return QuotaBuckets(parse_quotas(text, "quotas"), QuotaDirection.SEND)


def test_quotas_are_read_and_written() -> None:
    text = "topic:* send 5000/s; user:batch send 200/s 1MiB/s; client:::1 fetch 10kB/s;"
    quotas = parse_quotas(text, "quotas")
    assert [str(quota) for quota in quotas] == [
        "topic:* send 5000/s",
        "user:batch send 200/s",
        "user:batch send 1048576B/s",
        "client:::1 fetch 10000B/s",
    ]
    assert parse_quotas(write_quotas(quotas), "quotas") == quotas
    assert parse_quotas(" ", "quotas") == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("topic:a", "'topic:a' is no quota: write user:NAME"),
        ("queue:a send 1/s", "is no quota"),
        ("topic: send 1/s", "is no quota"),
        ("topic:a take 1/s", "is no quota"),
        ("topic:a send 1", "is no quota"),
        ("topic:a send 1/m", "is no quota"),
        ("topic:a send manyB/s", "is not a number with a unit"),
        ("topic:a send 0/s", "0 is less than 1"),
        ("topic:a send 0B/s", "0B/s is out of bounds"),
        ("topic:a send 2000000GB/s", "out of bounds: 1/s to"),
        ("topic:a send 1/s; topic:a send 2/s", "two quotas of messages for topic:a send"),
    ],
)
def test_a_text_that_is_no_quota_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_quotas(text, "quotas")


def test_a_bucket_holds_one_second_and_fills_at_its_rate() -> None:
    limited = buckets("topic:* send 10/s")
    assert not limited.is_empty
    for _ in range(10):
        assert limited.excess(SUBJECT, 0) is None
        limited.charge(SUBJECT, 1, 100, 0)
    excess = limited.excess(SUBJECT, 0)
    assert excess is not None
    assert excess.wait_ms == 100
    assert str(excess) == ("quota: topic orders may send 10 messages a second, try again in 100 ms")
    assert limited.excess(SUBJECT, 99) is not None
    assert limited.excess(SUBJECT, 100) is None
    assert limited.excess(QuotaSubject("shop", "other", "10.0.0.1"), 0) is None


def test_a_message_of_any_size_passes_and_the_next_one_waits_for_it() -> None:
    limited = buckets("client:* send 1000B/s")
    assert limited.excess(SUBJECT, 0) is None
    limited.charge(SUBJECT, 1, 5_000, 0)
    excess = limited.excess(SUBJECT, 0)
    assert excess is not None
    assert excess.wait_ms == 4_001


def test_the_longest_wait_counts_and_a_name_comes_before_the_star() -> None:
    limited = buckets("user:* send 1/s; user:shop send 4/s; topic:* send 2/s 1B/s")
    limited.charge(SUBJECT, 4, 10, 0)
    excess = limited.excess(SUBJECT, 0)
    assert excess is not None
    assert str(excess.quota) == "topic:* send 1B/s"
    excess = limited.excess(QuotaSubject("shop", "", ""), 0)
    assert excess is not None
    assert excess.quota.rate == 4
    assert limited.excess(QuotaSubject("", "", ""), 0) is None


def test_a_quota_counts_in_its_direction_alone() -> None:
    assert QuotaBuckets(parse_quotas("topic:* fetch 1/s", ""), QuotaDirection.SEND).is_empty


def test_names_beyond_the_bound_are_forgotten_the_oldest_first() -> None:
    limited = buckets("topic:* send 1/s")
    for number in range(BUCKETS_MAX + 1):
        limited.charge(QuotaSubject("", f"t{number}", ""), 2, 0, 0)
    assert limited.excess(QuotaSubject("", "t0", ""), 0) is None
    assert limited.excess(QuotaSubject("", f"t{BUCKETS_MAX}", ""), 0) is not None


@given(
    st.integers(1, 10_000),
    st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 500)), max_size=40),
)
def test_no_more_than_a_second_and_one_request_pass_beyond_the_rate(
    rate: int, requests: list[tuple[int, int]]
) -> None:
    quota = Quota(
        kind=QuotaKind.USER,
        name="*",
        direction=QuotaDirection.SEND,
        unit=QuotaUnit.MESSAGES,
        rate=rate,
    )
    bucket, now_ms, passed = TokenBucket(quota, 0), 0, 0
    for pause_ms, count in requests:
        now_ms += pause_ms
        wait_ms = bucket.wait_ms(now_ms)
        assert wait_ms >= 0
        if wait_ms == 0:
            bucket.take(count)
            passed += count
    assert passed <= rate * (1 + now_ms / 1_000) + 500
