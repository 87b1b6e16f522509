from datetime import UTC, datetime

import pytest

from roquet.model.errors import ConfigError, RecordError
from roquet.model.moments import parse_moment, utc_time


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1795909285000", 1_795_909_285_000),
        (" 946684800000 ", 946_684_800_000),
        ("2026-01-31T12:00", 1_769_860_800_000),
        ("2026-01-31T13:00+01:00", 1_769_860_800_000),
        ("2026-01-31", 1_769_817_600_000),
        ("1969-12-31T23:59:59.999", 0),
    ],
)
def test_a_date_or_plausible_ms_is_a_time(text: str, ms: int) -> None:
    assert parse_moment(text, "--to", UTC) == ms


def test_a_date_without_a_zone_is_of_this_machine() -> None:
    assert abs(parse_moment("2026-01-31T12:00", "--to") - 1_769_860_800_000) <= 14 * 3_600_000


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("1795909285", "; did you mean 1795909285000 (2026-11-28 23:41:25 UTC)?"),
        ("1795909285000000", "; did you mean 1795909285000 (2026-11-28 23:41:25 UTC)?"),
        ("1795909285000000000", "; did you mean 1795909285000 (2026-11-28 23:41:25 UTC)?"),
        ("20261128", "; did you mean 2026-11-28?"),
        ("202611281530", "; did you mean 2026-11-28T15:30:00?"),
        ("20131223171201", "; did you mean 2013-12-23T17:12:01?"),
        (
            "2026112815",
            "; did you mean 2026-11-28T15:00:00 or 2026112815000 (2034-03-16 09:06:55 UTC)?",
        ),
        ("20261399", ""),
        ("19700101", ""),
        ("0", ""),
        ("12", ""),
        ("9" * 5000, ""),
    ],
)
def test_a_number_that_is_no_ms_is_refused_with_what_it_may_mean(text: str, hint: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_moment(text, "--to")
    shown = f"--to: {text[:30]} is no time in ms since 1970, which has 12 or 13 digits{hint}"
    assert str(error.value) == shown


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "-1", "", "1.5", "٢٠٢٦", "x" * 5000])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--to: .* is no time like 2026-01-31T12:00"):
        parse_moment(text, "--to", UTC)


@pytest.mark.parametrize("text", ["0001-01-01", "0226-11-28", "1969-12-30", "2200-01-01"])
def test_a_year_that_nobody_means_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"--to: {text} is not in the years 1970 to 2199"):
        parse_moment(text, "--to", UTC)


def test_ms_are_a_datetime_in_utc() -> None:
    assert utc_time(1_769_860_800_123) == datetime(2026, 1, 31, 12, 0, 0, 123_000, tzinfo=UTC)


@pytest.mark.parametrize("ms", [2**63 - 1, -(2**63)])
def test_ms_of_no_year_are_refused(ms: int) -> None:
    with pytest.raises(RecordError, match="no date of the years 1 to 9999"):
        utc_time(ms)
