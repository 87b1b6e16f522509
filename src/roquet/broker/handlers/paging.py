"""Paging: a table told in parts, to those who ask for parts."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, TypeVar

import msgspec

from roquet.model.errors import CallRefused
from roquet.model.topic import DataVersion
from roquet.net.threads import in_thread
from roquet.wire import dialect
from roquet.wire.call import Reply
from roquet.wire.codes import ResponseCode
from roquet.wire.request_body import decode_body

V = TypeVar("V")
R = TypeVar("R", bound=Reply)

ROWS_MAX: Final = 200
"""Rows of a table that are written at once: some milliseconds. More are written in a thread, which
shares Python's lock with the event loop a few milliseconds at a time."""


def page(
    table: Mapping[str, V],
    version: DataVersion,
    *,
    first: int | None,
    most: int | None,
    seen_version: str | None,
) -> dict[str, V]:
    """The rows of a table from a number on, `most` of them, by name.

    Whoever saw another edition of the table begins again, as at the genuine broker: its numbers
    would count other rows.
    """
    first = first or 0
    if first < 0 or (most is not None and most < 1):
        raise CallRefused(ResponseCode.SYSTEM_ERROR, f"no page begins at {first} and has {most}")
    seen = decode_body(seen_version.encode(), DataVersion) if seen_version else None
    start = first if seen == version else 0
    if start == 0 and most is None:
        return dict(table)
    names = sorted(table)[start:]
    return {name: table[name] for name in (names if most is None else names[:most])}


def written(rows: int, value: msgspec.Struct, reply: Callable[[bytes], R]) -> R | Awaitable[R]:
    """The reply whose body is a frozen value of so many rows; many are not written at once."""
    if rows <= ROWS_MAX:
        return reply(dialect.dumps(value))
    return _written(value, reply)


async def _written(value: msgspec.Struct, reply: Callable[[bytes], R]) -> R:
    return reply(await in_thread(partial(dialect.dumps, value)))
