import asyncio
from typing import Any

import msgspec
import pytest
from tests.broker.conftest import FakePeer, MakeSend, NewPeer

from roquet.broker.broker import Broker
from roquet.broker.handlers.groups.offset import OffsetHandler
from roquet.broker.handlers.messages.send import SendHandler
from roquet.broker.operations.topic_deletion import TopicDeletion
from roquet.broker.replication.role import Role
from roquet.model.errors import CallRefused
from roquet.model.subscription import ConsumerData, HeartbeatData
from roquet.model.topic import SubscriptionGroup, TopicConfig
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.wire.call import Reply
from roquet.wire.calls.offset import (
    EarliestTime,
    MaxOffset,
    MinOffset,
    OffsetByTime,
    OffsetReply,
    QueryOffset,
    UpdateOffset,
)
from roquet.wire.codes import ResponseCode


def commit(broker: Broker, peer: FakePeer, **fields: Any) -> None:
    arguments = {
        "consumer_group": "billing",
        "topic": "orders",
        "queue_id": 0,
        "commit_offset": 5,
        **fields,
    }
    broker.bind(OffsetHandler.update)(UpdateOffset(**arguments), peer)


def ask(**fields: Any) -> QueryOffset:
    return QueryOffset(**{"consumer_group": "billing", "topic": "orders", "queue_id": 0, **fields})


def progress(broker: Broker, peer: FakePeer, **fields: Any) -> int:
    answer = broker.bind(OffsetHandler.query)(ask(**fields), peer)
    assert isinstance(answer, OffsetReply), "nothing to wait for"
    return answer.offset


@pytest.fixture
def known(broker: Broker, peer: FakePeer, message: MakeSend) -> None:
    """A topic with one message, and a group."""
    broker.bind(SendHandler.send)(message(), peer)
    broker.tables.groups.find("billing", 0)


@pytest.mark.usefixtures("known")
async def test_a_commit_is_what_a_query_answers(broker: Broker, peer: FakePeer) -> None:
    commit(broker, peer, commit_offset=1)
    assert progress(broker, peer) == 1
    commit(broker, peer, commit_offset=0)
    assert progress(broker, peer) == 0


@pytest.mark.usefixtures("known")
async def test_a_commit_beyond_the_end_is_not_noted_so_that_what_is_stored_there_comes(
    broker: Broker, peer: FakePeer
) -> None:
    commit(broker, peer, commit_offset=1)
    reply = broker.bind(OffsetHandler.update)(
        UpdateOffset(consumer_group="billing", topic="orders", queue_id=0, commit_offset=2),
        peer,
    )
    assert (reply.code, "beyond the queue's end" in (reply.remark or "")) == (0, True)
    assert progress(broker, peer) == 1


@pytest.mark.usefixtures("known")
async def test_a_new_group_begins_a_young_queue_at_zero(broker: Broker, peer: FakePeer) -> None:
    assert progress(broker, peer) == 0
    assert progress(broker, peer, topic="unheard_of") == 0


@pytest.mark.usefixtures("known")
async def test_a_client_that_asks_for_no_default_gets_no_offset(
    broker: Broker, peer: FakePeer
) -> None:
    with pytest.raises(CallRefused) as refused:
        broker.bind(OffsetHandler.query)(ask(set_zero_if_not_found=False), peer)
    assert refused.value.code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.usefixtures("known")
async def test_a_new_group_has_no_progress_in_a_queue_that_left_the_memory(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    broker.bind(SendHandler.send)(message(bytes(1000)), peer)
    small = msgspec.structs.replace(broker, log=msgspec.structs.replace(broker.log, memory=100))
    with pytest.raises(CallRefused) as refused:
        small.bind(OffsetHandler.query)(ask(), peer)
    assert refused.value.code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"consumer_group": "unknown"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": -1}, ResponseCode.INVALID_PARAMETER),
        ({"commit_offset": -1}, ResponseCode.INVALID_PARAMETER),
        ({"commit_offset": 2**63}, ResponseCode.INVALID_PARAMETER),
    ],
)
@pytest.mark.usefixtures("known")
async def test_a_commit_that_cannot_be_is_refused(
    broker: Broker, peer: FakePeer, fields: dict[str, Any], code: int
) -> None:
    with pytest.raises(CallRefused) as refused:
        commit(broker, peer, **fields)
    assert refused.value.code == code


async def test_a_queue_says_where_it_begins_and_ends(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    for _ in range(3):
        broker.bind(SendHandler.send)(message(), peer)
    assert (
        broker.bind(OffsetHandler.maximum)(MaxOffset(topic="orders", queue_id=0), peer).offset == 3
    )
    assert (
        broker.bind(OffsetHandler.minimum)(MinOffset(topic="orders", queue_id=0), peer).offset == 0
    )
    assert (
        broker.bind(OffsetHandler.maximum)(MaxOffset(topic="orders", queue_id=77), peer).offset == 0
    )
    assert (
        broker.bind(OffsetHandler.maximum)(MaxOffset(topic="unknown", queue_id=-1), peer).offset
        == 0
    )


async def test_a_time_leads_to_an_offset(broker: Broker, peer: FakePeer, message: MakeSend) -> None:
    broker.bind(SendHandler.send)(message(), peer)
    stored_ms = broker.bind(OffsetHandler.earliest_time)(
        EarliestTime(topic="orders", queue_id=0), peer
    ).timestamp

    def at(ms: int, boundary: str | None = None) -> int:
        call = OffsetByTime(topic="orders", queue_id=0, timestamp=ms, boundary_type=boundary)
        return broker.bind(OffsetHandler.by_time)(call, peer).offset

    assert at(stored_ms) == 0
    assert at(stored_ms - 1000) == 0
    assert at(stored_ms + 1000) == broker.log.store.offset_by_time("orders", 0, stored_ms + 1000)
    assert at(stored_ms + 1000, "UPPER") == broker.log.store.offset_by_time(
        "orders", 0, stored_ms + 1000, upper=True
    )


async def test_an_empty_queue_has_no_earliest_time(broker: Broker, peer: FakePeer) -> None:
    call = EarliestTime(topic="orders", queue_id=0)
    assert broker.bind(OffsetHandler.earliest_time)(call, peer).timestamp == -1


@pytest.mark.usefixtures("known")
async def test_a_new_owner_of_a_queue_waits_for_the_former_owners_commit(
    broker: Broker, new_peer: NewPeer
) -> None:
    peers = {}
    for member in ("c1", "c2"):
        peers[member] = new_peer()
        data = [ConsumerData(group_name="billing")]
        broker.tables.clients.beat(
            peers[member], HeartbeatData(client_id=member, consumer_data_set=data)
        )
        if member == "c1":
            assert progress(broker, peers["c1"]) == 0
    broker.coordination.notify(["billing"])
    with pytest.raises(CallRefused):  # it asks for what is stored, and takes nothing over
        broker.bind(OffsetHandler.query)(ask(set_zero_if_not_found=False), peers["c2"])
    taking = broker.bind(OffsetHandler.query)(ask(), peers["c2"])
    assert not isinstance(taking, Reply)
    assert taking is not None
    task = asyncio.ensure_future(taking)
    await asyncio.sleep(0)
    commit(broker, peers["c1"], commit_offset=1)
    reply = await task
    assert isinstance(reply, OffsetReply)
    assert reply.offset == 1


@pytest.mark.usefixtures("known")
async def test_a_new_owner_does_not_wait_for_a_queue_read_to_its_end(
    broker: Broker, new_peer: NewPeer
) -> None:
    first, second = new_peer(), new_peer()
    for member, peer in (("c1", first), ("c2", second)):
        data = [ConsumerData(group_name="billing")]
        broker.tables.clients.beat(peer, HeartbeatData(client_id=member, consumer_data_set=data))
    progress(broker, first)
    commit(broker, first, commit_offset=1)
    broker.coordination.notify(["billing"])
    assert progress(broker, second) == 1


@pytest.mark.usefixtures("known")
async def test_an_offset_says_of_which_topic_it_is(broker: Broker, peer: FakePeer) -> None:
    now = broker.tables.topics.ids["orders"]
    replies: list[Any] = [
        broker.bind(OffsetHandler.query)(ask(), peer),
        broker.bind(OffsetHandler.minimum)(MinOffset(topic="orders", queue_id=0), peer),
        broker.bind(OffsetHandler.maximum)(MaxOffset(topic="orders", queue_id=0), peer),
        broker.bind(OffsetHandler.by_time)(
            OffsetByTime(topic="orders", queue_id=0, timestamp=0), peer
        ),
    ]
    assert [reply.topic_id for reply in replies] == [now] * 4


@pytest.mark.usefixtures("known")
async def test_a_late_commit_does_not_count_for_a_recreated_topic(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    before = broker.tables.topics.ids["orders"]
    broker.make(TopicDeletion).delete(["orders"])
    broker.bind(SendHandler.send)(message(), peer)
    with pytest.raises(CallRefused, match="deleted and made anew"):
        commit(broker, peer, commit_offset=1, topic_id=before)
    assert broker.tables.offsets.get("billing", "orders", 0) is None
    commit(broker, peer, commit_offset=1, topic_id=broker.tables.topics.ids["orders"])
    assert broker.tables.offsets.get("billing", "orders", 0) == 1


@pytest.mark.usefixtures("known")
async def test_a_late_commit_of_an_apache_member_is_ignored_until_it_queries(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    """It knows no topic ids; its connection tells that it was there before."""
    broker.tables.former_readers.add("orders", [peer], ["billing"])
    commit(broker, peer, commit_offset=1)
    assert broker.tables.offsets.get("billing", "orders", 0) is None
    assert progress(broker, peer) == 0
    commit(broker, peer, commit_offset=1)
    assert broker.tables.offsets.get("billing", "orders", 0) == 1


@pytest.mark.usefixtures("known")
async def test_progress_in_a_queue_that_no_topic_can_have_is_refused(
    broker: Broker, peer: FakePeer
) -> None:
    with pytest.raises(CallRefused, match="no topic has more than 16384 queues"):
        commit(broker, peer, commit_offset=1, queue_id=16_384)
    assert broker.tables.offsets.queues("billing", "orders") == {}


async def test_a_replica_notes_progress_beyond_its_own_end(broker: Broker, peer: FakePeer) -> None:
    broker.tables.topics.put(TopicConfig(topic_name="orders"), 0)
    broker.tables.groups.put(SubscriptionGroup(group_name="billing"), 0)
    commit(broker, peer, commit_offset=5)
    assert broker.tables.offsets.get("billing", "orders", 0) is None
    broker.replication.role.change(Role(role=BrokerRole.SLAVE, broker_id=1))
    commit(broker, peer, commit_offset=5)
    assert broker.tables.offsets.get("billing", "orders", 0) == 5
