from typing import Any

import pytest

from roquet.broker.broker import Broker
from roquet.broker.handlers.lock import lock, unlock
from roquet.model.errors import FieldError
from roquet.model.queue import MessageQueue
from roquet.wire import dialect
from roquet.wire.calls.bodies import LockBody, LockedBody
from roquet.wire.calls.lock import LockQueues, UnlockQueues

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(3)]


def body(member: str, queues: list[MessageQueue]) -> bytes:
    return dialect.dumps(LockBody(consumer_group="billing", client_id=member, mq_set=queues))


def locked(
    broker: Broker, peer: Any, member: str, queues: list[MessageQueue]
) -> list[MessageQueue]:
    reply = lock(broker, LockQueues(body=body(member, queues)), peer)
    return dialect.loads(reply.body, LockedBody).lock_ok_mq_set


async def test_a_queue_has_one_holder_until_it_is_given_back(broker: Broker, peer: Any) -> None:
    assert locked(broker, peer, "c1", QUEUES[:2]) == QUEUES[:2]
    assert locked(broker, peer, "c2", QUEUES) == QUEUES[2:]
    unlock(broker, UnlockQueues(body=body("c1", QUEUES)), peer)
    assert locked(broker, peer, "c2", QUEUES) == QUEUES


async def test_a_lock_as_other_clients_ask_for_it(broker: Broker, peer: Any) -> None:
    queue = b'{"brokerName":"b","queueId":0,"topic":"t"}'
    text = b'{"clientId":"c1","consumerGroup":"g","mqSet":[%s]}' % queue
    reply = lock(broker, LockQueues(body=text), peer)
    assert reply.body == b'{"lockOKMQSet":[%s]}' % queue


async def test_a_broken_body_is_the_clients_fault(broker: Broker, peer: Any) -> None:
    with pytest.raises(FieldError):
        lock(broker, LockQueues(body=b"{"), peer)
    with pytest.raises(FieldError):
        unlock(broker, UnlockQueues(body=b"[]"), peer)
