"""Completion: names of topics, groups and brokers for the shell, where a name server answers soon.

A shell waits while it asks, and shows what is printed in the middle of a line: who does not answer
in time has no names, and nothing that goes wrong is told.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

import typer

from roquet.cli.terminal.name_servers import namesrv_addresses
from roquet.model.errors import RoquetError

if TYPE_CHECKING:
    from roquet.admin.client import AdminClient

WAIT_S: Final = 0.5
"""Longer than this nobody likes to wait for a key."""


def topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topics that begin so; not those of the system, which nobody types."""
    from roquet.admin import topics

    return _names(ctx, incomplete, topics.list_names)


def groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Groups that begin so."""
    from roquet.admin import groups

    return _names(ctx, incomplete, groups.list_names)


def brokers(ctx: typer.Context, incomplete: str) -> list[str]:
    """Brokers whose names begin so."""

    async def listed(admin: "AdminClient") -> list[str]:
        return list(await admin.brokers())

    return _names(ctx, incomplete, listed)


def _names(
    ctx: typer.Context, incomplete: str, listed: Callable[["AdminClient"], Awaitable[Sequence[str]]]
) -> list[str]:
    from roquet.admin.client import AdminClient

    async def ask() -> Sequence[str]:
        async with (
            asyncio.timeout(WAIT_S),
            AdminClient(namesrv_addresses(ctx.params.get("namesrv"))) as admin,
        ):
            return await listed(admin)

    before = logging.root.manager.disable
    logging.disable()
    try:
        found = asyncio.run(ask())
    except (RoquetError, OSError):  # TimeoutError is one of these
        return []
    finally:
        logging.disable(before)
    return [name for name in found if name.startswith(incomplete) and name.isprintable()]
