"""When receipts are renewed, and for how long."""

from roquet.rules.proxy.renewal import is_due, is_over, renewal_ms


def test_renewals_grow_to_an_hour_each() -> None:
    minutes = [renewal_ms(number) // 60_000 for number in range(8)]
    assert minutes == [1, 3, 5, 10, 30, 60, 60, 60]


def test_a_receipt_is_renewed_ten_seconds_before_its_end() -> None:
    assert not is_due(20_001, 10_000)
    assert is_due(20_000, 10_000)


def test_a_message_is_left_to_its_retry_after_three_hours() -> None:
    assert not is_over(0, 3 * 3_600_000 - 1)
    assert is_over(0, 3 * 3_600_000)
