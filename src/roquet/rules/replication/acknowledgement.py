"""Acknowledgement: how many logs have to hold a message before its sender is answered.

                     refused without enough replicas    logs needed, the master's among them
    fixed roles      never                              inSyncReplicas
    acting master    needed > in sync                   inSyncReplicas, or fewer if they may adapt
    controller       set < minInSyncReplicas            inSyncReplicas, or the whole set

Source: Apache RocketMQ 5.5.0, CommitLog.asyncPutMessage, calcNeedAckNums and handleDiskFlushAndHA;
GroupTransferService; AutoSwitchHAService.computeConfirmOffset.
"""

from collections.abc import Collection, Mapping
from enum import Enum, IntEnum, StrEnum
from typing import Final

import msgspec

ALL_OF_THE_SET: Final = -1
"""In place of a number of logs (MixAll.ALL_ACK_IN_SYNC_STATE_SET)."""


class BrokerRole(StrEnum):
    """Role of a broker in its group (brokerRole)."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class ReplicaAck(StrEnum):
    """When a replica acknowledges bytes of its master's log."""

    APPENDED = "appended"
    """Once it has them in memory, like replicas of Apache's."""
    FLUSHED = "flushed"
    """Once they are on its disk."""


class DeploymentMode(Enum):
    """How brokers of one name get their roles."""

    FIXED_ROLES = "brokerRole"
    ACTING_MASTER = "enableSlaveActingMaster"
    CONTROLLER = "enableControllerMode"


class PutStatus(IntEnum):
    """Result of storing a message, with the response code of Apache's broker."""

    PUT_OK = 0
    IN_SYNC_REPLICAS_NOT_ENOUGH = 1
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


NOT_ENOUGH_REMARK: Final = "in-sync replicas not enough"


class AcknowledgementPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that say what a sender waits for."""

    role: BrokerRole = BrokerRole.ASYNC_MASTER
    mode: DeploymentMode = DeploymentMode.FIXED_ROLES
    in_sync_replicas: int = 1
    """Logs that have to hold a message (inSyncReplicas)."""
    min_in_sync_replicas: int = 1
    """Fewer refuse a message, or bound how far the number adapts (minInSyncReplicas)."""
    adapts: bool = False
    """Be content with the replicas in sync (enableAutoInSyncReplicas)."""
    all_of_the_set: bool = False
    """Wait for the whole sync-state set (allAckInSyncStateSet)."""


def logs_needed(policy: AcknowledgementPolicy, *, in_sync: int, waits: bool = True) -> int | None:
    """Number of logs that have to hold a message, or `ALL_OF_THE_SET`.

    None: refuse it as IN_SYNC_REPLICAS_NOT_ENOUGH, before anything is stored. `in_sync` is the
    number of logs in sync, the master's among them: by bytes, bounded by the members alive where a
    replica may act as master, or the size of `SyncState.acknowledging`. `waits` is the message's
    property waitStoreMsgOK.
    """
    if policy.role is not BrokerRole.SYNC_MASTER or not waits:
        return 1
    if policy.mode is DeploymentMode.CONTROLLER:
        if in_sync < policy.min_in_sync_replicas:
            return None
        return ALL_OF_THE_SET if policy.all_of_the_set else max(policy.in_sync_replicas, 1)
    needed = max(policy.in_sync_replicas, 1)
    if policy.mode is DeploymentMode.ACTING_MASTER:
        if policy.adapts:
            needed = max(policy.min_in_sync_replicas, min(needed, in_sync))
        return None if needed > in_sync else needed
    return needed


def replicated_position(
    needed: int, end: int, reports: Mapping[int, int], members: Collection[int] | None = None
) -> int:
    """Position up to which enough logs hold everything: a message that ends there may be answered.

    `reports` has the last report of each connected replica by its id, without the master. Only
    `members` count, the other replicas of the set; None: all do, for fixed roles. A member without
    a connection holds nothing. Apache's master counts connections: two of one replica are two, and
    without `ALL_OF_THE_SET` even those of replicas that can never be elected count.
    """
    if members is not None:
        reports = {member: reports.get(member, 0) for member in members}
    if needed == ALL_OF_THE_SET:
        return min((end, *reports.values()))
    if needed <= 1:
        return end
    latest = sorted(reports.values(), reverse=True)
    return min(end, latest[needed - 2]) if needed - 2 < len(latest) else 0


class ConnectionReport(msgspec.Struct, frozen=True, kw_only=True):
    """Last report of a connection of the classic stream, which does not say whose it is."""

    host: str
    """Host that it comes from."""
    log_end: int
    first: int
    """Number of the connection's first report: the reports of all connections are counted."""
    previous: int
    """Number of the report before its last one; of the first while that is the only one."""
    latest: int
    """Number of its last report."""


def reports_of_replicas(connections: Mapping[int, ConnectionReport]) -> dict[int, int]:
    """Where logs end that are those of different replicas, as far as hosts tell, by connection.

    A replica that lost its connection makes another one, and its master may not notice for up to
    haHousekeepingInterval that the first one is dead. So of the connections of a host those are
    logs of their own that have reported twice since the first report of the newest one: once may be
    the dead one's last report, sent again by its kernel. The others and the newest one are one log
    together, as long as the longest of them: whoever connects takes nothing from a replica. Another
    replica on that host counts by itself again at once while messages come, or after twice
    haSendHeartbeatInterval. A replica that comes back from another address is two until its first
    connection ends. Two connections of one replica are two replicas to Apache's master.
    """
    newest: dict[str, tuple[int, int]] = {}
    for number, report in connections.items():
        newest[report.host] = max(newest.get(report.host, (0, 0)), (report.first, number))
    counted: dict[int, int] = {}
    for number, report in connections.items():
        first, one = newest[report.host]
        own = number if report.previous >= first else one
        counted[own] = max(counted.get(own, 0), report.log_end)
    return counted


def confirmed_position(
    previous: int, end: int, reports: Mapping[int, int], members: Collection[int]
) -> int:
    """Position up to which all members of the set hold the log: consumers read no further.

    Never falls below `previous`, nor grows while a member has no connection. For a master that
    does not wait for the whole set, Apache's broker takes the log's end instead. It leaves out a
    member that has not reported yet; here such a member confirms nothing.
    """
    return max(previous, replicated_position(ALL_OF_THE_SET, end, reports, members))


def put_status(*, on_disk: bool, replicated: bool) -> PutStatus:
    """Status after the waits for the disk and for the replicas; the replicas' failure wins."""
    if not replicated:
        return PutStatus.FLUSH_SLAVE_TIMEOUT
    return PutStatus.PUT_OK if on_disk else PutStatus.FLUSH_DISK_TIMEOUT
