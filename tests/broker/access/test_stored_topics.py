"""The topic for which a stored message was sent."""

from tests.broker.conftest import FakePeer, MakeSend

from roquet.broker.access.stored_topics import topic_at_position
from roquet.broker.broker import Broker
from roquet.broker.handlers.messages.send import send


async def test_a_message_is_of_the_topic_that_its_sender_named(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    store, bound = broker.log.store, broker.bind(send)
    starts = []
    for call in (
        message(b"plain"),
        message(b"half", properties="TRAN_MSG\x01true\x02PGROUP\x01pg\x02", sys_flag=4),
        message(b"late", properties="DELAY\x013\x02"),
    ):
        starts.append(store.end_position)
        bound(call, peer)
    assert [topic_at_position(store, start) for start in starts] == ["orders"] * 3


async def test_no_message_is_of_no_topic(broker: Broker) -> None:
    assert topic_at_position(broker.log.store, 0) is None
    assert topic_at_position(broker.log.store, 12_345) is None
