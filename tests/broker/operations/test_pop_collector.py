from typing import Any

import msgspec
import pytest
from tests.broker.conftest import FakePeer, MakeSend

from roquet.broker.broker import Broker
from roquet.broker.handlers.messages.send import send
from roquet.broker.operations.pop_collector import PopCollector, PopRequest
from roquet.model.topic import TopicConfig
from roquet.store.store import Draft
from roquet.wire.receipt_handle import decode_receipt_handle
from roquet.wire.records.record import decode_many, to_message


def asked(**fields: Any) -> PopRequest:
    arguments: dict[str, Any] = {
        "group": "g", "topic": "t", "queue_id": -1, "queue_count": 4, "count": 32,
        "invisible_ms": 60_000, "init_mode": 0, "wanted": None, **fields,
    }  # fmt: skip
    return PopRequest(**arguments)


def look(broker: Broker, **fields: Any) -> PopCollector:
    collector = PopCollector(
        broker.log, broker.delivery, broker.tables, broker.control, asked(**fields)
    )
    collector.look()
    return collector


@pytest.fixture
def stored(broker: Broker, peer: FakePeer, message: MakeSend) -> None:
    for n in range(8):
        broker.bind(send)(
            message(b"%d" % n, topic="t", queue_id=n % 4, default_topic_queue_nums=4), peer
        )


def put_again(broker: Broker, body: bytes, properties: bytes = b"KEYS\x01k\x02") -> None:
    """A message waits in the group's retry topic."""
    broker.tables.topics.put(TopicConfig(topic_name="%RETRY%g_t", read_queue_nums=1), 1)
    broker.log.store.append(Draft("%RETRY%g_t", 0, body, properties, reconsume_times=2), 5)


@pytest.mark.usefixtures("stored")
async def test_no_more_is_taken_than_asked_for_and_the_rest_is_counted(broker: Broker) -> None:
    collector = look(broker, count=3)
    assert (collector.count, collector.rest) == (3, 5)
    assert len(broker.delivery.revive.in_flight) == 2, "one checkpoint for each queue"
    assert len(broker.delivery.revive.unconfirmed) == 0, "all is confirmed without replicas"
    assert look(broker).count == 5


@pytest.mark.usefixtures("stored")
async def test_the_retry_topic_fills_up_and_its_messages_bear_the_topics_name(
    broker: Broker,
) -> None:
    put_again(broker, b"again")
    collector = look(broker)
    messages = [to_message(record) for part in collector.parts for record in decode_many(part)]
    (again,) = [message for message in messages if message.reconsume_times]
    assert (again.topic, again.body, len(messages)) == ("t", b"again", 9)
    handle = decode_receipt_handle(again.properties["POP_CK"])
    assert (handle.retry, handle.queue_id, handle.offset) == ("1", 0, 0)
    assert "1 0 0" in collector.offsets
    assert again.properties["KEYS"] == "k"


@pytest.mark.usefixtures("stored")
async def test_some_pops_read_the_retry_topic_first(broker: Broker) -> None:
    first = 0
    for _ in range(200):
        put_again(broker, b"again")
        collector = look(broker, count=1, peek=True)
        first += collector.offsets[0].startswith("1 ")
    assert 15 <= first <= 70


@pytest.mark.usefixtures("stored")
async def test_a_message_without_room_for_a_handle_keeps_its_own_topic(broker: Broker) -> None:
    put_again(broker, b"again", b"KEYS\x01" + b"k" * 32_745 + b"\x02")
    collector = look(broker)
    topics = {record.topic for part in collector.parts for record in decode_many(part)}
    assert topics == {"t", "%RETRY%g_t"}


@pytest.mark.usefixtures("stored")
async def test_a_group_without_progress_begins_where_it_says(broker: Broker) -> None:
    empty = msgspec.structs.replace(broker.log, memory=0)  # nothing is young
    broker = msgspec.structs.replace(broker, log=empty)
    assert look(broker, init_mode=1).count == 0
    assert broker.tables.offsets.get("g", "t", 0) == 2
    assert look(broker, group="h", init_mode=0).count == 8


@pytest.mark.usefixtures("stored")
async def test_progress_that_the_queue_does_not_hold_is_mended(broker: Broker) -> None:
    for queue_id in range(4):
        broker.tables.offsets.commit("g", "t", queue_id, 99)
    assert look(broker).count == 8


@pytest.mark.usefixtures("stored")
async def test_an_ordered_pop_takes_nothing_from_a_queue_that_is_held(broker: Broker) -> None:
    assert look(broker, order=True, attempt="a", queue_id=0, count=1).count == 1
    collector = look(broker, order=True, attempt="b", queue_id=0)
    assert (collector.count, collector.rest) == (0, 2)
    assert collector.blocked_until_ms is not None
    assert not PopCollector(
        broker.log,
        broker.delivery,
        broker.tables,
        broker.control,
        asked(order=True, attempt="b", queue_id=0),
    ).has_any()
    assert PopCollector(
        broker.log, broker.delivery, broker.tables, broker.control, asked(queue_id=1)
    ).has_any()


@pytest.mark.usefixtures("stored")
async def test_remaining_messages_are_reported_to_waiting_pops(broker: Broker) -> None:
    put_again(broker, b"again")
    assert look(broker, queue_id=1, count=1, peek=True).others <= {1, -1}
    assert look(broker, queue_id=1, count=3, peek=True).others == set()
    assert look(broker, count=1, peek=True).others == {-1}
    watching = PopCollector(
        broker.log, broker.delivery, broker.tables, broker.control, asked(queue_id=1)
    )
    assert watching.has_any()
    assert watching.others == {1, -1}
    assert not look(broker).moved
