from typing import Any

import pytest
from tests.broker.conftest import FakePeer, LocalBroker, heartbeat_of

from roquet.broker.handlers.groups.lock import QUEUES_MAX
from roquet.broker.replication.role import Role
from roquet.model.errors import CallRefused, FieldError
from roquet.model.queue import MessageQueue
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.wire.calls.bodies import LockBody, LockedQueues
from roquet.wire.calls.heartbeat import LockQueues, UnlockQueues, Unregister
from roquet.wire.fastjson import codec

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(3)]


def body(member: str, queues: list[MessageQueue]) -> bytes:
    return codec.dumps(LockBody(consumer_group="billing", client_id=member, mq_set=queues))


def locked(
    broker: LocalBroker, peer: FakePeer, member: str, queues: list[MessageQueue]
) -> list[MessageQueue]:
    reply = broker.ask(LockQueues(body=body(member, queues)), peer)
    return codec.loads(reply.body, LockedQueues).lock_ok_mq_set


async def test_a_queue_has_one_holder_until_it_is_given_back(broker: LocalBroker) -> None:
    assert locked(broker, broker.peer, "c1", QUEUES[:2]) == QUEUES[:2]
    assert locked(broker, broker.peer, "c2", QUEUES) == QUEUES[2:]
    broker.ask(UnlockQueues(body=body("c1", QUEUES)))
    assert locked(broker, broker.peer, "c2", QUEUES) == QUEUES


async def test_a_lock_as_other_clients_ask_for_it(broker: LocalBroker) -> None:
    queue = b'{"brokerName":"b","queueId":0,"topic":"t"}'
    text = b'{"clientId":"c1","consumerGroup":"g","mqSet":[%s]}' % queue
    assert broker.ask(LockQueues(body=text)).body == b'{"lockOKMQSet":[%s]}' % queue


async def test_a_queue_may_be_locked_without_names_as_in_java(broker: LocalBroker) -> None:
    text = b'{"clientId":"%s","consumerGroup":"g","mqSet":[{"queueId":1,"topic":"t"}]}'
    replies: list[Any] = [broker.ask(LockQueues(body=text % who)) for who in (b"c1", b"c2")]
    assert [reply.body for reply in replies] == [
        b'{"lockOKMQSet":[{"brokerName":"","queueId":1,"topic":"t"}]}',
        b'{"lockOKMQSet":[]}',
    ]


async def test_a_broken_body_is_the_clients_fault(broker: LocalBroker) -> None:
    with pytest.raises(FieldError):
        broker.ask(LockQueues(body=b"{"))
    with pytest.raises(FieldError):
        broker.ask(UnlockQueues(body=b"[]"))


async def test_a_client_that_disconnects_releases_its_locks(broker: LocalBroker) -> None:
    first, second = FakePeer(), FakePeer()
    broker.beat(heartbeat_of("c1"), first)
    broker.beat(heartbeat_of("c2"), second)
    assert locked(broker, first, "c1", QUEUES) == QUEUES
    assert locked(broker, second, "c2", QUEUES) == []
    first.hang_up()
    assert locked(broker, second, "c2", QUEUES) == QUEUES


async def test_a_client_that_unregisters_releases_its_locks(broker: LocalBroker) -> None:
    first, second = FakePeer(), FakePeer()
    broker.beat(heartbeat_of("c1"), first)
    broker.beat(heartbeat_of("c2"), second)
    locked(broker, first, "c1", QUEUES)
    broker.ask(Unregister(client_id="c1", consumer_group="billing"), first)
    assert locked(broker, second, "c2", QUEUES) == QUEUES


async def test_a_client_that_reconnects_keeps_its_locks(broker: LocalBroker) -> None:
    old, new = FakePeer(), FakePeer()
    broker.beat(heartbeat_of("c1"), old)
    locked(broker, old, "c1", QUEUES)
    broker.beat(heartbeat_of("c1"), new)
    old.hang_up()
    assert locked(broker, FakePeer(), "c2", QUEUES) == []


@pytest.mark.parametrize("body", [b'{"clientId":"c","mqSet":[]}', b'{"consumerGroup":"g"}'])
async def test_a_lock_without_client_or_group_is_refused(broker: LocalBroker, body: bytes) -> None:
    with pytest.raises(FieldError, match="is missing"):
        broker.ask(LockQueues(body=body))
    with pytest.raises(FieldError, match="is missing"):
        broker.ask(UnlockQueues(body=body))


async def test_a_lock_of_more_queues_than_a_topic_may_have_is_refused(broker: LocalBroker) -> None:
    queues = [MessageQueue("o", "b", number) for number in range(QUEUES_MAX + 1)]
    with pytest.raises(FieldError, match="16385 queues: 16384 are allowed"):
        broker.ask(LockQueues(body=body("c1", queues)))


def play(broker: LocalBroker, **fields: Any) -> None:
    """Give a broker another role."""
    broker.replication.role.change(Role(**fields))


async def test_a_replica_grants_no_locks_beside_its_master(broker: LocalBroker) -> None:
    assert locked(broker, broker.peer, "c1", QUEUES) == QUEUES
    play(broker, role=BrokerRole.SLAVE, broker_id=1)
    assert locked(broker, broker.peer, "c1", QUEUES) == []


async def test_a_replica_votes_for_another_broker_of_its_group(broker: LocalBroker) -> None:
    play(broker, role=BrokerRole.SLAVE, broker_id=1)
    text = LockBody(consumer_group="billing", client_id="c1", mq_set=QUEUES, only_this_broker=True)
    reply = broker.ask(LockQueues(body=codec.dumps(text)))
    assert codec.loads(reply.body, LockedQueues).lock_ok_mq_set == QUEUES


async def test_a_master_without_a_lease_keeps_locks_and_grants_none(broker: LocalBroker) -> None:
    assert locked(broker, broker.peer, "c1", QUEUES) == QUEUES
    play(broker, is_fenced=True)
    with pytest.raises(CallRefused, match="another broker may lead by now"):
        locked(broker, broker.peer, "c2", QUEUES)
    play(broker)
    assert locked(broker, broker.peer, "c1", QUEUES) == QUEUES
