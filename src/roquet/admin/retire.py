"""Retire: a broker gives up what it has, so that it can be stopped without a long pause or a loss.

    wait until enough others are in sync ─▶ master? another is elected ─▶ wait until enough others
    are in sync with that one ─▶ it may be stopped ─▶ for good: its id is removed

Where roles are fixed a replica may be stopped if its master needs it for no acknowledgement. A
master without a controller is drained: producers are told to send elsewhere (brokerPermission=4),
and consumers read what it has.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from roquet.admin import brokers, controllers, replicas
from roquet.admin.client import AdminClient
from roquet.admin.controllers import GroupStatus, ReplicaMember, needed_logs
from roquet.admin.elect import candidate, elect
from roquet.model.errors import CallRefused, RoquetError, UsageError
from roquet.net.address import split_address
from roquet.rules.election.handover import may_leave, stand_ins
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.wire.calls.admin.settings import GetSettings, UpdateSettings
from roquet.wire.calls.admin.stats import (
    ConsumeStatsList,
    GetAllConsumeStats,
    GetHaStatus,
    HaStatus,
)
from roquet.wire.calls.controller import CleanBrokerData
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.properties_file import escape_properties

POLL_MS: Final = 500
"""Ms between two questions while something is waited for."""

QUIET_MS: Final = 35_000
"""Ms without a new message after which producers have gone: they ask for routes every 30 s."""

READ_ONLY: Final = "4"
READ_WRITE_TEXT: Final = "6"


class RetiredBroker(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that may be stopped."""

    broker: str
    """Name that it shares with its replicas."""
    address: str
    broker_id: int | None = None
    """Id from its controller; None without one."""
    master: str | None = None
    """Address of the broker that leads now; None: nobody takes messages of this name."""
    epoch: int | None = None
    """Epoch of that master; None without a controller."""
    was_master: bool = False


class BrokerPlace(msgspec.Struct, frozen=True):
    """Name and address of a broker."""

    name: str
    address: str


async def locate(admin: AdminClient, broker: str) -> BrokerPlace:
    """Find a broker by `broker-a`, for its master, by `broker-a#2` or by HOST:PORT.

    Raises UsageError for an unknown one.
    """
    if ":" not in broker:
        return BrokerPlace(
            broker.rpartition("#")[0] or broker, await brokers.address_of(admin, broker)
        )
    split_address(broker)
    for name, data in (await admin.cluster()).broker_addr_table.items():
        if broker in data.broker_addrs.values():
            return BrokerPlace(name, broker)
    raise UsageError(f"the name servers know no broker at {broker}")


async def retire(
    admin: AdminClient, broker: str, *, named: Sequence[str] | None = None, wait_ms: int
) -> RetiredBroker:
    """Make a broker one that may be stopped; waits up to `wait_ms` for others to be in sync.

    `named` are controllers, in place of those that it obeys. Raises RoquetError if it may not be
    stopped, UsageError for an unknown one.
    """
    place = await locate(admin, broker)
    settings = brokers.decoded_settings(await admin.ask(place.address, GetSettings()))
    deadline_ms = admin.clock.monotonic_ms() + wait_ms
    if controllers.has_controller(settings):
        text = settings[controllers.CONTROLLERS_KEY]
        named = named or controllers.controllers_named(text, controllers.CONTROLLERS_KEY)
        needed = await _needed_by_group(admin, place, named, settings)
        return await _hand_over(admin, place, named, needed, deadline_ms)
    if settings.get("brokerRole") == BrokerRole.SLAVE:
        return await _leave_master(admin, place, deadline_ms)
    return await _drain(admin, place, deadline_ms)


async def _needed_by_group(
    admin: AdminClient, place: BrokerPlace, named: Sequence[str], settings: Mapping[str, str]
) -> int:
    """Number of logs that the master of a group waits for; by a broker's own settings without one.

    A master that is to be replaced says it for its successor, which has the same settings.
    """
    master = (await controllers.group(admin, place.name, named)).master
    if master is None or not master.is_alive or master.address == place.address:
        return needed_logs(settings)
    return await _needed(admin, master.address)


async def _hand_over(
    admin: AdminClient, place: BrokerPlace, named: Sequence[str], needed: int, deadline_ms: int
) -> RetiredBroker:
    """Have another lead, if it leads, once the group goes on without it."""
    group = await _until_spare(admin, place, named, needed, deadline_ms)
    member = group.member(place.address)
    if member.is_master:
        await elect(admin, group, candidate(group, None, unclean=False))
        group = await _until_spare(admin, place, named, needed, deadline_ms)
    return RetiredBroker(
        broker=place.name,
        address=place.address,
        broker_id=member.broker_id,
        master=group.master.address if group.master else None,
        epoch=group.epoch,
        was_master=member.is_master,
    )


async def _until_spare(
    admin: AdminClient, place: BrokerPlace, named: Sequence[str], needed: int, deadline_ms: int
) -> GroupStatus:
    while True:
        group = await controllers.group(admin, place.name, named)
        leaving = group.member(place.address).broker_id
        if may_leave(group.standings, leaving, needed):
            return group
        if admin.clock.monotonic_ms() >= deadline_ms:
            others = len(stand_ins(group.standings, leaving))
            raise RoquetError(
                f"{place.name}: {group.member(place.address).place} must not be stopped yet:"
                f" without it {others} would be in sync, and messages need {max(needed, 1)}"
                " (minInSyncReplicas, or inSyncReplicas)"
            )
        await admin.clock.sleep(POLL_MS)


async def _leave_master(admin: AdminClient, place: BrokerPlace, deadline_ms: int) -> RetiredBroker:
    """Wait until the master of a replica with a fixed role needs it no more."""
    while True:
        rows = await replicas.statuses(admin, place.name)
        master = next((row.address for row in rows if row.is_master), None)
        needed = await _needed(admin, master)
        others = sum(bool(row.is_in_sync) for row in rows if row.address != place.address)
        if others >= needed:
            return RetiredBroker(broker=place.name, address=place.address, master=master)
        if admin.clock.monotonic_ms() >= deadline_ms:
            logs = "1 log" if others == 1 else f"{others} logs"
            raise RoquetError(
                f"{place.name}: the replica at {place.address} must not be stopped yet: without it"
                f" {logs} would be in sync, and each message waits for {needed}"
                " (inSyncReplicas)"
            )
        await admin.clock.sleep(POLL_MS)


async def _needed(admin: AdminClient, master: str | None) -> int:
    """Number of logs that a master waits for; 0 without one."""
    if master is None:
        return 0
    settings = brokers.decoded_settings(await admin.ask(master, GetSettings()))
    return needed_logs(settings)


async def take_back(admin: AdminClient, broker: str) -> BrokerPlace:
    """Let a drained broker take messages again. Raises UsageError for an unknown one."""
    place = await locate(admin, broker)
    change = UpdateSettings(body=escape_properties({"brokerPermission": READ_WRITE_TEXT}).encode())
    await admin.ask(place.address, change)
    return place


async def _drain(admin: AdminClient, place: BrokerPlace, deadline_ms: int) -> RetiredBroker:
    """Let a master with a fixed role take no more messages, and wait until all are read.

    Producers that ask for no route go on to send; so do those that have no other broker.
    """
    clock = admin.clock
    change = UpdateSettings(body=escape_properties({"brokerPermission": READ_ONLY}).encode())
    await admin.ask(place.address, change)
    began_ms = grown_ms = clock.monotonic_ms()
    end: int | None = None
    while True:
        status = codec.loads((await admin.ask(place.address, GetHaStatus())).body, HaStatus)
        now_ms = clock.monotonic_ms()
        if end is not None and status.master_commit_log_max_offset != end:
            grown_ms = now_ms
        end = status.master_commit_log_max_offset
        reply = await admin.ask(place.address, GetAllConsumeStats())
        waiting = codec.loads(reply.body, ConsumeStatsList).total_diff
        is_quiet = now_ms - grown_ms >= QUIET_MS
        if is_quiet and waiting <= 0:
            return RetiredBroker(broker=place.name, address=place.address, was_master=True)
        if now_ms >= deadline_ms:
            if is_quiet:
                why = f"{waiting} messages wait for consumers"
            elif grown_ms > began_ms:
                why = "it still stores messages"
            else:
                why = f"producers may send to it for {QUIET_MS // 1_000} s: wait longer (--wait)"
            raise RoquetError(
                f"{place.name}: the master at {place.address} must not be stopped yet: {why}; it is"
                f" read only now, `roquet broker set {place.name} permission=6` takes that back"
            )
        await clock.sleep(POLL_MS)


async def remove(
    admin: AdminClient, retired: RetiredBroker, *, named: Sequence[str] | None = None, wait_ms: int
) -> None:
    """Remove a broker's id from its controller once it was stopped, so that nobody waits for it.

    Where other members may lack acknowledged messages, the controller refuses that until the master
    has left the broker out. Raises RoquetError if it still lives or is needed after `wait_ms`.
    """
    deadline_ms = admin.clock.monotonic_ms() + wait_ms
    while True:
        group = await controllers.group(admin, retired.broker, named)
        member = group.member(retired.address)
        if not member.is_alive and (refused := await _clean(admin, group, member)) is None:
            return
        if admin.clock.monotonic_ms() >= deadline_ms:
            why = "still runs: its id stays; stop it, and ask again"
            if not member.is_alive:
                why = f"keeps its id: {refused}"
            raise RoquetError(f"{retired.broker}: {member.place} {why}")
        await admin.clock.sleep(POLL_MS)


async def _clean(
    admin: AdminClient, group: GroupStatus, member: ReplicaMember
) -> CallRefused | None:
    """Remove a broker's id; returns the refusal of a controller that needs the broker yet."""
    call = CleanBrokerData(
        broker_name=group.broker,
        broker_controller_ids_to_clean=str(member.broker_id),
        invoke_time=admin.clock.now_ms(),
    )
    try:
        await admin.ask(group.controller, call)
    except CallRefused as error:
        if error.code != ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA:
            raise
        return error
    return None
