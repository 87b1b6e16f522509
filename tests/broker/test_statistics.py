from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from tests.broker.conftest import not_none

from roquet.broker import statistics as module
from roquet.broker.statistics import COUNT, SAMPLE_MS, SIZE, Statistics
from roquet.wire.calls.admin.stats import StatsItem

NOW = 1_700_000_000_000


def later(statistics: Statistics, ticks: int, now_ms: int = NOW) -> None:
    """So many samples, in their time."""
    for tick in range(1, ticks + 1):
        list(statistics.tick(now_ms + tick * SAMPLE_MS))


def minute(statistics: Statistics, name: str, key: str) -> StatsItem | None:
    stats = statistics.view(name, key)
    return stats.stats_minute if stats else None


def test_rates_are_reported_once_a_sample_was_taken() -> None:
    statistics = Statistics(NOW)
    statistics.put("orders", 10, 2330)
    statistics.got("orders", "billing", 4, 932)
    statistics.got("orders", "billing", 6, 1398)
    assert minute(statistics, "TOPIC_PUT_NUMS", "orders") == StatsItem()
    later(statistics, 1)
    assert minute(statistics, "TOPIC_PUT_NUMS", "orders") == StatsItem(sum=10, tps=1.0, avgpt=1.0)
    assert minute(statistics, "TOPIC_PUT_SIZE", "orders") == StatsItem(
        sum=2330, tps=233.0, avgpt=233.0
    )
    got = minute(statistics, "GROUP_GET_NUMS", "orders@billing")
    assert got == StatsItem(sum=10, tps=1.0, avgpt=5.0), "ten messages in two goes"
    size = not_none(minute(statistics, "GROUP_GET_SIZE", "orders@billing"))
    assert (size.sum, size.avgpt) == (2330, 1165.0)


def test_a_statistic_that_was_never_counted_is_unknown() -> None:
    statistics = Statistics(NOW)
    statistics.put("orders", 1, 1)
    for name, key in [
        ("TOPIC_PUT_NUMS", "other"), ("GROUP_GET_NUMS", "orders@billing"), ("NONE", "orders"),
        ("SNDBCK_PUT_NUMS", "orders@billing"), ("GROUP_GET_LATENCY", "0@orders@billing"),
        ("GROUP_GET_NUMS", ""), ("", ""),
    ]:  # fmt: skip
        assert statistics.view(name, key) is None


def test_messages_sent_back_are_counted_by_topic_and_group() -> None:
    statistics = Statistics(NOW)
    statistics.sent_back("orders", "billing")
    statistics.sent_back("orders", "billing")
    later(statistics, 1)
    stats = minute(statistics, "SNDBCK_PUT_NUMS", "orders@billing")
    assert stats == StatsItem(sum=2, tps=0.2, avgpt=1.0)


def test_reading_takes_no_time_worth_telling() -> None:
    statistics = Statistics(NOW)
    statistics.got("orders", "billing", 1, 1)
    later(statistics, 1)
    assert minute(statistics, "GROUP_GET_LATENCY", "0@orders@billing") == StatsItem()


def test_a_minute_an_hour_and_a_day_are_forgotten_in_their_turn() -> None:
    statistics = Statistics(NOW)
    statistics.put("orders", 60, 60)
    later(statistics, 7)
    stats = statistics.view("TOPIC_PUT_NUMS", "orders")
    assert stats == statistics.spans(statistics.puts["orders"], COUNT)
    assert stats.stats_minute == StatsItem()
    assert stats.stats_hour == StatsItem(), "its first sample comes after ten minutes"
    later(statistics, 53, NOW + 7 * SAMPLE_MS)
    stats = not_none(statistics.view("TOPIC_PUT_NUMS", "orders"))
    assert stats.stats_hour == StatsItem(sum=60, tps=0.1, avgpt=1.0)
    later(statistics, 360, NOW + 60 * SAMPLE_MS)
    stats = not_none(statistics.view("TOPIC_PUT_NUMS", "orders"))
    assert (stats.stats_hour, stats.stats_day) == (
        StatsItem(),
        StatsItem(sum=60, tps=1 / 60, avgpt=1),
    )


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=30))
def test_a_minute_holds_what_was_counted_in_its_six_samples(counts: list[int]) -> None:
    statistics = Statistics(NOW)
    statistics.put("orders", 0, 0)
    for tick, count in enumerate(counts, 1):
        statistics.put("orders", count, 3 * count)
        list(statistics.tick(NOW + tick * SAMPLE_MS))
    for name, factor in (("TOPIC_PUT_NUMS", 1), ("TOPIC_PUT_SIZE", 3)):
        stats = not_none(minute(statistics, name, "orders"))
        assert stats.sum == factor * sum(counts[-6:])
        assert stats.tps == stats.sum * 1000 / (min(len(counts), 6) * SAMPLE_MS)


def test_a_key_that_comes_late_is_measured_from_the_sample_before_it() -> None:
    statistics = Statistics(NOW)
    later(statistics, 3)
    statistics.put("orders", 5, 5)
    list(statistics.tick(NOW + 4 * SAMPLE_MS))
    assert minute(statistics, "TOPIC_PUT_NUMS", "orders") == StatsItem(sum=5, tps=0.5, avgpt=1.0)
    assert statistics.consume_tps("orders", "billing") == 0.0
    assert (statistics.put_tps("orders"), statistics.put_tps("none")) == (0.5, 0.0)


def test_rates_of_the_broker_are_of_ten_seconds_a_minute_and_ten_minutes() -> None:
    statistics = Statistics(NOW)
    for tick in range(1, 61):
        statistics.put("orders", 20 if tick == 60 else 10, 1)
        list(statistics.tick(NOW + tick * SAMPLE_MS))
    assert statistics.rates(statistics.broker_puts, COUNT) == (2.0, 70 / 60, 610 / 600)
    assert statistics.rates(statistics.misses, COUNT) == (0.0, 0.0, 0.0)


def test_two_samples_at_the_same_time_divide_by_nothing() -> None:
    statistics = Statistics(NOW)
    statistics.put("orders", 1, 1)
    list(statistics.tick(NOW))
    assert minute(statistics, "TOPIC_PUT_NUMS", "orders") == StatsItem(sum=1, tps=0.0, avgpt=1.0)


def test_system_topics_count_for_the_broker_and_not_for_the_day() -> None:
    statistics = Statistics(NOW, frozenset({"BenchmarkTest"}))
    for topic in ("orders", "BenchmarkTest"):
        statistics.put(topic, 3, 1)
        statistics.got(topic, "billing", 2, 1)
    assert (statistics.put_total.now, statistics.get_total.now) == (3, 2)
    assert (statistics.broker_puts.count, statistics.broker_gets.count) == (6, 4)


def test_at_midnight_a_new_day_begins() -> None:
    midnight = datetime.fromtimestamp(NOW // 1000, tz=UTC).astimezone()
    midnight = midnight.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    now_ms = int(midnight.timestamp() * 1000)
    statistics = Statistics(now_ms - 5_000)
    statistics.put("orders", 7, 1)
    list(statistics.tick(now_ms + 5_000))
    statistics.put("orders", 2, 1)
    list(statistics.tick(now_ms + 15_000))
    total = statistics.put_total
    assert (total.yesterday_morning, total.today_morning, total.now) == (0, 7, 9)
    list(statistics.tick(now_ms + 86_400_000 + 5_000))
    assert (total.yesterday_morning, total.today_morning, total.now) == (7, 9, 9)


def test_keys_above_the_limit_count_for_the_broker_alone() -> None:
    statistics = Statistics(NOW)
    for number in range(module.KEYS_MAX + 5):
        statistics.got(f"t{number}", "billing", 1, 1)
    assert len(statistics.gets) == module.KEYS_MAX
    assert statistics.broker_gets.count == module.KEYS_MAX + 5
    assert statistics.view("GROUP_GET_NUMS", f"t{module.KEYS_MAX}@billing") is None


def test_keys_unused_for_a_day_are_removed() -> None:
    statistics = Statistics(NOW)
    statistics.put("old", 1, 1)
    for tick in range(1, 360 * 26 + 1):
        if tick % 360 == 0:
            statistics.put("busy", 1, 1)
        list(statistics.tick(NOW + tick * SAMPLE_MS))
    assert list(statistics.puts) == ["busy"]


def test_statistics_of_deleted_topics_are_removed() -> None:
    statistics = Statistics(NOW)
    for topic in ("orders", "paid"):
        statistics.put(topic, 1, 1)
        for group in ("billing", "audit"):
            statistics.got(topic, group, 1, 1)
            statistics.sent_back(topic, group)
    statistics.forget(["orders"])
    statistics.forget(group="audit")
    assert list(statistics.puts) == ["paid"]
    assert list(statistics.gets) == list(statistics.returns) == [("paid", "billing")]
    assert statistics.broker_puts.count == 2, "it was stored, whatever became of it"


def test_the_pulled_offset_of_a_queue_is_kept() -> None:
    statistics = Statistics(NOW)
    statistics.got("orders", "billing", 3, 99).pulled[1] = 8
    assert statistics.pulled("orders", "billing", 1) == 8
    assert statistics.pulled("orders", "billing", 0) == statistics.pulled("orders", "other", 1) == 0


def test_misses_are_counted() -> None:
    statistics = Statistics(NOW)
    statistics.missed()
    statistics.missed()
    later(statistics, 1)
    assert statistics.rates(statistics.misses, 0)[0] == 0.2


def test_sizes_have_a_place_of_their_own() -> None:
    statistics = Statistics(NOW)
    statistics.put("orders", 1, 100)
    later(statistics, 1)
    assert statistics.rates(statistics.broker_puts, SIZE)[0] == 10.0
