"""Large replies: tables in pages, or collected and encoded without holding up the event loop."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec

from roquet.broker.refusals import system_error
from roquet.model.topic import DataVersion
from roquet.net.threads import in_thread
from roquet.wire.call import Reply
from roquet.wire.fastjson import codec
from roquet.wire.request_body import decode_body

P = TypeVar("P")
V = TypeVar("V")
R = TypeVar("R", bound=Reply)

ROWS_MAX: Final = 200
"""Rows of a table that are encoded at once, in some milliseconds. More are encoded in a thread,
which shares Python's lock with the event loop a few milliseconds at a time."""

QUEUES_MAX: Final = 100_000
"""Queues in one answer: more would not fit in the longest frame that clients accept."""


def page(
    table: Mapping[str, V],
    version: DataVersion,
    first: int | None,
    most: int | None,
    seen_version: str | None,
) -> dict[str, V]:
    """At most `most` rows of a table, in the order of their names, from row `first` on.

    `seen_version` is the table's version of the page before. When the table has changed since, the
    first page is returned, as by the genuine broker: the row numbers would count other rows.
    """
    first = first or 0
    if first < 0 or (most is not None and most < 1):
        raise system_error(f"no page begins at {first} and has {most}")
    seen = decode_body(seen_version.encode(), DataVersion) if seen_version else None
    start = first if seen == version else 0
    if start == 0 and most is None:
        return dict(table)
    names = sorted(table)[start:]
    return {name: table[name] for name in (names if most is None else names[:most])}


def written(rows: int, value: msgspec.Struct, reply: Callable[[bytes], R]) -> R | Awaitable[R]:
    """The reply whose body is a frozen value of `rows` rows; a large one is encoded in a thread."""
    if rows <= ROWS_MAX:
        return reply(codec.dumps(value))
    return _written(value, reply)


async def _written(value: msgspec.Struct, reply: Callable[[bytes], R]) -> R:
    return reply(await in_thread(partial(codec.dumps, value)))


async def dumped(rows: int, value: object) -> bytes:
    """The JSON of a value of `rows` rows, which must not change; encoded in a thread if large."""
    if rows <= ROWS_MAX:
        return codec.dumps(value)
    return await in_thread(partial(codec.dumps, value))


def each_queue(
    queues: Sequence[P], look: Callable[[P], V], body: Callable[[list[V]], msgspec.Struct]
) -> Reply | Awaitable[Reply]:
    """The reply whose body is made from one frozen value for each queue.

    ROWS_MAX queues are read before others have their turn. Call `check_queues` first.
    """
    if len(queues) <= ROWS_MAX:
        return Reply(body=codec.dumps(body([look(queue) for queue in queues])))
    return _each_queue(queues, look, body)


async def _each_queue(
    queues: Sequence[P], look: Callable[[P], V], body: Callable[[list[V]], msgspec.Struct]
) -> Reply:
    values = await in_slices(queues, look)
    return Reply(body=await in_thread(lambda: codec.dumps(body(values))))


async def in_slices(items: Sequence[P], look: Callable[[P], V]) -> list[V]:
    """A value for each item; others have their turn after every ROWS_MAX items."""
    values: list[V] = []
    for start in range(0, len(items), ROWS_MAX):
        values += [look(item) for item in items[start : start + ROWS_MAX]]
        await asyncio.sleep(0)
    return values


def check_queues(count: int) -> None:
    """CallRefused when a reply would cover more than QUEUES_MAX queues."""
    if count > QUEUES_MAX:
        raise system_error(
            f"{count} queues are asked for, the limit is {QUEUES_MAX}: ask for fewer topics"
        )
