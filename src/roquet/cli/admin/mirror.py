"""roquet mirror: topics of one cluster copied to another, with the progress of groups."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from msgspec import to_builtins

from roquet.admin.client import AdminClient
from roquet.admin.mirror.endpoint import MirrorEndpoint
from roquet.admin.mirror.mirror import Mirror, cluster_name, open_mirror
from roquet.admin.mirror.queue_copier import MirroredQueue, MirrorNames, place
from roquet.cli.command_options import option
from roquet.cli.operator_command import Result
from roquet.cli.process.runtime import until_stopped
from roquet.cli.spark_jobs.replay import parse_rate
from roquet.cli.terminal import output
from roquet.cli.terminal.arguments import namesrv_addresses
from roquet.cli.terminal.profiles import profile_environment
from roquet.cli.terminal.progress import progress_bar
from roquet.model.names import check_group

T = TypeVar("T")

SHOW_S: Final = 0.5
"""Period of the progress line."""

COLUMNS: Final = ("topic", "from", "to", "copied", "skipped", "next offset", "behind")


async def mirror(  # noqa: PLR0913 - each is an option
    as_json: bool,
    source: str = option(
        "The cluster to copy from: its name servers, or a profile's name.",
        "--from",
        metavar="HOST:PORT|PROFILE",
    ),
    target: str = option(
        "The cluster to copy to, in the same way.", "--to", metavar="HOST:PORT|PROFILE"
    ),
    *,
    topics: list[str] = option(
        "Only these, as 'orders*'; may be repeated.", default=(), metavar="PATTERN"
    ),
    groups: list[str] = option(
        "Translate the progress of these groups, as 'bill*'; may be repeated.",
        default=(),
        metavar="PATTERN",
    ),
    once: bool = option("End when all that is there now is copied."),
    rate: str | None = option("Messages a second at most, as 500/s.", metavar="N/s"),
    skip_refused: bool = option("Leave out messages that the target never takes, and log each."),
    from_name: str | None = option("The source's name in copies; else its cluster's."),
    to_name: str | None = option("The target's name; else its cluster's."),
    dry_run: bool = option("Only say which queue goes where."),
) -> Result:
    """Copy topics, and the progress of groups, to another cluster.

    Apache's or Roquet's: queue i to queue i, in order, each message once. Topics are made there,
    with their queues and type. After a kill the same command goes on where it was. Copies are not
    copied again, so a second mirror may run in the other direction.
    """
    limit = parse_rate(rate) if rate is not None else None
    async with _client(source, AdminClient) as from_, _client(target, AdminClient) as to:
        names = MirrorNames(
            check_group(from_name or await cluster_name(from_, "--from-name")),
            check_group(to_name or await cluster_name(to, "--to-name")),
        )
        ends = (
            _client(source, MirrorEndpoint, group=names.source_group),
            _client(target, MirrorEndpoint, group=names.target_group),
        )
        choice: dict[str, Any] = {
            "topics": topics, "groups": groups, "rate": limit, "skip_refused": skip_refused
        }  # fmt: skip
        if dry_run:
            running = Mirror((from_, to), ends, names, **choice)
            return _planned(await running.plan(), running)
        async with open_mirror((from_, to), ends, names, **choice) as running:
            with progress_bar("mirror", quiet=as_json) as show:
                work = running.once() if once else running.follow()
                await until_stopped(work, lambda: show(*_totals(running.queues)), SHOW_S)
    return _result(running)


def _client(cluster: str, kind: Callable[..., T], **named: str) -> T:
    """A client of a cluster: addresses of name servers have a colon, profiles' names have none."""
    profile, addresses = (None, cluster) if ":" in cluster else (cluster, None)
    with profile_environment(profile, addresses):
        return kind(namesrv_addresses(addresses), **named)


def _totals(queues: list[MirroredQueue]) -> tuple[int, int]:
    return sum(one.copied for one in queues), sum(one.lag for one in queues)


def _planned(mapped: Any, running: Mirror) -> Result:
    rows = [(a.topic, place(a), place(b)) for a, b in sorted(mapped.items())]
    return Result(
        json=[dict(zip(("topic", "source", "target"), row, strict=True)) for row in rows],
        text=[output.table(COLUMNS[:3], rows)],
        notes=[output.DRY_RUN_NOTE],
        faults=_faults(running),
    )


def _result(running: Mirror) -> Result:
    queues = running.queues
    rows = [
        (one.topic, one.source, one.target, one.copied, one.skipped, one.next_offset, one.lag)
        for one in queues
    ]
    copied, lag = _totals(queues)
    notes = [f"{output.quantity(copied, 'message')} copied, {lag:,} behind"]
    if expired := sum(one.expired for one in queues):
        notes.append(f"{expired:,} had expired in the source before they were copied")
    if refused := sum(one.refused for one in queues):
        notes.append(f"{refused:,} were refused by the target and left out: the log names them")
    if less := sum(one.less_durable for one in queues):
        notes.append(f"{less:,} are stored less durably than the target's settings promise")
    return Result(
        json=({**to_builtins(one), "lag": one.lag} for one in queues),
        text=[output.table(COLUMNS, rows, numbers=4)] if rows else [],
        hints=notes,
        faults=_faults(running),
    )


def _faults(running: Mirror) -> list[str]:
    queues = [f"{one.topic} {one.source}: {one.fault}" for one in running.queues if one.fault]
    return [*running.faults.values(), *queues]
