"""Completion: names of topics, groups and brokers for the shell, where a name server answers soon.

A shell waits while it asks, and shows what is printed in the middle of a line: who does not answer
in time has no names, and nothing that goes wrong is told.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

import typer

from roquet.cli.namesrv import servers
from roquet.model.errors import RoquetError

if TYPE_CHECKING:
    from roquet.admin.reach import Reach

WAIT_S: Final = 0.5
"""Longer than this nobody likes to wait for a key."""


def topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topics that begin so; not those of the system, which nobody types."""
    from roquet.admin import topics

    return _names(ctx, incomplete, topics.listed)


def groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Groups that begin so."""
    from roquet.admin import groups

    return _names(ctx, incomplete, groups.listed)


def brokers(ctx: typer.Context, incomplete: str) -> list[str]:
    """Brokers whose names begin so."""

    async def listed(reach: "Reach") -> list[str]:
        return list(await reach.brokers())

    return _names(ctx, incomplete, listed)


def _names(
    ctx: typer.Context, incomplete: str, listed: Callable[["Reach"], Awaitable[Sequence[str]]]
) -> list[str]:
    from roquet.admin.reach import Reach

    async def ask() -> Sequence[str]:
        async with asyncio.timeout(WAIT_S), Reach(servers(ctx.params.get("namesrv"))) as reach:
            return await listed(reach)

    before = logging.root.manager.disable
    logging.disable()
    try:
        found = asyncio.run(ask())
    except (RoquetError, OSError):  # TimeoutError is one of these
        return []
    finally:
        logging.disable(before)
    return [name for name in found if name.startswith(incomplete) and name.isprintable()]
