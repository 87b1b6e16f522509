"""Form fields: texts, numbers and times that a form's address holds."""

from datetime import UTC, datetime

from starlette.datastructures import QueryParams

from roquet.model.errors import UsageError

TEXT_MAX = 4_000
"""Characters of one field: a filter expression may be long."""


def text_of(query: QueryParams, name: str) -> str | None:
    """A field without U+0020 around it, since other blanks may be part of a key.

    None when it is missing or empty.

    Raises UsageError for a text that is too long.
    """
    text = query.get(name, "").strip(" ")
    if len(text) > TEXT_MAX:
        raise UsageError(f"{name} has {len(text)} characters, {TEXT_MAX} are allowed")
    return text or None


def number_of(query: QueryParams, name: str, default: int, largest: int = 2**63 - 1) -> int:
    """A whole number from 0 to `largest`. Raises UsageError for another text."""
    text = text_of(query, name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > largest:
        raise UsageError(f"{name} {text!r:.100} is not a whole number up to {largest:,}")
    return int(text)


def time_of(query: QueryParams, name: str) -> int | None:
    """A time in ms since 1970, from a text like 2026-01-31T12:00 in UTC; None without one."""
    text = text_of(query, name)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
        return max(0, int(moment.timestamp() * 1000))
    except (ValueError, OverflowError):
        raise UsageError(f"{name}: {text!r:.100} is no time like 2026-01-31T12:00") from None
