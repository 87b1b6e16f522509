"""Queue locks."""

from typing import Final

from roquet.broker.control import ControlPlane
from roquet.broker.operations.large_replies import written
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.model.errors import FieldError
from roquet.net.router import HandlerReply, Peer
from roquet.wire.call import Reply
from roquet.wire.calls.bodies import LockBody, LockedQueues
from roquet.wire.calls.lock import LockQueues, UnlockQueues
from roquet.wire.request_body import decode_body

QUEUES_MAX: Final = 16_384
"""Queues of one request: as many as a topic may have on a broker."""


def lock(
    tables: BrokerTables, control: ControlPlane, call: LockQueues, _peer: Peer
) -> HandlerReply:
    """Locks queues for one member; the answer lists those that it holds now."""
    asked = _asked(call)
    now_ms = control.clock.monotonic_ms()
    held = tables.locks.lock(asked.consumer_group, asked.client_id, asked.mq_set, now_ms)
    return written(len(held), LockedQueues(lock_ok_mq_set=held), lambda body: Reply(body=body))


def unlock(tables: BrokerTables, call: UnlockQueues, _peer: Peer) -> Reply:
    """Takes locked queues back."""
    asked = _asked(call)
    tables.locks.unlock(asked.consumer_group, asked.client_id, asked.mq_set)
    return Reply()


def _asked(call: LockQueues | UnlockQueues) -> LockBody:
    """Who wants what; FieldError when it does not say who, or wants too much."""
    asked = decode_body(call.body, LockBody)
    for name, value in (("consumerGroup", asked.consumer_group), ("clientId", asked.client_id)):
        if not value:
            raise FieldError(f"LockBody: $.{name} is missing")
    if (count := len(asked.mq_set)) > QUEUES_MAX:
        raise FieldError(f"{count} queues: {QUEUES_MAX} are allowed in one request")
    return asked
