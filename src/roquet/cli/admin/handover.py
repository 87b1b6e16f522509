"""roquet cluster elect, retire: another broker leads, or a broker is made ready to be stopped."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from roquet.cli.operator_command import Result
from roquet.cli.terminal import completion, output
from roquet.cli.terminal.output import YesOption

if TYPE_CHECKING:
    from roquet.admin.client import AdminClient
    from roquet.admin.controllers import GroupStatus, ReplicaMember
    from roquet.admin.elect import ElectedMaster
    from roquet.admin.retire import RetiredBroker

WAIT_S: Final = 120
"""Default of --wait: consumers of a drained broker read on, a replica catches up."""

ControllerOption = Annotated[
    str | None,
    typer.Option(
        "--controller",
        metavar="HOST:PORT[;...]",
        help="The controllers; else those that the brokers obey.",
    ),
]


async def elect(
    admin: "AdminClient",
    as_json: bool,
    broker: Annotated[
        str,
        typer.Argument(
            help="The name that a master shares with its replicas.",
            autocompletion=completion.brokers,
        ),
    ],
    *,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="ID|ADDRESS",
            help="Who is to lead; else the replica in sync with the longest log.",
        ),
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Also one that may lack acknowledged messages: what it lacks is lost.",
        ),
    ] = False,
    controller: ControllerOption = None,
    yes: YesOption = False,
) -> Result:
    """Have another broker of a name lead; brokers with a controller only.

    Nothing acknowledged is lost, unless by --unclean.
    """
    from roquet.admin import controllers
    from roquet.admin import elect as elections

    group = await controllers.group(admin, broker, _controllers(controller))
    chosen = elections.candidate(group, to, unclean=unclean)
    may_lose = unclean and may_lack_messages(group, chosen)
    if may_lose:
        output.show_preview(losses(group, chosen), dry_run=False, json=as_json)
        await output.confirm("Elect it all the same?", yes=yes, to_stderr=as_json)
    elected = await elections.elect(admin, group, chosen, unclean=unclean)
    return Result(
        json=[{**_fields(elected), "unclean": may_lose, "before": group}],
        text=[_election_line(group, elected)],
    )


async def retire(
    admin: "AdminClient",
    as_json: bool,
    broker: Annotated[
        str,
        typer.Argument(
            help="broker-a for its master, broker-a#2 for a replica, or an address.",
            autocompletion=completion.brokers,
        ),
    ],
    *,
    wait: Annotated[
        int,
        typer.Option(min=0, metavar="SECONDS", help="How long to wait until it may be stopped."),
    ] = WAIT_S,
    for_good: Annotated[
        bool,
        typer.Option("--for-good", help="It does not come back: wait for its end, remove its id."),
    ] = False,
    controller: ControllerOption = None,
) -> None:
    """Make a broker ready to be stopped: hand over the lead, and wait until others can do its work.

    A master without a controller takes no more messages, and consumers read what it has. Exit code
    1 if it must not be stopped.
    """
    from roquet.admin import retire as retirement

    chosen, wait_ms = _controllers(controller), wait * 1_000
    retired = await retirement.retire(admin, broker, named=chosen, wait_ms=wait_ms)
    Result(json=[retired], text=[retired_line(retired)]).show(as_json=as_json)
    if not for_good:
        return
    if retired.broker_id is None:
        output.echo("it has no id from a controller: nothing is to be removed", err=True)
        return
    await retirement.remove(admin, retired, named=chosen, wait_ms=wait_ms)
    output.echo(f"{retired.broker}: {retired.broker_id} is removed", err=as_json)


def _fields(elected: "ElectedMaster") -> dict[str, object]:
    import msgspec

    return msgspec.structs.asdict(elected)


def _election_line(group: "GroupStatus", elected: "ElectedMaster") -> str:
    now = f"{elected.broker}: {elected.broker_id} at {elected.address} leads"
    if not elected.is_new:
        return f"{now} already, in epoch {elected.epoch}"
    before = f", {group.master.place} before" if group.master else ", nobody before"
    return f"{now} in epoch {elected.epoch}{before}"


def may_lack_messages(group: "GroupStatus", chosen: "ReplicaMember | None") -> bool:
    """Whether a broker may lack acknowledged messages; None: whichever the controller chooses.

    Members of the set may as well: fewer logs can be enough (allAckInSyncStateSet=false).
    """
    from roquet.rules.election.handover import bytes_lost

    if chosen is None or not chosen.is_in_sync:
        return True
    return bytes_lost(group.standings, chosen.broker_id) != 0


def losses(group: "GroupStatus", chosen: "ReplicaMember | None") -> list[str]:
    """Lines that say what an unclean election may lose, with what is known of each log."""
    from roquet.rules.election.handover import bytes_lost

    lines = [f"{group.broker}, epoch {group.epoch}: what the logs of its brokers have"]
    for one in group.members:
        role = "master" if one.is_master else "replica"
        in_sync = "in sync" if one.is_in_sync else "not in sync"
        end = "not known" if one.log_end is None else f"{one.log_end:,} bytes"
        lines.append(f"  {one.place}, {role}, {in_sync}: {end}")
    lost = None if chosen is None else bytes_lost(group.standings, chosen.broker_id)
    who = "whoever is elected" if chosen is None else chosen.place
    amount = "" if lost is None else f", {lost:,} bytes by what is known"
    lines.append(f"messages that were acknowledged, and that {who} lacks, are lost{amount}")
    return lines


def retired_line(retired: "RetiredBroker") -> str:
    """A line that says that a broker may be stopped, and who leads."""
    known_as = "" if retired.broker_id is None else f"{retired.broker_id} at "
    line = f"{retired.broker}: {known_as}{retired.address} may be stopped now"
    if retired.master is None and retired.broker_id is None and retired.was_master:
        undo = f"`roquet broker set {retired.broker} permission=6` takes that back"
        return f"{line}; it takes no messages, {undo}"
    if retired.master is None:
        return f"{line}; nobody leads"
    epoch = "" if retired.epoch is None else f" in epoch {retired.epoch}"
    return f"{line}; {retired.master} leads{epoch}"


def _controllers(text: str | None) -> Sequence[str] | None:
    from roquet.admin.controllers import controllers_named

    return None if text is None else controllers_named(text, "--controller")
