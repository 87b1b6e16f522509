"""Shell completion: names of topics, groups and brokers, from the name servers.

The shell waits meanwhile, and any output would land in the middle of its line: a cluster that does
not answer in time gives no names, and errors are not shown.
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
"""Longest wait after the completion key."""


def topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topics with a prefix, without system topics."""
    from roquet.admin import topics

    return _names(ctx, incomplete, topics.list_names)


def groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Groups with a prefix, without system groups."""
    from roquet.admin import groups

    return _names(ctx, incomplete, groups.list_names)


def brokers(ctx: typer.Context, incomplete: str) -> list[str]:
    """Brokers with a prefix."""

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
        names = asyncio.run(ask())
    except (RoquetError, OSError):  # TimeoutError is one of these
        return []
    finally:
        logging.disable(before)
    return [name for name in names if name.startswith(incomplete) and name.isprintable()]
