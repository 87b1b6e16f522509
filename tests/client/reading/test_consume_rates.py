from roquet.client.reading.consume_rates import HOUR_MS, SAMPLE_MS, ConsumeRates


def test_rates_are_those_of_the_last_minute() -> None:
    rates = ConsumeRates()
    tally = rates.of("t")
    rates.sample(0, {})
    tally.count_pull(1_000, 50)
    for n in range(1, 13):
        rates.sample(n * SAMPLE_MS, {"t": 400})
    tally.count_pull(60, 30)
    tally.count_pull(0, 15_000)
    table = rates.table(120_000, {"t": 430})
    rates_of_t = table["t"]
    assert (rates_of_t.pulled, rates_of_t.pull_ms) == (1.0, 30.0)
    assert rates_of_t.handled == 0.5, "of 60 more, 30 more are in flight"


def test_failures_are_those_of_the_last_hour() -> None:
    rates = ConsumeRates()
    tally = rates.of("t")
    tally.count_pull(100, 1)
    tally.failed = tally.gone = 7
    rates.sample(0, {})
    tally.failed = 9
    rates.sample(HOUR_MS // 2, {})
    assert rates.table(HOUR_MS // 2 + 1, {})["t"].failed_in_all == 2
    rates.sample(HOUR_MS + 1, {})
    assert rates.table(HOUR_MS + 2, {})["t"].failed_in_all == 0


def test_without_a_sample_there_is_no_rate() -> None:
    rates = ConsumeRates()
    rates.of("t").count_pull(5, 1)
    assert rates.table(5, {})["t"].pulled == 0.0
