"""Lock: queue locks of ordered consumers."""

from typing import Final

from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.operations.large_replies import written
from roquet.broker.replication.replication import Replication
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.model.errors import CallRefused, FieldError
from roquet.model.queue import MessageQueue
from roquet.net.router import HandlerReply, Peer
from roquet.wire.call import Reply
from roquet.wire.calls.bodies import LockBody, LockedQueues
from roquet.wire.calls.heartbeat import LockQueues, UnlockQueues
from roquet.wire.codes import ResponseCode
from roquet.wire.request_body import decode_body

QUEUES_MAX: Final = 16_384
"""Queues of one request: as many as a topic may have on a broker."""

IN_DOUBT: Final = "another broker may lead by now: no lock is granted before that is known"


class LockHandler(BrokerComponent, frozen=True):
    """Grants and releases locks of queues."""

    tables: BrokerTables
    control: ControlPlane
    replication: Replication

    def lock(self, call: LockQueues, _peer: Peer) -> HandlerReply:
        """Lock queues for one member; the reply lists those that it holds now.

        A replica grants none while it does not act as master: a queue would have an owner here and
        another one at the master. Raises CallRefused at a master that may have been replaced;
        clients keep their locks until these are over, and ask again.
        """
        body = _lock_body(call)
        held: list[MessageQueue] = []
        if self._may_grant(body):
            now_ms = self.control.clock.monotonic_ms()
            held = self.tables.locks.lock(body.consumer_group, body.client_id, body.mq_set, now_ms)
        return written(len(held), LockedQueues(lock_ok_mq_set=held), lambda body: Reply(body=body))

    def _may_grant(self, body: LockBody) -> bool:
        """Whether this broker's locks count; CallRefused while that is unknown.

        Apache's brokers with lockInStrictMode ask all members of a group for their votes
        (onlyThisBroker), and count them.
        """
        role = self.replication.role.current
        if role.is_master and role.is_fenced:
            raise CallRefused(ResponseCode.SYSTEM_BUSY, IN_DOUBT)
        return role.is_master or self.replication.acts_as_master or body.only_this_broker

    def unlock(self, call: UnlockQueues, _peer: Peer) -> Reply:
        """Unlock queues of a member."""
        body = _lock_body(call)
        self.tables.locks.unlock(body.consumer_group, body.client_id, body.mq_set)
        return Reply()


def _lock_body(call: LockQueues | UnlockQueues) -> LockBody:
    """Decode the request. FieldError without a group or client id, or for too many queues."""
    body = decode_body(call.body, LockBody)
    for name, value in (("consumerGroup", body.consumer_group), ("clientId", body.client_id)):
        if not value:
            raise FieldError(f"LockBody: $.{name} is missing")
    if (count := len(body.mq_set)) > QUEUES_MAX:
        raise FieldError(f"{count} queues: {QUEUES_MAX} are allowed in one request")
    return body
