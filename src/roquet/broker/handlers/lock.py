"""Queue locks."""

from roquet.broker.broker import Broker
from roquet.net.router import Peer
from roquet.wire import dialect
from roquet.wire.call import Reply
from roquet.wire.calls.bodies import LockBody, LockedBody
from roquet.wire.calls.lock import LockQueues, UnlockQueues


def lock(broker: Broker, call: LockQueues, _peer: Peer) -> Reply:
    """Locks queues for one member; the answer lists those that it holds now."""
    asked = dialect.loads(call.body, LockBody)
    now_ms = broker.clock.monotonic_ms()
    held = broker.locks.lock(asked.consumer_group, asked.client_id, asked.mq_set, now_ms)
    return Reply(body=dialect.dumps(LockedBody(lock_ok_mq_set=held)))


def unlock(broker: Broker, call: UnlockQueues, _peer: Peer) -> Reply:
    """Takes locked queues back."""
    asked = dialect.loads(call.body, LockBody)
    broker.locks.unlock(asked.consumer_group, asked.client_id, asked.mq_set)
    return Reply()
