"""Queue locks."""

from roquet.broker.broker import Broker
from roquet.model.errors import FieldError
from roquet.net.router import Peer
from roquet.wire import dialect
from roquet.wire.call import Reply
from roquet.wire.calls.bodies import LockBody, LockedBody
from roquet.wire.calls.lock import LockQueues, UnlockQueues


def lock(broker: Broker, call: LockQueues, _peer: Peer) -> Reply:
    """Locks queues for one member; the answer lists those that it holds now."""
    asked = _asked(call)
    now_ms = broker.clock.monotonic_ms()
    held = broker.locks.lock(asked.consumer_group, asked.client_id, asked.mq_set, now_ms)
    return Reply(body=dialect.dumps(LockedBody(lock_ok_mq_set=held)))


def unlock(broker: Broker, call: UnlockQueues, _peer: Peer) -> Reply:
    """Takes locked queues back."""
    asked = _asked(call)
    broker.locks.unlock(asked.consumer_group, asked.client_id, asked.mq_set)
    return Reply()


def _asked(call: LockQueues | UnlockQueues) -> LockBody:
    """Who wants what; FieldError when it does not say who."""
    asked = dialect.loads(call.body, LockBody)
    for name, value in (("consumerGroup", asked.consumer_group), ("clientId", asked.client_id)):
        if not value:
            raise FieldError(f"LockBody: $.{name} is missing")
    return asked
