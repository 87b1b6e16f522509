import asyncio
from typing import Any

import msgspec
import pytest
from tests.broker.conftest import FakePeer, LocalBroker, heartbeat_of, refuses

from roquet.broker.handlers.groups.offset import OffsetHandler
from roquet.broker.operations.topic_deletion import TopicDeletion
from roquet.broker.replication.role import Role
from roquet.model.errors import CallRefused
from roquet.rules.replication.acknowledgement import BrokerRole
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

PLACE = {"consumer_group": "billing", "topic": "orders", "queue_id": 0}


def commit(broker: LocalBroker, peer: FakePeer, **fields: Any) -> Any:
    return broker.ask(UpdateOffset(**{**PLACE, "commit_offset": 5, **fields}), peer)


def ask(**fields: Any) -> QueryOffset:
    return QueryOffset(**{**PLACE, **fields})


def progress(broker: LocalBroker, peer: FakePeer, **fields: Any) -> int:
    answer = broker.ask(ask(**fields), peer)
    assert isinstance(answer, OffsetReply), "nothing to wait for"
    return answer.offset


@pytest.fixture(autouse=True)
def known(broker: LocalBroker) -> None:
    """A topic with one message, and a group."""
    broker.send()
    broker.tables.groups.find("billing", 0)


async def test_a_commit_is_what_a_query_answers(broker: LocalBroker) -> None:
    commit(broker, broker.peer, commit_offset=1)
    assert progress(broker, broker.peer) == 1
    commit(broker, broker.peer, commit_offset=0)
    assert progress(broker, broker.peer) == 0


async def test_a_commit_beyond_the_end_is_not_noted_so_that_what_is_stored_there_comes(
    broker: LocalBroker,
) -> None:
    commit(broker, broker.peer, commit_offset=1)
    reply = commit(broker, broker.peer, commit_offset=2)
    assert (reply.code, "beyond the queue's end" in (reply.remark or "")) == (0, True)
    assert progress(broker, broker.peer) == 1


async def test_a_new_group_begins_a_young_queue_at_zero(broker: LocalBroker) -> None:
    assert progress(broker, broker.peer) == 0
    assert progress(broker, broker.peer, topic="unheard_of") == 0


async def test_a_client_that_asks_for_no_default_gets_no_offset(broker: LocalBroker) -> None:
    with refuses(ResponseCode.QUERY_NOT_FOUND):
        broker.ask(ask(set_zero_if_not_found=False))


async def test_a_new_group_has_no_progress_in_a_queue_that_left_memory(broker: LocalBroker) -> None:
    broker.send(bytes(1000))
    small = msgspec.structs.replace(broker, log=msgspec.structs.replace(broker.log, memory=100))
    with refuses(ResponseCode.QUERY_NOT_FOUND):
        small.bind(OffsetHandler.query)(ask(), broker.peer)


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
async def test_a_commit_that_cannot_be_is_refused(
    broker: LocalBroker, fields: dict[str, Any], code: int
) -> None:
    with refuses(code):
        commit(broker, broker.peer, **fields)


async def test_a_queue_says_where_it_begins_and_ends(broker: LocalBroker) -> None:
    for _ in range(2):
        broker.send()
    assert broker.ask(MaxOffset(topic="orders", queue_id=0)).offset == 3
    assert broker.ask(MinOffset(topic="orders", queue_id=0)).offset == 0
    assert broker.ask(MaxOffset(topic="orders", queue_id=77)).offset == 0
    assert broker.ask(MaxOffset(topic="unknown", queue_id=-1)).offset == 0


async def test_a_time_leads_to_an_offset(broker: LocalBroker) -> None:
    stored_ms = broker.ask(EarliestTime(topic="orders", queue_id=0)).timestamp

    def at(ms: int, boundary: str | None = None) -> int:
        call = OffsetByTime(topic="orders", queue_id=0, timestamp=ms, boundary_type=boundary)
        return int(broker.ask(call).offset)

    assert at(stored_ms) == 0
    assert at(stored_ms - 1000) == 0
    assert at(stored_ms + 1000) == broker.log.store.offset_by_time("orders", 0, stored_ms + 1000)
    last = broker.log.store.offset_by_time("orders", 0, stored_ms + 1000, upper=True)
    assert at(stored_ms + 1000, "UPPER") == last


async def test_an_empty_queue_has_no_earliest_time(broker: LocalBroker) -> None:
    assert broker.ask(EarliestTime(topic="orders", queue_id=1)).timestamp == -1


async def test_a_new_owner_of_a_queue_waits_for_its_formers_commit(broker: LocalBroker) -> None:
    peers = {}
    for member in ("c1", "c2"):
        peers[member] = FakePeer()
        broker.tables.clients.beat(peers[member], heartbeat_of(member))
        if member == "c1":
            assert progress(broker, peers["c1"]) == 0
    broker.coordination.notify(["billing"])
    with pytest.raises(CallRefused):  # it asks for what is stored, and takes nothing over
        broker.ask(ask(set_zero_if_not_found=False), peers["c2"])
    taking = broker.ask(ask(), peers["c2"])
    task = asyncio.ensure_future(taking)
    await asyncio.sleep(0)
    commit(broker, peers["c1"], commit_offset=1)
    assert (await task).offset == 1


async def test_a_new_owner_does_not_wait_for_a_queue_read_to_its_end(broker: LocalBroker) -> None:
    first, second = FakePeer(), FakePeer()
    for member, peer in (("c1", first), ("c2", second)):
        broker.tables.clients.beat(peer, heartbeat_of(member))
    progress(broker, first)
    commit(broker, first, commit_offset=1)
    broker.coordination.notify(["billing"])
    assert progress(broker, second) == 1


async def test_an_offset_says_of_which_topic_it_is(broker: LocalBroker) -> None:
    now = broker.tables.topics.ids["orders"]
    replies: list[Any] = [
        broker.ask(ask()),
        broker.ask(MinOffset(topic="orders", queue_id=0)),
        broker.ask(MaxOffset(topic="orders", queue_id=0)),
        broker.ask(OffsetByTime(topic="orders", queue_id=0, timestamp=0)),
    ]
    assert [reply.topic_id for reply in replies] == [now] * 4


async def test_a_late_commit_does_not_count_for_a_recreated_topic(broker: LocalBroker) -> None:
    before = broker.tables.topics.ids["orders"]
    broker.make(TopicDeletion).delete(["orders"])
    broker.send()
    with pytest.raises(CallRefused, match="deleted and made anew"):
        commit(broker, broker.peer, commit_offset=1, topic_id=before)
    assert broker.tables.offsets.get("billing", "orders", 0) is None
    commit(broker, broker.peer, commit_offset=1, topic_id=broker.tables.topics.ids["orders"])
    assert broker.tables.offsets.get("billing", "orders", 0) == 1


async def test_a_late_commit_of_apaches_is_ignored_until_it_queries(broker: LocalBroker) -> None:
    """It knows no topic ids; its connection tells that it was there before."""
    broker.tables.former_readers.add("orders", [broker.peer], ["billing"])
    commit(broker, broker.peer, commit_offset=1)
    assert broker.tables.offsets.get("billing", "orders", 0) is None
    assert progress(broker, broker.peer) == 0
    commit(broker, broker.peer, commit_offset=1)
    assert broker.tables.offsets.get("billing", "orders", 0) == 1


async def test_progress_in_a_queue_that_no_topic_can_have_is_refused(broker: LocalBroker) -> None:
    with pytest.raises(CallRefused, match="no topic has more than 16384 queues"):
        commit(broker, broker.peer, commit_offset=1, queue_id=16_384)
    assert broker.tables.offsets.queues("billing", "orders") == {}


async def test_a_replica_notes_progress_beyond_its_own_end(broker: LocalBroker) -> None:
    commit(broker, broker.peer, commit_offset=5)
    assert broker.tables.offsets.get("billing", "orders", 0) is None
    broker.replication.role.change(Role(role=BrokerRole.SLAVE, broker_id=1))
    commit(broker, broker.peer, commit_offset=5)
    assert broker.tables.offsets.get("billing", "orders", 0) == 5
