"""Paging: a part of a long list, by search, order and page."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec
from starlette.datastructures import QueryParams

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
