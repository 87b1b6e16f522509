"""Replica reads: the broker that a pull's reply suggests next, and what a replica answers."""

from collections.abc import Awaitable
from typing import Final

import msgspec

from roquet.broker.control import ControlPlane
from roquet.broker.log.message_log import MessageLog
from roquet.broker.replication.replication import Replication
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.model.flags import PullFlag
from roquet.model.topic import SubscriptionGroup
from roquet.rules.replication.read_from import (
    ReadBacklog,
    replica_answer,
    returns_to_master,
    suggested_broker_id,
)
from roquet.wire.calls.pull import Pull, PullReply
from roquet.wire.codes import ResponseCode

SUSPEND: Final = int(PullFlag.SUSPEND)

READ_CODES: Final = frozenset(
    {
        int(ResponseCode.SUCCESS),
        int(ResponseCode.PULL_NOT_FOUND),
        int(ResponseCode.PULL_RETRY_IMMEDIATELY),
        int(ResponseCode.PULL_OFFSET_MOVED),
    }
)
"""Codes of replies that a queue was looked at for; others refuse the pull."""


class ReplicaReads:
    """Directs readers to the broker from which they read next."""

    __slots__ = ("_log", "_replication", "_settings", "_tables")

    def __init__(
        self, log: MessageLog, tables: BrokerTables, control: ControlPlane, replication: Replication
    ) -> None:
        self._log, self._tables, self._settings = log, tables, control.settings
        self._replication = replication

    def is_plain_read(self) -> bool:
        """Whether no other broker may be suggested: a master, and replicas that nobody reads."""
        return (
            self._replication.role.current.is_master and not self._settings.config.slave_read_enable
        )

    def without_wait(self, call: Pull) -> Pull:
        """The pull, not to be held at a replica whose master lives: the reader goes back there."""
        role = self._replication.role.current
        if role.is_master or role.master is None or not call.sys_flag & SUSPEND:
            return call
        return msgspec.structs.replace(call, sys_flag=call.sys_flag & ~SUSPEND)

    async def directed_later(self, call: Pull, reply: Awaitable[PullReply]) -> PullReply:
        """The reply that is not ready yet, with the broker to read from next."""
        return self.directed(call, await reply)

    def directed(self, call: Pull, reply: PullReply) -> PullReply:
        """The reply with the broker to read from next, and at a replica with its own code."""
        if reply.code not in READ_CODES:
            return reply
        config, role = self._settings.config, self._replication.role.current
        # A pull that a replica has begun to serve may end while its queues are being built.
        leads = role.is_master and self._replication.role.is_settled
        backlog = ReadBacklog(
            bytes_behind=self._bytes_behind(call, reply),
            memory=self._log.memory,
            memory_share=config.memory_share,
        )
        returns = returns_to_master(
            backlog, is_replica=not leads, is_master_alive=role.master is not None
        )
        group = self._tables.groups.get(call.consumer_group) or SubscriptionGroup()
        suggested = suggested_broker_id(
            group, backlog, reads_replicas=config.slave_read_enable, returns_to_master=returns
        )
        if leads:
            return msgspec.structs.replace(reply, suggest_which_broker_id=suggested)
        answer = replica_answer(
            reply.code,
            reply.next_begin_offset,
            call.queue_offset,
            returns_to_master=returns,
            corrects_offsets=config.offset_check_in_slave,
        )
        return msgspec.structs.replace(
            reply,
            code=answer.code,
            next_begin_offset=answer.next_offset,
            suggest_which_broker_id=suggested,
        )

    def _bytes_behind(self, call: Pull, reply: PullReply) -> int:
        """Bytes from the last entry that the pull has scanned to the log's end; 0 without one."""
        store = self._log.store
        last = reply.next_begin_offset - 1
        if last < call.queue_offset or not reply.min_offset <= last < reply.max_offset:
            return 0
        entries = store.queue_stats.entries(call.topic, call.queue_id, last, 1)
        return max(store.end_position - entries[0][0], 0) if entries else 0
