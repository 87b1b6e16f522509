"""Where the stream to a replica begins."""

import pytest

from roquet.rules.replication.transfer import (
    LogBounds,
    TransferMeter,
    is_possible_report,
    next_second_ms,
    transfer_start,
)

MIB = 1 << 20
BOUNDS = LogBounds(first=MIB, end=3_101_292, file_size=MIB)


def test_an_empty_log_begins_at_the_last_file_or_at_the_oldest() -> None:
    assert transfer_start(0, BOUNDS, from_last_file=True) == 0x200000
    assert transfer_start(0, BOUNDS, from_last_file=False) == MIB


def test_a_log_goes_on_where_it_ends() -> None:
    for end in (MIB, 2 * MIB + 7, 3_101_292):
        assert transfer_start(end, BOUNDS, from_last_file=True) == end


@pytest.mark.parametrize("end", [1, MIB - 1, 3_101_293])
def test_a_log_that_ends_where_the_masters_is_not_gets_nothing(end: int) -> None:
    assert transfer_start(end, BOUNDS, from_last_file=False) is None


def test_a_report_beyond_the_masters_end_cannot_be_true() -> None:
    assert is_possible_report(0, 0)
    assert is_possible_report(7, 7)
    assert not is_possible_report(8, 7)
    assert not is_possible_report(-1, 7)


def test_bytes_count_until_the_second_ends() -> None:
    meter = TransferMeter()
    meter.add(60, now_ms=5_000)
    meter.add(30, now_ms=5_999)
    assert meter.left(100, now_ms=5_999) == 10
    meter.add(30, now_ms=5_999)
    assert meter.left(100, now_ms=5_999) == 0, "one frame may be over"
    assert meter.left(100, now_ms=6_000) == 100


def test_the_rate_is_that_of_the_last_whole_second() -> None:
    meter = TransferMeter()
    meter.add(60, now_ms=5_000)
    assert meter.bytes_per_second(5_999) == 0
    assert meter.bytes_per_second(6_000) == 60
    meter.add(7, now_ms=6_001)
    assert meter.bytes_per_second(8_000) == 0, "nothing was transferred in second 7"


def test_a_full_second_is_waited_out() -> None:
    assert (next_second_ms(5_000), next_second_ms(5_999)) == (1_000, 1)
