"""Text filters: numbers, sizes, times and rates as templates show them."""

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote

from roquet.model.printable_text import printable, quantity
from roquet.wire.codes import release_of

DASH: Final = "\N{EN DASH}"
"""Stands for what is not known."""

_SIZE_UNITS: Final = ("B", "KB", "MB", "GB", "TB", "PB")


def number(value: float | None) -> str:
    """A whole number with separators; a dash for None."""
    return DASH if value is None else f"{value:,.0f}"


def count_of(values: Collection[object] | None) -> int | None:
    """The number of some values; None where they are not known."""
    return None if values is None else len(values)


def size(value: float | None) -> str:
    """Bytes in the unit that fits, by powers of 1024; a dash for None."""
    if value is None:
        return DASH
    for unit in _SIZE_UNITS[:-1]:
        if abs(value) < 1024:
            digits = 0 if unit == "B" or abs(value) >= 10 else 1
            return f"{value:.{digits}f} {unit}"
        value /= 1024
    return f"{value:.1f} {_SIZE_UNITS[-1]}"


def rate(value: float | None) -> str:
    """A number a second; a dash for None."""
    if value is None:
        return DASH
    return f"{value:.1f}/s" if 0 < abs(value) < 10 else f"{value:,.0f}/s"


def duration(ms: float | None) -> str:
    """A time span in its two largest units: `2 h 5 min`; a dash for None."""
    if ms is None:
        return DASH
    seconds = round(ms / 1000)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s" if minutes < 10 and seconds else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def time(ms: int | None) -> str:
    """A time in UTC to the second; a dash for None and for times that no calendar has."""
    if ms is None or not 0 < ms < 253_402_300_800_000:
        return DASH
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def percent(share: float | None) -> str:
    """A share of 1 as per cent; a dash for None."""
    return DASH if share is None else f"{share * 100:.0f} %"


def release(version: int) -> str:
    """The release that a client's version number stands for, or the number itself."""
    return release_of(version) or f"version {version}"


def segment(text: str) -> str:
    """A name as one part of an address's path, or as the value of a parameter."""
    return quote(text.encode("utf-8", "replace"), safe="")


FILTERS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        "number": number,
        "count_of": count_of,
        "size": size,
        "rate": rate,
        "duration": duration,
        "time": time,
        "percent": percent,
        "release": release,
        "segment": segment,
        "printable": printable,
        "quantity": quantity,
    }
)
"""Filters by the name that templates use."""
