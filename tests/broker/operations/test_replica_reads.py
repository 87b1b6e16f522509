import asyncio
from typing import Any

import msgspec
import pytest
from tests.broker.conftest import FakePeer, MakeSend
from tests.broker.handlers.messages.test_pull import ask

from roquet.broker.broker import Broker
from roquet.broker.handlers.messages.pull import PullHandler
from roquet.broker.handlers.messages.send import SendHandler
from roquet.broker.replication.role import Role
from roquet.model.topic import SubscriptionGroup, TopicConfig
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.wire.calls.pull import Pull, PullReply
from roquet.wire.codes import ResponseCode

REPLICA = Role(role=BrokerRole.SLAVE, broker_id=1, master="127.0.0.1:10911")
ALONE = Role(role=BrokerRole.SLAVE, broker_id=1)

SUSPENDED: dict[str, Any] = {"sys_flag": 4 | 2, "suspend_timeout_millis": 20}


async def pulled(broker: Broker, call: Pull, peer: FakePeer) -> PullReply:
    reply: Any = broker.bind(PullHandler.pull)(call, peer)
    if not isinstance(reply, PullReply):
        reply = await reply
    assert isinstance(reply, PullReply)
    return reply


@pytest.fixture
def filled(broker: Broker, peer: FakePeer, message: MakeSend) -> Broker:
    """A broker with ten messages, of which a slow group is told to read elsewhere."""
    for number in range(10):
        broker.bind(SendHandler.send)(message(b"%d" % number), peer)
    group = SubscriptionGroup(group_name="billing", which_broker_when_consume_slowly=2)
    broker.tables.groups.put(group, 0)
    return broker


def change(broker: Broker, **settings: str) -> None:
    broker.control.settings.change(settings, 0)


async def test_a_master_sends_a_slow_reader_to_the_broker_that_its_group_names(
    filled: Broker, peer: FakePeer
) -> None:
    small = {"accessMessageInMemoryMaxRatio": "1"}
    assert (await pulled(filled, ask(0), peer)).suggest_which_broker_id == 0
    change(filled, slaveReadEnable="true")
    assert (await pulled(filled, ask(0), peer)).suggest_which_broker_id == 0
    change(filled, **small)
    msgspec.structs.force_setattr(filled.log, "memory", 100)
    reply = await pulled(filled, ask(0, max_msg_nums=1), peer)
    assert (reply.code, reply.suggest_which_broker_id) == (0, 2)
    assert (await pulled(filled, ask(10), peer)).suggest_which_broker_id == 0


async def test_a_pull_that_is_held_is_answered_with_a_suggestion_too(
    filled: Broker, peer: FakePeer
) -> None:
    change(filled, slaveReadEnable="true")
    filled.tables.groups.put(SubscriptionGroup(group_name="billing", broker_id=3), 0)
    reply = await pulled(filled, ask(10, **SUSPENDED), peer)
    assert (reply.code, reply.suggest_which_broker_id) == (ResponseCode.PULL_NOT_FOUND, 3)


@pytest.mark.parametrize("offset", [0, 9, 10, 99])
async def test_a_replica_sends_a_reader_that_has_caught_up_back_to_the_master(
    filled: Broker, peer: FakePeer, offset: int
) -> None:
    change(filled, slaveReadEnable="true")
    filled.replication.role.change(REPLICA)
    async with asyncio.timeout(2):
        reply = await pulled(filled, ask(offset, sys_flag=6), peer)
    found = offset < 10
    assert reply.code == (0 if found else ResponseCode.PULL_RETRY_IMMEDIATELY)
    assert reply.suggest_which_broker_id == 0
    assert reply.next_begin_offset == (10 if found else offset), "a wrong offset stays"


async def test_a_replica_whose_master_is_away_holds_a_pull(filled: Broker, peer: FakePeer) -> None:
    filled.replication.role.change(ALONE)
    reply = await pulled(filled, ask(10, **SUSPENDED), peer)
    assert reply.code == ResponseCode.PULL_NOT_FOUND


async def test_a_replica_corrects_an_offset_only_if_it_may(filled: Broker, peer: FakePeer) -> None:
    filled.replication.role.change(ALONE)
    reply = await pulled(filled, ask(99), peer)
    assert (reply.code, reply.next_begin_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 99)
    change(filled, offsetCheckInSlave="true")
    reply = await pulled(filled, ask(99), peer)
    assert (reply.code, reply.next_begin_offset) == (ResponseCode.PULL_OFFSET_MOVED, 0)


async def test_a_new_master_corrects_no_offset_before_its_queues_are_built(
    filled: Broker, peer: FakePeer
) -> None:
    filled.control.settings.change({"slaveReadEnable": "true"}, 0)
    filled.replication.role.change(REPLICA)
    filled.replication.role.change(Role())
    reply = await pulled(filled, ask(99), peer)
    assert (reply.code, reply.next_begin_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 99)
    filled.replication.role.note_taken_over()
    assert (await pulled(filled, ask(99), peer)).code == ResponseCode.PULL_OFFSET_MOVED


async def test_a_refused_pull_stays_refused_at_a_replica(filled: Broker, peer: FakePeer) -> None:
    filled.replication.role.change(REPLICA)
    filled.tables.topics.put(TopicConfig(topic_name="orders", perm=2), 0)
    reply = await pulled(filled, ask(0), peer)
    assert (reply.code, reply.forbidden_type) == (ResponseCode.NO_PERMISSION, 3)
