"""Moments: times that people write, as 2026-01-31T12:00, or in ms since the epoch."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from roquet.model.errors import ConfigError, RecordError

DAY_MS: Final = 86_400_000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
PLAUSIBLE_FROM_MS: Final = 946_684_800_000
"""The year 2000. A smaller number is no time in ms: it is seconds, or a date without dashes."""

PLAUSIBLE_TO_MS: Final = 7_258_118_400_000
"""The year 2200. A larger number is microseconds, nanoseconds, or a date without dashes."""

DIGITS_MAX: Final = 19
"""Digits of a number that is looked at: nanoseconds since the epoch have 19."""

FORMS: Final = "no time like 2026-01-31T12:00, and no ms since 1970"

_DATES: Final = {8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
"""Dates without dashes by their number of digits; Java's consumeTimestamp has 14."""

_UNITS: Final = ((1000, 1), (1, 1000), (1, 1_000_000))
"""Seconds, microseconds and nanoseconds: factor and divisor that make ms of them."""


def utc_time(ms: int) -> datetime:
    """A time in ms since 1970 as a datetime in UTC; RecordError for one that no date has."""
    try:
        return EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        raise RecordError(f"{ms} ms since 1970 are no date of the years 1 to 9999") from None


def parse_moment(text: str, name: str, zone: tzinfo | None = None, *, forms: str = FORMS) -> int:
    """Parse a time into ms since the epoch; `zone` is that of texts without one, None the local.

    The first moments of 1970, which are before it in some zones, are 0. Raises ConfigError, which
    begins with `name`, for a text that is neither a date from 1970 to 2199 nor plausible ms: a
    number that means something else offers that reading, since seconds or 20260131 taken as ms are
    in January 1970.
    """
    text = text.strip()
    if text.isascii() and text.isdecimal():
        return _parse_ms(text, name)
    try:
        ms = int(_with_zone(datetime.fromisoformat(text), zone).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ConfigError(f"{name}: {text!r:.100} is {forms}") from None
    if not -DAY_MS <= ms < PLAUSIBLE_TO_MS:
        raise ConfigError(f"{name}: {text:.30} is not in the years 1970 to 2199")
    return max(0, ms)


def _parse_ms(text: str, name: str) -> int:
    if len(text) <= DIGITS_MAX and _is_plausible(int(text)):
        return int(text)
    hint = " or ".join(_readings(text))
    raise ConfigError(
        f"{name}: {text:.30} is no time in ms since 1970, which has 12 or 13 digits"
        + (f"; did you mean {hint}?" if hint else "")
    )


def _is_plausible(ms: int) -> bool:
    return PLAUSIBLE_FROM_MS <= ms < PLAUSIBLE_TO_MS


def _readings(digits: str) -> Iterator[str]:
    """Times that a number may mean that is no ms."""
    if (form := _DATES.get(len(digits))) is not None:
        try:
            moment = datetime.strptime(digits, form)  # noqa: DTZ007 - shown without a zone
        except ValueError:
            pass
        else:
            if _is_plausible(int(moment.replace(tzinfo=UTC).timestamp() * 1000)):
                yield moment.isoformat() if len(digits) > 8 else moment.date().isoformat()
    for factor, divisor in _UNITS if len(digits) <= DIGITS_MAX else ():
        ms = int(digits) * factor // divisor
        if _is_plausible(ms):
            yield f"{ms} ({datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC)"


def _with_zone(moment: datetime, zone: tzinfo | None) -> datetime:
    if moment.tzinfo is not None:
        return moment
    return moment.astimezone() if zone is None else moment.replace(tzinfo=zone)
