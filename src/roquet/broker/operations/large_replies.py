"""Paging: large tables told in parts, or looked at and written without holding up others."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec

from roquet.model.errors import CallRefused
from roquet.model.topic import DataVersion
from roquet.net.threads import in_thread
from roquet.wire.call import Reply
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.request_body import decode_body

P = TypeVar("P")
V = TypeVar("V")
R = TypeVar("R", bound=Reply)

ROWS_MAX: Final = 200
"""Rows of a table that are written at once: some milliseconds. More are written in a thread, which
shares Python's lock with the event loop a few milliseconds at a time."""

QUEUES_MAX: Final = 100_000
"""Queues in one answer: more would not fit in the longest frame that clients accept."""


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
        return reply(codec.dumps(value))
    return _written(value, reply)


async def _written(value: msgspec.Struct, reply: Callable[[bytes], R]) -> R:
    return reply(await in_thread(partial(codec.dumps, value)))


async def dumped(rows: int, value: object) -> bytes:
    """The JSON of a value of so many rows, which must not change; many are written in a thread."""
    if rows <= ROWS_MAX:
        return codec.dumps(value)
    return await in_thread(partial(codec.dumps, value))


def each_queue(
    queues: Sequence[P], look: Callable[[P], V], body: Callable[[list[V]], msgspec.Struct]
) -> Reply | Awaitable[Reply]:
    """The reply whose body is made of a frozen value for each queue.

    Of many queues ROWS_MAX are looked at before others have their turn. `check_queues` comes first.
    """
    if len(queues) <= ROWS_MAX:
        return Reply(body=codec.dumps(body([look(queue) for queue in queues])))
    return _each_queue(queues, look, body)


async def _each_queue(
    queues: Sequence[P], look: Callable[[P], V], body: Callable[[list[V]], msgspec.Struct]
) -> Reply:
    found = await in_slices(queues, look)
    return Reply(body=await in_thread(lambda: codec.dumps(body(found))))


async def in_slices(items: Sequence[P], look: Callable[[P], V]) -> list[V]:
    """A value for each item, ROWS_MAX of them before others have their turn."""
    found: list[V] = []
    for start in range(0, len(items), ROWS_MAX):
        found += [look(item) for item in items[start : start + ROWS_MAX]]
        await asyncio.sleep(0)
    return found


def check_queues(count: int) -> None:
    """Refuse to tell of so many queues at once, before any of them is looked at."""
    if count > QUEUES_MAX:
        raise CallRefused(
            ResponseCode.SYSTEM_ERROR,
            f"{count} queues are asked for, the limit is {QUEUES_MAX}: ask for fewer topics",
        )
