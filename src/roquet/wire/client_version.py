"""Client version: the number that each command carries, as the release that it stands for.

509  5.4.8      511  5.4.9      513  5.5.0      each release has two numbers,
508  5.4.8-snapshot             512  5.5.0-snapshot      of its snapshot and of itself
"""

from typing import Final

from roquet.wire.codes import VERSION

VERSION_DIGITS: Final = 550
"""The digits of the release 5.5.0, whose number is VERSION."""

OLDEST_DIGITS: Final = 400
"""Before 4.0.0 numbers have another order."""

NEWEST_DIGITS: Final = 999


def release_of(number: int) -> str | None:
    """The release of a number, as `5.5.0` or `5.5.0-snapshot`; None for one that is not known."""
    digits = VERSION_DIGITS + (number + 1 - VERSION) // 2
    if not OLDEST_DIGITS <= digits <= NEWEST_DIGITS:
        return None
    release = ".".join(str(digits))
    return release if number % 2 == VERSION % 2 else f"{release}-snapshot"
