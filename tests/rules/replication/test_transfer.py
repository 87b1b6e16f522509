"""Where the stream to a replica begins."""

import pytest

from roquet.rules.replication.transfer import LogBounds, is_possible_report, transfer_start

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
