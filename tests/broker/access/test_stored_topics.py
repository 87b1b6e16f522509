"""The topic for which a stored message was sent."""

import struct
from typing import Final

from tests.broker.conftest import LocalBroker, make_send, not_none

from roquet.broker.access.stored_topics import topic_at_position
from roquet.store.store import Draft

POSITION_AT: Final = 28
"""Offset of a record's own position in it."""

OVERHEAD: Final = 88
"""Bytes of a record in front of its body, with IPv4 addresses."""


async def test_a_message_is_of_the_topic_that_its_sender_named(broker: LocalBroker) -> None:
    store = broker.log.store
    starts = []
    for call in (
        make_send(b"plain"),
        make_send(b"half", properties="TRAN_MSG\x01true\x02PGROUP\x01pg\x02", sys_flag=4),
        make_send(b"late", properties="DELAY\x013\x02"),
    ):
        starts.append(store.end_position)
        broker.ask(call)
    assert [topic_at_position(store, start) for start in starts] == ["orders"] * 3


async def test_a_failed_message_is_of_those_that_popped_it(broker: LocalBroker) -> None:
    store, origin = broker.log.store, b"RETRY_TOPIC\x01eu_orders\x02"
    starts = []
    for topic, properties in (
        ("%RETRY%pay_eu_orders", origin),
        ("%RETRY%pay+eu_orders", origin),
        ("%RETRY%pay_eu_orders", b""),
        ("%RETRY%pay", origin),
    ):
        starts.append(store.end_position)
        store.append(Draft(topic, 0, b"x", properties), 5)
    assert [topic_at_position(store, start) for start in starts] == [
        "%RETRY%pay+eu_orders", "%RETRY%pay+eu_orders", "%RETRY%pay_eu_orders", "%RETRY%pay",
    ]  # fmt: skip


async def test_no_message_is_of_no_topic(broker: LocalBroker) -> None:
    assert topic_at_position(broker.log.store, 0) is None
    assert topic_at_position(broker.log.store, 12_345) is None


async def test_bytes_of_a_body_that_look_like_a_message_have_no_topic(broker: LocalBroker) -> None:
    store = broker.log.store
    broker.send(b"a stranger's")
    first = not_none(store.message_at(0))
    # A record says where it is itself; so a sender has to know where his body will be.
    own = struct.pack(">q", store.end_position + OVERHEAD)
    forged = first[:POSITION_AT] + own + first[POSITION_AT + 8 :]
    begin = store.end_position
    broker.send(forged)
    written = not_none(store.message_at(begin))
    inner = begin + written.index(forged[:POSITION_AT])
    assert inner == begin + OVERHEAD
    assert store.message_at(inner) is not None
    assert topic_at_position(store, inner) == ""
