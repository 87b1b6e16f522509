"""Replica view: the table of `roquet cluster replicas`, once or every second."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from roquet.admin import replicas
from roquet.admin.client import AdminClient
from roquet.admin.replicas import ReplicaStatus, problems
from roquet.cli.operator_command import Result
from roquet.cli.process import runtime
from roquet.cli.terminal import output
from roquet.cli.terminal.output import table
from roquet.model.errors import RoquetError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

WATCH_S: Final = 1.0
"""Between two looks of --watch."""


async def show(admin: AdminClient, broker: str | None) -> Result:
    """The replicas now; a failure if something is amiss."""
    shown = await replicas.statuses(admin, broker)
    rows = (replica_table(shown, now_ms) for now_ms in [admin.clock.now_ms()])
    return Result(json=shown, text=rows, faults=problems(shown))


async def watch(admin: AdminClient, broker: str | None, *, as_json: bool) -> None:
    """Print the replicas every second until a stop signal; in place on a terminal."""
    from rich.live import Live

    console = output.console()
    looks = _looks(admin, broker, runtime.stop_signal())
    if as_json:
        async for look in looks:
            output.echo_json(look if isinstance(look, list) else [{"fault": look}])
    elif not console.is_terminal:
        async for look in looks:
            console.print(_picture(look, admin.clock.now_ms()))
    else:
        with Live(console=console, auto_refresh=False) as live:
            async for look in looks:
                live.update(_picture(look, admin.clock.now_ms()), refresh=True)


async def _looks(
    admin: AdminClient, broker: str | None, stop: asyncio.Event
) -> AsyncIterator[list[ReplicaStatus] | str]:
    """The replicas every second, or why nothing is known; errors of the first look are raised."""
    yield await replicas.statuses(admin, broker)
    while not stop.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(WATCH_S):
                await stop.wait()
                return
        try:
            yield await replicas.statuses(admin, broker)
        except RoquetError as error:
            yield str(error)


def _picture(look: list[ReplicaStatus] | str, now_ms: int) -> "RenderableType":
    """A look as a table, and lines of what is amiss below it."""
    from rich.console import Group

    if isinstance(look, str):
        return output.styled_text(look, "red")
    lines = (output.styled_text(line, "red") for line in problems(look))
    return Group(replica_table(look, now_ms), *lines)


def replica_table(shown: Sequence[ReplicaStatus], now_ms: int) -> "Table":
    """A line for each broker; the epoch has a column where a controller gives one."""
    has_epochs = any(each.epoch is not None for each in shown)
    epoch = ("epoch",) if has_epochs else ()
    rows = table(
        "broker", "id", "role", "address", "in sync", *epoch, "lag bytes", "lag", "last contact",
        numbers=5,
    )  # fmt: skip
    for each in shown:
        rows.add_row(
            each.broker,
            each.shown_id,
            "master" if each.is_master else "replica",
            each.address,
            _in_sync(each),
            *((_number(each.epoch),) if has_epochs else ()),
            _number(each.lag_bytes),
            _seconds(each.lag_ms),
            _ago(each.last_contact_ms, now_ms),
        )
    return rows


def _in_sync(each: ReplicaStatus) -> str:
    """In-sync state by the master, and what speaks against it, as in a frozen replica."""
    said = {True: "yes", False: "no", None: "-"}[each.is_in_sync]
    if each.silent_s is not None:
        return f"{said}, silent for {each.silent_s} s"
    if each.is_alive is False:
        return f"{said}, away"
    return f"{said}, no answer" if each.fault is not None else said


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _seconds(millis: int | None) -> str:
    return "-" if millis is None else f"{millis / 1000:,.1f} s"


def _ago(time_ms: int | None, now_ms: int) -> str:
    return "-" if time_ms is None else f"{_seconds(max(now_ms - time_ms, 0))} ago"
