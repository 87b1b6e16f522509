"""Replication: calls between a master, its replicas, their name server and their controller.

The copy of tables uses the calls of operators (`calls.admin`), the log a stream of its own
(`wire.replication`).
"""

from typing import ClassVar

from roquet.wire.call import Call, Int, Long, Reply
from roquet.wire.codes import RequestCode


class NotifyRoleChanged(Call[Reply], frozen=True, kw_only=True):
    """Report an election to a live broker, one way; the body is a controller.SyncStateSet."""

    code: ClassVar = RequestCode.NOTIFY_BROKER_ROLE_CHANGED

    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None
    master_broker_id: Long | None = None
    """None, as the address: the group has no master any more."""


class NotifyMinBrokerId(Call[Reply], frozen=True, kw_only=True):
    """Report to the brokers of a name which of them has the smallest id, one way."""

    code: ClassVar = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE

    min_broker_id: Long | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    """Broker that was lost, if that is the reason."""
    ha_broker_addr: str | None = None
    """Where the log of the broker with the smallest id is streamed from."""


class ExchangeHaInfoReply(Reply, frozen=True, kw_only=True):
    """Addresses of a master, and how far its log is on its disk."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


class ExchangeHaInfo(Call[ExchangeHaInfoReply], frozen=True, kw_only=True):
    """Ask a master where its log is streamed from; with an address, tell a replica to use it."""

    code: ClassVar = RequestCode.EXCHANGE_BROKER_HA_INFO

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


class ResetMasterFlushOffset(Call[Reply], frozen=True, kw_only=True):
    """Set the position up to which a replica takes its master's log for durable."""

    code: ClassVar = RequestCode.RESET_MASTER_FLUSH_OFFSET

    master_flush_offset: Long
