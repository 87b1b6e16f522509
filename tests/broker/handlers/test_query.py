from typing import Any

import pytest

from roquet.broker.broker import Broker
from roquet.broker.handlers import query
from roquet.broker.handlers.send import send
from roquet.model.errors import CallRefused
from roquet.wire.calls.query import QueryByKey, ViewMessage
from roquet.wire.codes import ResponseCode
from roquet.wire.record import decode, decode_many


def ask(key: str, **fields: Any) -> QueryByKey:
    given = {
        "topic": "orders",
        "max_num": 32,
        "begin_timestamp": 0,
        "end_timestamp": 2**62,
        **fields,
    }
    return QueryByKey(key=key, **given)


def bodies(broker: Broker, peer: Any, call: QueryByKey) -> list[bytes]:
    return [record.body for record in decode_many(query.by_key(broker, call, peer).body)]


async def test_messages_are_found_by_each_of_their_keys(
    broker: Broker, peer: Any, message: Any
) -> None:
    send(broker, message(b"one", properties="KEYS\x01k1 k2\x02"), peer)
    send(broker, message(b"two", properties="KEYS\x01k2\x02"), peer)
    assert bodies(broker, peer, ask("k1")) == [b"one"]
    assert sorted(bodies(broker, peer, ask("k2"))) == [b"one", b"two"]
    assert bodies(broker, peer, ask("k2", topic="other")) == []


async def test_a_message_is_found_by_its_unique_key(
    broker: Broker, peer: Any, message: Any
) -> None:
    reply: Any = send(broker, message(b"one"), peer)
    call = ask(reply.transaction_id, max_num=0, unique_key=True)
    assert bodies(broker, peer, call) == [b"one"]


async def test_nothing_found_is_said_with_how_far_the_index_is(
    broker: Broker, peer: Any, message: Any
) -> None:
    send(broker, message(), peer)
    reply = query.by_key(broker, ask("unknown"), peer)
    assert reply.code == ResponseCode.QUERY_NOT_FOUND
    assert (reply.body, reply.index_last_update_phyoffset) == (b"", 0)
    assert reply.index_last_update_timestamp > 0


async def test_no_more_than_asked_for_is_found(broker: Broker, peer: Any, message: Any) -> None:
    for _ in range(5):
        send(broker, message(properties="KEYS\x01same\x02"), peer)
    assert len(bodies(broker, peer, ask("same", max_num=2))) == 2
    assert len(bodies(broker, peer, ask("same", max_num=10**9))) == 5


async def test_a_message_is_found_by_its_position(broker: Broker, peer: Any, message: Any) -> None:
    send(broker, message(b"one"), peer)
    send(broker, message(b"two"), peer)
    position = broker.store.end_position // 2
    reply = query.by_position(broker, ViewMessage(offset=position), peer)
    assert decode(reply.body).body == b"two"


@pytest.mark.parametrize("position", [-1, 1, 10**12])
async def test_a_position_without_a_message_is_refused(
    broker: Broker, peer: Any, message: Any, position: int
) -> None:
    send(broker, message(), peer)
    with pytest.raises(CallRefused, match="can not find message by the offset") as refused:
        query.by_position(broker, ViewMessage(offset=position), peer)
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
