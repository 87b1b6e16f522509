"""Arguments that many commands have: name servers, and names of topics, groups and brokers.

The names are completed by asking the cluster. The shell waits meanwhile, and any output would land
in the middle of its line: a cluster that does not answer in time gives no names, and errors are not
shown.
"""

import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from roquet.cli.command_options import option
from roquet.model.errors import ConfigError, RoquetError, UsageError

if TYPE_CHECKING:
    from roquet.admin.client import AdminClient

DEV_NAMESRV: Final = "127.0.0.1:9876"
"""The name server of `roquet dev`."""

NamesrvOption = Annotated[
    str | None,
    typer.Option(
        "--namesrv",
        "-n",
        metavar="HOST:PORT[;...]",
        help=f"The name servers; else NAMESRV_ADDR, a profile's, or {DEV_NAMESRV}.",
    ),
]

WAIT_S: Final = 0.5
"""Longest wait after the completion key."""

WAIT: Final = option(
    "How long to wait until it may be stopped.", default=120, min=0, metavar="SECONDS"
)
"""Seconds in which consumers of a drained broker read on, and a replica catches up."""


def namesrv_addresses(option: str | None) -> str:
    """The addresses of --namesrv, else of the environment, else of `roquet dev`."""
    from roquet.model.settings import parse_addresses

    name, text = (
        ("--namesrv", option) if option else ("NAMESRV_ADDR", os.environ.get("NAMESRV_ADDR"))
    )
    try:
        return ";".join(parse_addresses(text, name)) if text else DEV_NAMESRV
    except ConfigError as error:
        raise UsageError(str(error)) from None


def complete_profiles(incomplete: str) -> list[str]:
    """Profiles with a prefix; none where their file cannot be read."""
    from roquet.cli.terminal import profiles

    try:
        names = profiles.load().profiles
    except (RoquetError, OSError):
        return []
    return [name for name in sorted(names) if name.startswith(incomplete)]


ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="The cluster of this profile; else ROQUET_PROFILE's, else the current one.",
        autocompletion=complete_profiles,
    ),
]


def complete_topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topics with a prefix, without system topics."""
    from roquet.admin import topics

    return _names(ctx, incomplete, topics.list_names)


def complete_groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Groups with a prefix, without system groups."""
    from roquet.admin import groups

    return _names(ctx, incomplete, groups.list_names)


def complete_brokers(ctx: typer.Context, incomplete: str) -> list[str]:
    """Brokers with a prefix."""

    async def listed(admin: "AdminClient") -> list[str]:
        return list(await admin.brokers())

    return _names(ctx, incomplete, listed)


def _names(
    ctx: typer.Context, incomplete: str, listed: Callable[["AdminClient"], Awaitable[Sequence[str]]]
) -> list[str]:
    import asyncio

    from roquet.admin.client import AdminClient
    from roquet.cli.terminal.profiles import profile_environment

    namesrv, profile = ctx.params.get("namesrv"), ctx.params.get("profile")

    async def ask() -> Sequence[str]:
        async with asyncio.timeout(WAIT_S), AdminClient(namesrv_addresses(namesrv)) as admin:
            return await listed(admin)

    before = logging.root.manager.disable
    logging.disable()
    try:
        with profile_environment(profile, namesrv, may_run=False):
            names = asyncio.run(ask())
    except (RoquetError, OSError):  # TimeoutError is one of these
        return []
    finally:
        logging.disable(before)
    return [name for name in names if name.startswith(incomplete) and name.isprintable()]


BROKERS: Final = option(
    "Only on this one; may be repeated.", "--broker", autocompletion=complete_brokers
)
TopicArgument = Annotated[
    str, typer.Argument(help="The topic's name.", autocompletion=complete_topics)
]
GroupArgument = Annotated[
    str, typer.Argument(help="The consumer group's name.", autocompletion=complete_groups)
]
BrokerArgument = Annotated[
    str,
    typer.Argument(
        help="The broker's name, for its master, or a replica's name and id, as broker-a#1.",
        autocompletion=complete_brokers,
    ),
]

ChangesArgument = Annotated[list[str], typer.Argument(metavar="KEY=VALUE", help="What to change.")]


def parse_changes(texts: Sequence[str], names: Mapping[str, str]) -> dict[str, str]:
    """Values by key, as they are given. `names` are our names of settings by other keys of theirs.

    Raises UsageError for a text of another form, and when one setting is given twice, also under
    two names.
    """
    changes: dict[str, str] = {}
    seen: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UsageError(f"{text!r}: KEY=VALUE is wanted")
        name = names.get(key, key)
        if name in seen:
            raise UsageError(f"{seen[name]} and {text} are one setting: give it once")
        seen[name] = text
        changes[key] = value
    return changes


def change_line(server: str, row: Mapping[str, Any]) -> str:
    """A line that says which value a server has now, and which it gets."""
    return f"{server}: {row['key']} is {row['now'] or 'not set'}, then {row['then']}"
