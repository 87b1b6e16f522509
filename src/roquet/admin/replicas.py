"""Replicas: how far each broker of a name is behind its master, in bytes and in time.

    master   907 ─▶ end of the log, connections of replicas: address, last report, in sync
    replica  907 ─▶ end of its log, last contact        28 ─▶ end of its last whole record
    master   33  ─▶ the first record that the replica lacks: since when it is behind
    any      26  ─▶ settings: how many logs messages need, and the controllers that know the members

A master knows its replicas by connection, not by id; `matched_connections` finds the ids. A replica
of ours says from which address it is connected. Apache's brokers answer the same calls.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from roquet.admin.brokers import decoded_settings
from roquet.admin.client import AdminClient
from roquet.admin.controllers import GroupNeeds, group_needs
from roquet.model.errors import CallError, CallRefused, FieldError, NotFound, RecordError
from roquet.model.route import BrokerData
from roquet.model.settings import suggest
from roquet.model.topic import MASTER_ID
from roquet.net.address import host_of, split_address
from roquet.wire.call import Reply
from roquet.wire.calls.admin.settings import GetSettings
from roquet.wire.calls.admin.stats import (
    BrokerEpochs,
    GetEpochs,
    GetHaStatus,
    GetRuntimeInfo,
    HaClient,
    HaConnection,
    HaStatus,
)
from roquet.wire.calls.bodies import KVTable
from roquet.wire.calls.query import ViewMessage
from roquet.wire.fastjson import codec
from roquet.wire.records import record

UNKNOWN_END: Final = -1
"""Sorts a replica that does not answer behind those that do."""

SILENT_FROM_MS: Final = 10_000
"""Ms without a report from which on a replica is a problem: it reports every 5 s by default."""


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One broker of a name: its master, or a replica."""

    broker: str
    broker_id: int | None
    """None: connected to the master, and unknown to name servers."""
    address: str
    is_master: bool
    epoch: int | None = None
    """Epoch of the last master whose records it has; None without a controller."""
    log_end: int | None = None
    """Position at which its log ends; None: not known."""
    is_in_sync: bool | None = None
    """Whether its master counts it as in sync; None while there is no master that says so."""
    lag_bytes: int | None = None
    """Bytes of the master's log that it lacks; None while that is not known."""
    lag_ms: int | None = None
    """How long ago the first message that it lacks was stored, by the clock of this machine; None
    if not known: the master is away, or the first bytes that it lacks are no message."""
    last_contact_ms: int | None = None
    """When it last heard from its master, in ms since the epoch by its own clock; None for a master
    and if not known."""
    fault: str | None = None
    """The error of a broker that does not answer, or not all questions."""
    is_alive: bool | None = None
    """Whether its controller hears of it; None: there is none, or none tells."""
    logs_needed: int | None = None
    """Logs that have to hold a message; of a master alone, None if not known."""
    controller_fault: str | None = None
    """Why no controller tells of the members; None if one does, or there is none."""
    controller_id: int | None = None
    """Its id from the controller, for good; name servers know a master as 0. None without one."""
    silent_ms: int | None = None
    """Ms since it last reported to its master; None: not known, as from Apache's masters."""

    @property
    def shown_id(self) -> str:
        """The id for a person: that of the controller, which `cluster elect` takes, where it is."""
        known = self.broker_id if self.controller_id is None else self.controller_id
        return "?" if known is None else str(known)

    @property
    def silent_s(self) -> int | None:
        """Seconds for which its master has heard nothing of it; None while that is not long."""
        if self.silent_ms is None or self.silent_ms < SILENT_FROM_MS:
            return None
        return self.silent_ms // 1000


class ReplicaPosition(msgspec.Struct, frozen=True, kw_only=True):
    """A replica that may be connected to the master."""

    broker_id: int
    host: str
    log_end: int = UNKNOWN_END
    connected_from: str | None = None
    """HOST:PORT of its own end of the connection, if it says so."""


class _Answers(msgspec.Struct, frozen=True, kw_only=True):
    """Answers of all brokers, by address."""

    status: Mapping[str, HaStatus]
    info: Mapping[str, Mapping[str, str]]
    epochs: Mapping[str, int | None]
    settings: Mapping[str, Mapping[str, str]]
    failed: Mapping[str, CallError]


async def statuses(admin: AdminClient, broker: str | None = None) -> list[ReplicaStatus]:
    """Every broker of each name by id, or those of one name; the master is the first.

    Raises NotFound for an unknown name, RoquetError when there is no broker at all.
    """
    table = (await admin.cluster()).broker_addr_table
    if broker is not None and broker not in table:
        raise NotFound(f"there is no broker {broker!r}{suggest(broker, list(table))}")
    groups = [table[name] for name in sorted(table) if broker in (None, name)]
    answers = await _ask(admin, [each for group in groups for each in group.broker_addrs.values()])
    rows = await asyncio.gather(*(_group(admin, group, answers) for group in groups))
    return [row for group in rows for row in group]


def problems(shown: Sequence[ReplicaStatus]) -> list[str]:
    """Lines that say what is wrong with replicas; empty when nothing is."""
    lines = []
    for name in dict.fromkeys(each.broker for each in shown):
        group = [each for each in shown if each.broker == name]
        if not any(each.is_master for each in group):
            lines.append(f"{name}: the master is away, so no message is taken")
        lines += _needs(name, group)
        lines += [f"{name} {_place(each)}" for each in group if _place(each)]
    return lines


def _needs(name: str, group: Sequence[ReplicaStatus]) -> Iterator[str]:
    """Lines that say why a name may take no message though its master answers."""
    in_sync = sum(each.is_in_sync is True and each.is_alive is not False for each in group)
    for each in group:
        if each.logs_needed is not None and in_sync < each.logs_needed:
            have = "1 log is" if in_sync == 1 else f"{in_sync} logs are"
            yield (
                f"{name}: {have} in sync, and messages need {each.logs_needed} (inSyncReplicas,"
                " minInSyncReplicas): they are refused, or stored and answered FLUSH_SLAVE_TIMEOUT"
            )
    for fault in {each.controller_fault for each in group if each.controller_fault is not None}:
        yield f"{name}: {fault}; its master takes no message once its lease is over"


def _place(each: ReplicaStatus) -> str:
    where = f"{each.shown_id} at {each.address}"
    if each.silent_s is not None:
        return f"{where} is silent: its master has heard nothing of it for {each.silent_s} s"
    if each.fault is not None:
        return f"{where} does not tell how it is: {each.fault}"
    if each.is_alive is False:
        return f"{where} is away: its controller does not hear of it"
    if each.is_in_sync is False:
        is_beyond = each.log_end is not None and each.lag_bytes is None
        why = ": its log ends beyond the master's, see its log file" if is_beyond else ""
        return f"{where} is not in sync{why}"
    return ""


def matched_connections(
    replicas: Iterable[ReplicaPosition], connections: Sequence[HaConnection]
) -> dict[int, HaConnection]:
    """Connections of a master by the id of the replica.

    A replica of ours says which one is its own. Of others a connection says a host, and a port that
    is no broker's: those of a replica's host are its own; of several on one host, and of those from
    other hosts, the replica whose log is longest has the connection that has reported most. Behind
    a translation of addresses the port alone may be right.
    """
    found: dict[int, HaConnection] = {}
    left = sorted(connections, key=lambda each: -each.slave_ack_offset)
    waiting = sorted(replicas, key=lambda each: -each.log_end)
    for is_own in (_is_its_address, _is_its_port, _is_on_its_host, _is_anywhere):
        for replica in waiting:
            if replica.broker_id not in found:
                match = next((each for each in left if is_own(each, replica)), None)
                if match is not None:
                    found[replica.broker_id] = match
                    left.remove(match)
    return found


def _is_its_address(connection: HaConnection, replica: ReplicaPosition) -> bool:
    return connection.addr is not None and connection.addr == replica.connected_from


def _is_its_port(connection: HaConnection, replica: ReplicaPosition) -> bool:
    if connection.addr is None or replica.connected_from is None:
        return False
    return connection.addr.rpartition(":")[2] == replica.connected_from.rpartition(":")[2]


def _is_on_its_host(connection: HaConnection, replica: ReplicaPosition) -> bool:
    if connection.addr is None:
        return False
    return host_of(connection.addr) == replica.host


def _is_anywhere(_connection: HaConnection, _replica: ReplicaPosition) -> bool:
    return True


async def _ask(admin: AdminClient, addresses: Sequence[str]) -> _Answers:
    brokers = {address: address for address in addresses}
    (status, failed), (info, untold), (epochs, fixed), (settings, hidden) = await asyncio.gather(
        admin.ask_each(brokers, GetHaStatus()),
        admin.ask_each(brokers, GetRuntimeInfo()),
        admin.ask_each(brokers, GetEpochs()),  # refused without a controller
        admin.ask_each(brokers, GetSettings()),
    )
    silent = {name: error for name, error in fixed.items() if not isinstance(error, CallRefused)}
    return _Answers(
        status={address: codec.loads(reply.body, HaStatus) for address, reply in status.items()},
        info={address: codec.loads(reply.body, KVTable).table for address, reply in info.items()},
        epochs={address: _last_epoch(reply) for address, reply in epochs.items()},
        settings={address: decoded_settings(reply) for address, reply in settings.items()},
        failed={**silent, **untold, **hidden, **failed},
    )


def _last_epoch(reply: Reply) -> int | None:
    ranges = codec.loads(reply.body, BrokerEpochs).epoch_list
    return max((each.epoch for each in ranges), default=None)


async def _group(admin: AdminClient, group: BrokerData, answers: _Answers) -> list[ReplicaStatus]:
    addresses = dict(sorted(group.broker_addrs.items()))
    by_id = {number: answers.status.get(address) for number, address in addresses.items()}
    leader = next((number for number, one in by_id.items() if one is not None and one.master), None)
    master = by_id[leader] if leader is not None else None
    leads_at = addresses[leader] if leader is not None else None
    connections = {} if master is None else _connections(master, leader, addresses, by_id)
    rows = []
    for number, address in addresses.items():
        row = ReplicaStatus(
            broker=group.broker_name,
            broker_id=number,
            address=address,
            is_master=number == (MASTER_ID if leader is None else leader),
            epoch=answers.epochs.get(address),
            fault=str(answers.failed[address]) if address in answers.failed else None,
        )
        if master is not None and number == leader:
            rows.append(_master_row(row, master))
        else:
            row = _replica_row(row, by_id[number], master, connections.get(number))
            ends = _record_ends(row, answers.info.get(address, {}))
            lag_ms = await _lag_ms(admin, leads_at, row, ends)
            rows.append(msgspec.structs.replace(row, lag_ms=lag_ms))
    first = [leads_at] if leads_at is not None else []
    known = (answers.settings.get(address) for address in [*first, *addresses.values()])
    settings = next((each for each in known if each is not None), None)
    needs = await group_needs(admin, group.broker_name, settings)
    strangers = _unregistered(group.broker_name, master, connections.values())
    return [*_with_needs(rows, needs), *_missing(group.broker_name, rows, needs), *strangers]


def _with_needs(rows: Sequence[ReplicaStatus], needs: GroupNeeds) -> list[ReplicaStatus]:
    """The brokers of one name, with what settings and controller say."""
    members = {member.address: member for member in needs.members}
    return [
        msgspec.structs.replace(
            row,
            is_alive=member.is_alive if (member := members.get(row.address)) else None,
            controller_id=member.broker_id if member else None,
            logs_needed=needs.logs if row.is_master else None,
            controller_fault=needs.controller_fault,
        )
        for row in rows
    ]


def _missing(
    broker: str, rows: Sequence[ReplicaStatus], needs: GroupNeeds
) -> Iterator[ReplicaStatus]:
    """Members of a controller's group that name servers do not know."""
    known = {row.address for row in rows}
    for member in needs.members:
        if member.address not in known:
            yield ReplicaStatus(
                broker=broker,
                broker_id=member.broker_id,
                controller_id=member.broker_id,
                address=member.address,
                is_master=False,
                is_in_sync=False,
                is_alive=member.is_alive,
            )


def _connections(
    master: HaStatus,
    leader: int | None,
    addresses: Mapping[int, str],
    by_id: Mapping[int, HaStatus | None],
) -> dict[int, HaConnection]:
    replicas = [
        ReplicaPosition(
            broker_id=number,
            host=split_address(addresses[number])[0],
            log_end=_own(status).max_offset if status is not None else UNKNOWN_END,
            connected_from=_own(status).local_addr if status is not None else None,
        )
        for number, status in by_id.items()
        if number != leader and (status is None or _own(status).is_activated is not False)
    ]
    return matched_connections(replicas, master.ha_connection_info)


def _own(status: HaStatus) -> HaClient:
    return status.ha_client_runtime_info or HaClient()


def _master_row(row: ReplicaStatus, master: HaStatus) -> ReplicaStatus:
    end = master.master_commit_log_max_offset
    return msgspec.structs.replace(row, log_end=end, is_in_sync=True, lag_bytes=0, lag_ms=0)


def _replica_row(
    row: ReplicaStatus,
    status: HaStatus | None,
    master: HaStatus | None,
    connection: HaConnection | None,
) -> ReplicaStatus:
    """A replica by its own answer and by its connection to the master."""
    reported = connection.slave_ack_offset if connection is not None else None
    own = None if status is None else _own(status)
    end = reported if own is None else own.max_offset
    lag = None
    if master is not None and end is not None:
        lag = master.master_commit_log_max_offset - max(end, reported or 0)
        if lag < 0:  # it was asked a moment later, or its log is another one
            lag = 0 if connection is not None else None
    return msgspec.structs.replace(
        row,
        log_end=end,
        is_in_sync=None if master is None else connection is not None and connection.in_sync,
        lag_bytes=lag,
        silent_ms=None if connection is None else connection.silent_ms,
        last_contact_ms=(own.last_read_timestamp or None) if own is not None else None,
    )


def _record_ends(row: ReplicaStatus, info: Mapping[str, str]) -> list[int]:
    """Positions at which a replica's last whole record may end, the latest first.

    Bytes come in slices, so its log may end within a record; what it has dispatched does not.
    """
    ends = [] if row.log_end is None else [row.log_end]
    with suppress(KeyError, ValueError):
        ends.append(int(info["commitLogMaxOffset"]) - int(info["dispatchBehindBytes"]))
    return ends


async def _lag_ms(
    admin: AdminClient, master: str | None, row: ReplicaStatus, ends: Sequence[int]
) -> int | None:
    if row.lag_bytes == 0:
        return 0
    if master is None or row.lag_bytes is None:
        return None
    for position in ends:
        try:
            reply = await admin.ask(master, ViewMessage(offset=position))
            stored_ms = record.decode(reply.body, check_crc=False).stored_ms
        except (CallError, FieldError, RecordError):
            continue
        return max(admin.clock.now_ms() - stored_ms, 0)
    return None


def _unregistered(
    broker: str, master: HaStatus | None, matched: Iterable[HaConnection]
) -> list[ReplicaStatus]:
    """Connections of a master from replicas that name servers do not know."""
    if master is None:
        return []
    known = {id(each) for each in matched}
    return [
        ReplicaStatus(
            broker=broker,
            broker_id=None,
            address=each.addr or "?",
            is_master=False,
            log_end=each.slave_ack_offset,
            is_in_sync=each.in_sync,
            lag_bytes=max(each.diff, 0),
            silent_ms=each.silent_ms,
        )
        for each in master.ha_connection_info
        if id(each) not in known
    ]
