"""Form fields: texts, numbers and times that a form's address holds."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC
from typing import Any, Final, Generic, TypeVar

import msgspec
from starlette.datastructures import QueryParams

from roquet.model.errors import ConfigError, UsageError
from roquet.model.moments import parse_moment

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
    return utc_time(text, name)


def utc_time(text: str, name: str) -> int:
    """A time in ms since 1970, in UTC where it names no zone. Raises UsageError for others."""
    try:
        return parse_moment(text, name, UTC)
    except ConfigError as error:
        raise UsageError(str(error)) from None


T = TypeVar("T")

ROWS: Final = 50
"""Rows of a page."""


class ListPart(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One page of a list."""

    rows: Sequence[T]
    total: int
    """Rows that the search finds, on all pages."""
    page: int
    pages: int
    query: str
    sort: str


def list_part(
    rows: Sequence[T],
    params: QueryParams,
    name: Callable[[T], str],
    orders: Mapping[str, Callable[[T], Any]],
) -> ListPart[T]:
    """The part of a list that the parameters `q`, `sort` and `page` of an address ask for.

    `q` is a part of the name, in any case. `orders` maps names of columns to sort keys, the first
    one is the default; a key that is negative or reversed puts large values first.
    """
    query = params.get("q", "").strip()[:200]
    sort = params.get("sort", "")
    sort = sort if sort in orders else next(iter(orders))
    found = [row for row in rows if query.lower() in name(row).lower()]
    found.sort(key=orders[sort])
    pages = max(-(-len(found) // ROWS), 1)
    text = params.get("page", "1")
    page = min(max(int(text[:9]) if text.isdecimal() else 1, 1), pages)
    return ListPart(
        rows=found[(page - 1) * ROWS : page * ROWS],
        total=len(found),
        page=page,
        pages=pages,
        query=query,
        sort=sort,
    )
