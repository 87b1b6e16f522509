"""Controllers: the brokers of one name as the controller that leads knows them.

    settings of a broker ──▶ controllerAddr ──1005──▶ the controller that leads ──1006──▶ members
                                                           each member ──907──▶ where its log ends

Apache's controllers and brokers answer the same calls.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from roquet.admin import brokers
from roquet.admin.client import AdminClient, failures_text
from roquet.model.errors import ConfigError, NotFound, RoquetError, UsageError
from roquet.model.settings import parse_addresses, suggest
from roquet.rules.election.handover import UNKNOWN_END, MemberStanding
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.wire.calls.admin.settings import GetSettings
from roquet.wire.calls.admin.stats import GetHaStatus, HaStatus
from roquet.wire.calls.controller import (
    GetControllerMetadata,
    GetSyncStateData,
    ReplicaIdentity,
    ReplicasInfo,
    SyncStateData,
)
from roquet.wire.fastjson import codec

MODE_KEY: Final = "enableControllerMode"
CONTROLLERS_KEY: Final = "controllerAddr"


class ReplicaMember(msgspec.Struct, frozen=True, kw_only=True):
    """One broker of a name."""

    broker_id: int
    """Id from the controller, for good; name servers know the master as 0."""
    address: str
    is_master: bool
    is_in_sync: bool
    """Whether it is in the sync-state set."""
    is_alive: bool
    """Whether the controller hears of it."""
    log_end: int | None = None
    """Position at which its log ends; None: not known."""

    @property
    def place(self) -> str:
        """Id and address, for a person."""
        return f"{self.broker_id} at {self.address}"


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The brokers of one name, as their controller knows them."""

    broker: str
    """Name that they share."""
    controller: str
    """Address of the controller that leads."""
    epoch: int
    """Number of elections so far."""
    members: list[ReplicaMember]
    """By id."""

    @property
    def master(self) -> ReplicaMember | None:
        """The broker that leads; None while nobody does."""
        return next((one for one in self.members if one.is_master), None)

    @property
    def standings(self) -> list[MemberStanding]:
        """Members as the rules of a handover see them."""
        return [
            MemberStanding(
                broker_id=one.broker_id,
                is_in_sync=one.is_in_sync,
                is_alive=one.is_alive,
                log_end=UNKNOWN_END if one.log_end is None else one.log_end,
            )
            for one in self.members
        ]

    def member(self, wanted: str) -> ReplicaMember:
        """The member of an id or an address. Raises UsageError if there is none."""
        for one in self.members:
            if wanted in (str(one.broker_id), one.address):
                return one
        known = ", ".join(one.place for one in self.members)
        raise UsageError(f"{self.broker} has no broker {wanted!r}; it has {known}")


async def of_broker(admin: AdminClient, broker: str) -> Sequence[str]:
    """Addresses of the controllers that the brokers of a name obey.

    Raises NotFound for an unknown name, UsageError for one whose roles are fixed, RoquetError when
    none of its brokers answers.
    """
    table = (await admin.cluster()).broker_addr_table
    if broker not in table:
        raise NotFound(f"there is no broker {broker!r}{suggest(broker, list(table))}")
    addresses = {address: address for address in table[broker].broker_addrs.values()}
    replies, failed = await admin.ask_each(addresses, GetSettings())
    for reply in replies.values():
        settings = brokers.decoded_settings(reply)
        if has_controller(settings):
            return controllers_named(settings[CONTROLLERS_KEY], f"{broker}: {CONTROLLERS_KEY}")
    if not replies:
        raise RoquetError(f"no broker of {broker} answers: {failures_text(failed)}")
    raise UsageError(
        f"{broker} has no controller ({MODE_KEY}): its roles are fixed, and an operator promotes a"
        " replica by its broker.conf"
    )


def has_controller(settings: Mapping[str, str]) -> bool:
    """Whether a broker with these settings gets its role from a controller."""
    return settings.get(MODE_KEY) == "true" and bool(settings.get(CONTROLLERS_KEY))


def controllers_named(text: str, source: str) -> Sequence[str]:
    """Addresses of controllers, separated by semicolons or commas. Raises UsageError."""
    try:
        return parse_addresses(text, source)
    except ConfigError as error:
        raise UsageError(str(error)) from None


async def leader(admin: AdminClient, controllers: Sequence[str]) -> str:
    """Address of the controller that leads. Raises RoquetError if there is none."""
    asked = {address: address for address in controllers}
    replies, failed = await admin.ask_each(asked, GetControllerMetadata())
    said = sorted(replies.values(), key=lambda reply: not reply.is_leader)
    for reply in said:  # one that leads itself is believed before others
        if reply.controller_leader_address:
            return reply.controller_leader_address
    if failed:
        raise RoquetError(f"no controller leads: {failures_text(failed)}")
    raise RoquetError(f"none of the controllers {', '.join(controllers)} leads")


async def group(
    admin: AdminClient, broker: str, controllers: Sequence[str] | None = None
) -> GroupStatus:
    """The brokers of a name; without `controllers` those that its brokers obey.

    Raises RoquetError; UsageError for a name that is not known.
    """
    address = await leader(admin, controllers or await of_broker(admin, broker))
    reply = await admin.ask(address, GetSyncStateData(body=codec.dumps([broker])))
    data = codec.loads(reply.body, SyncStateData) if reply.body else SyncStateData()
    info = data.replicas_info_table.get(broker)
    if info is None:
        raise UsageError(f"the controller at {address} knows no broker {broker!r}")
    members = _members(info)
    ends = await _log_ends(admin, [one.address for one in members if one.is_alive])
    return GroupStatus(
        broker=broker,
        controller=address,
        epoch=info.master_epoch,
        members=[
            msgspec.structs.replace(one, log_end=ends.get(one.address))
            for one in sorted(members, key=lambda one: one.broker_id)
        ],
    )


def _members(info: ReplicasInfo) -> list[ReplicaMember]:
    return [
        _member(info, replica, is_in_sync=is_in_sync)
        for is_in_sync, replicas in (
            (True, info.in_sync_replicas),
            (False, info.not_in_sync_replicas),
        )
        for replica in replicas
    ]


def _member(info: ReplicasInfo, replica: ReplicaIdentity, *, is_in_sync: bool) -> ReplicaMember:
    return ReplicaMember(
        broker_id=replica.broker_id,
        address=replica.broker_address,
        is_master=replica.broker_id == info.master_broker_id,
        is_in_sync=is_in_sync,
        is_alive=bool(replica.alive),
    )


async def _log_ends(admin: AdminClient, addresses: Sequence[str]) -> dict[str, int]:
    """Where the logs of brokers end, by address; those that do not tell are left out."""
    asked = {address: address for address in addresses}
    replies, _failed = await admin.ask_each(asked, GetHaStatus())
    statuses = {address: codec.loads(reply.body, HaStatus) for address, reply in replies.items()}
    return {address: _log_end(status) for address, status in statuses.items()}


def _log_end(status: HaStatus) -> int:
    own = status.ha_client_runtime_info
    if status.master or own is None:
        return status.master_commit_log_max_offset
    return own.max_offset


class GroupNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """Needs of the brokers of one name for taking messages, by settings and controller."""

    logs: int | None = None
    """Logs that have to hold a message; None: not known."""
    members: Sequence[ReplicaMember] = ()
    """Members that the controller knows; empty where there is none."""
    controller_fault: str | None = None
    """Why no controller tells of the members; None if one does, or there is none."""


async def group_needs(
    admin: AdminClient, broker: str, settings: Mapping[str, str] | None
) -> GroupNeeds:
    """Needs of the brokers of a name, by the settings of one of them; None: none has answered."""
    if settings is None:
        return GroupNeeds()
    logs: int | None = None
    try:
        logs = needed_logs(settings)
        if not has_controller(settings):
            return GroupNeeds(logs=logs)
        named = controllers_named(settings[CONTROLLERS_KEY], CONTROLLERS_KEY)
        found = await group(admin, broker, named)
    except RoquetError as error:
        return GroupNeeds(logs=logs, controller_fault=str(error))
    return GroupNeeds(logs=logs, members=found.members)


def needed_logs(settings: Mapping[str, str]) -> int:
    """Logs that have to hold a message before its sender is answered, the master's included.

    With a controller also the number without which no message is taken. Raises RoquetError for
    settings that are no numbers.
    """
    if has_controller(settings):
        least = log_count(settings, "minInSyncReplicas")
        waits_for_all = settings.get("allAckInSyncStateSet") == "true"
        return least if waits_for_all else max(least, log_count(settings, "inSyncReplicas"))
    if settings.get("brokerRole") != BrokerRole.SYNC_MASTER:
        return 1
    return log_count(settings, "inSyncReplicas")


def log_count(settings: Mapping[str, str], key: str) -> int:
    """A number among the settings, 1 if it is not there. Raises RoquetError if it is none."""
    text = settings.get(key, "1")
    if not (text.isascii() and text.isdecimal()):
        raise RoquetError(f"{key}={text!r} is no number")
    return int(text)
