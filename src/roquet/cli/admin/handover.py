"""roquet cluster elect, retire: another broker leads, or a broker is made ready to be stopped."""

from collections.abc import Sequence
from typing import Final

import msgspec

from roquet.admin import controllers
from roquet.admin import elect as elections
from roquet.admin import retire as retirement
from roquet.admin.client import AdminClient
from roquet.admin.controllers import GroupStatus, ReplicaMember, controllers_named
from roquet.admin.elect import ElectedMaster
from roquet.admin.retire import RetiredBroker
from roquet.cli.command_options import argument, option
from roquet.cli.operator_command import Result
from roquet.cli.terminal import arguments, output
from roquet.cli.terminal.arguments import WAIT
from roquet.rules.election.handover import bytes_lost

CONTROLLER: Final = option(
    "The controllers; else those that the brokers obey.", metavar="HOST:PORT[;...]"
)


async def elect(
    admin: AdminClient,
    as_json: bool,
    broker: str = argument(
        "The name that a master shares with its replicas.",
        autocompletion=arguments.complete_brokers,
    ),
    to: str | None = option(
        "Who is to lead; else the replica in sync with the longest log.", metavar="ID|ADDRESS"
    ),
    unclean: bool = option("Also one that may lack acknowledged messages: what it lacks is lost."),
    controller: str | None = CONTROLLER,
    yes: bool = option("Do not ask.", "-y"),
) -> Result:
    """Have another broker of a name lead; brokers with a controller only.

    Nothing acknowledged is lost, unless by --unclean.
    """
    group = await controllers.group(admin, broker, _controllers(controller))
    chosen = elections.candidate(group, to, unclean=unclean)
    may_lose = unclean and may_lack_messages(group, chosen)
    if may_lose:
        output.show_preview(losses(group, chosen), dry_run=False, json=as_json)
        await output.confirm("Elect it all the same?", yes=yes, to_stderr=as_json)
    elected = await elections.elect(admin, group, chosen, unclean=unclean)
    return Result(
        json=[{**msgspec.structs.asdict(elected), "unclean": may_lose, "before": group}],
        text=[_election_line(group, elected)],
    )


async def retire(
    admin: AdminClient,
    as_json: bool,
    broker: str = argument(
        "broker-a for its master, broker-a#2 for a replica, or an address.",
        autocompletion=arguments.complete_brokers,
    ),
    wait: int = WAIT,
    for_good: bool = option("It does not come back: wait for its end, remove its id."),
    controller: str | None = CONTROLLER,
) -> None:
    """Make a broker ready to be stopped: hand over the lead, and wait until others can do its work.

    A master without a controller takes no more messages, and consumers read what it has. Exit code
    1 if it must not be stopped.
    """
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


def _election_line(group: GroupStatus, elected: ElectedMaster) -> str:
    now = f"{elected.broker}: {elected.broker_id} at {elected.address} leads"
    if not elected.is_new:
        return f"{now} already, in epoch {elected.epoch}"
    before = f", {group.master.place} before" if group.master else ", nobody before"
    return f"{now} in epoch {elected.epoch}{before}"


def may_lack_messages(group: GroupStatus, chosen: ReplicaMember | None) -> bool:
    """Whether a broker may lack acknowledged messages; None: whichever the controller chooses.

    Members of the set may as well: fewer logs can be enough (allAckInSyncStateSet=false).
    """
    if chosen is None or not chosen.is_in_sync:
        return True
    return bytes_lost(group.standings, chosen.broker_id) != 0


def losses(group: GroupStatus, chosen: ReplicaMember | None) -> list[str]:
    """Lines that say what an unclean election may lose, with what is known of each log."""
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


def retired_line(retired: RetiredBroker) -> str:
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
    return None if text is None else controllers_named(text, "--controller")
