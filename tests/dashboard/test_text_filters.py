import pytest

from roquet.dashboard import text_filters as filters


def test_what_is_not_known_is_a_dash() -> None:
    shown = [filters.number, filters.size, filters.rate, filters.duration, filters.time,
             filters.percent]  # fmt: skip
    assert {show(None) for show in shown} == {filters.DASH}


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KB"), (20 * 1024**2, "20 MB"), (2**60, "1024.0 PB")],
)
def test_sizes_have_a_unit_that_fits(value: int, text: str) -> None:
    assert filters.size(value) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 s"),
        (59_000, "59 s"),
        (61_000, "1 min 1 s"),
        (601_000, "10 min"),
        (3_600_000, "1 h"),
        (3_720_000, "1 h 2 min"),
        (86_400_000, "1 d"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_durations_have_two_units_at_most(ms: int, text: str) -> None:
    assert filters.duration(ms) == text


def test_small_rates_have_a_digit_more() -> None:
    assert [filters.rate(value) for value in (0, 0.25, 9.94, 1234.5)] == [
        "0/s", "0.2/s", "9.9/s", "1,234/s",
    ]  # fmt: skip


def test_times_are_utc_and_odd_ones_are_not_known() -> None:
    assert filters.time(1_700_000_000_000) == "2023-11-14 22:13:20"
    assert filters.time(2**63) == filters.time(-1) == filters.time(0) == filters.DASH


def test_a_clients_version_is_its_release_where_that_is_known() -> None:
    assert (filters.release(513), filters.release(7)) == ("5.5.0", "version 7")


def test_numbers_and_names() -> None:
    assert (filters.number(1234567), filters.percent(0.756)) == ("1,234,567", "76 %")
    assert filters.segment("a/b c%\ud800") == "a%2Fb%20c%25%3F"
