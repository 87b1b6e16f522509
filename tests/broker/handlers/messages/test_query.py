import asyncio
from typing import Any

import pytest
from tests.broker.conftest import FakePeer, MakeSend

from roquet.broker.broker import Broker
from roquet.broker.handlers.messages import query
from roquet.broker.handlers.messages.query import QueryHandler
from roquet.broker.handlers.messages.send import SendHandler
from roquet.model import names
from roquet.model.errors import CallRefused
from roquet.wire.calls.query import QueryByKey, ViewMessage
from roquet.wire.codes import ResponseCode
from roquet.wire.records.record import decode, decode_many


def ask(key: str, **fields: Any) -> QueryByKey:
    arguments = {
        "topic": "orders",
        "max_num": 32,
        "begin_timestamp": 0,
        "end_timestamp": 2**62,
        **fields,
    }
    return QueryByKey(key=key, **arguments)


def bodies(broker: Broker, peer: FakePeer, call: QueryByKey) -> list[bytes]:
    reply: Any = broker.bind(QueryHandler.by_key)(call, peer)
    return [record.body for record in decode_many(reply.body)]


async def tagged(broker: Broker, peer: FakePeer, tag: str, **fields: Any) -> list[bytes]:
    reply: Any = await broker.bind(QueryHandler.by_key)(ask(tag, index_type="T", **fields), peer)  # type: ignore[misc]
    return [record.body for record in decode_many(reply.body)]


async def test_messages_are_found_by_each_of_their_keys(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    broker.bind(SendHandler.send)(message(b"one", properties="KEYS\x01k1 k2\x02"), peer)
    broker.bind(SendHandler.send)(message(b"two", properties="KEYS\x01k2\x02"), peer)
    assert bodies(broker, peer, ask("k1")) == [b"one"]
    assert sorted(bodies(broker, peer, ask("k2"))) == [b"one", b"two"]
    assert bodies(broker, peer, ask("k2", topic="other")) == []


async def test_a_message_is_found_by_its_unique_key(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    reply: Any = broker.bind(SendHandler.send)(message(b"one"), peer)
    call = ask(reply.transaction_id, max_num=0, unique_key=True)
    assert bodies(broker, peer, call) == [b"one"]


async def test_a_query_reports_the_position_of_the_index(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    broker.bind(SendHandler.send)(message(properties="KEYS\x01k1\x02"), peer)
    reply: Any = broker.bind(QueryHandler.by_key)(ask("k1"), peer)
    assert (reply.code, reply.index_last_update_phyoffset) == (ResponseCode.SUCCESS, 0)
    assert reply.index_last_update_timestamp > 0
    reply = broker.bind(QueryHandler.by_key)(ask("unknown"), peer)
    assert (reply.code, reply.body) == (ResponseCode.QUERY_NOT_FOUND, b"")
    assert reply.remark == "can not find message, maybe time range not correct"
    assert (reply.index_last_update_phyoffset, reply.index_last_update_timestamp) == (0, 0)


async def test_a_query_returns_at_most_the_requested_count(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    for _ in range(5):
        broker.bind(SendHandler.send)(message(properties="KEYS\x01same\x02"), peer)
    assert len(bodies(broker, peer, ask("same", max_num=2))) == 2
    assert len(bodies(broker, peer, ask("same", max_num=10**9))) == 5


async def test_a_query_for_zero_messages_finds_none(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    broker.bind(SendHandler.send)(message(properties="KEYS\x01same\x02"), peer)
    assert bodies(broker, peer, ask("same", max_num=0)) == []
    with pytest.raises(CallRefused, match="-3 messages") as refused:
        broker.bind(QueryHandler.by_key)(ask("same", max_num=-3), peer)
    assert refused.value.code == ResponseCode.SYSTEM_ERROR


async def test_messages_are_found_by_their_tag(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    for number, tag in enumerate(["Aa", "BB", "Aa", "Aa"]):  # two tags of one hash
        text = f"TAGS\x01{tag}\x02"
        broker.bind(SendHandler.send)(
            message(b"%d" % number, queue_id=number % 2, properties=text), peer
        )
    assert await tagged(broker, peer, "Aa") == [b"0", b"2", b"3"]
    assert await tagged(broker, peer, "Aa", max_num=2) == [b"2", b"3"]
    assert await tagged(broker, peer, "Aa", end_timestamp=1) == []
    assert await tagged(broker, peer, "Aa", topic="other") == []
    reply: Any = await broker.bind(QueryHandler.by_key)(ask("BB", index_type="T"), peer)  # type: ignore[misc]
    assert reply.index_last_update_phyoffset > 0


async def test_other_tasks_run_during_a_search_by_tag(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    for _ in range(40):
        broker.bind(SendHandler.send)(message(properties="TAGS\x01Aa\x02"), peer)
    looking = asyncio.ensure_future(tagged(broker, peer, "Aa", end_timestamp=1))
    turns = 0
    while not looking.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 10
    assert looking.result() == []


@pytest.mark.parametrize("fields", [{}, {"index_type": "T"}], ids=["key", "tag"])
async def test_an_answer_holds_no_more_than_a_frame_does(
    broker: Broker,
    peer: FakePeer,
    message: MakeSend,
    monkeypatch: pytest.MonkeyPatch,
    fields: dict[str, Any],
) -> None:
    monkeypatch.setattr(query, "BYTES_MAX", 1_500)
    for number in range(5):
        body = b"%d" % number * 1_000
        broker.bind(SendHandler.send)(message(body, properties="KEYS\x01k\x02TAGS\x01k\x02"), peer)
    reply: Any = broker.bind(QueryHandler.by_key)(ask("k", **fields), peer)
    if asyncio.iscoroutine(reply):
        reply = await reply
    assert [record.body[:1] for record in decode_many(reply.body)] == [b"3", b"4"]


async def test_a_tag_is_searched_among_the_newest_messages(
    broker: Broker, peer: FakePeer, message: MakeSend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "TAG_LOOK_COUNT", 3)
    monkeypatch.setattr(query, "LOOK_COUNT", 2)
    for number in range(5):
        broker.bind(SendHandler.send)(message(b"%d" % number, properties="TAGS\x01Aa\x02"), peer)
    assert await tagged(broker, peer, "Aa") == [b"2", b"3", b"4"]


@pytest.mark.parametrize("kind", ["K", "U", "?"])
async def test_other_kinds_of_index_are_the_one_that_there_is(
    broker: Broker, peer: FakePeer, message: MakeSend, kind: str
) -> None:
    broker.bind(SendHandler.send)(message(b"one", properties="KEYS\x01k1\x02"), peer)
    assert bodies(broker, peer, ask("k1", index_type=kind, last_key="x")) == [b"one"]


async def test_a_message_is_found_by_its_position(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    broker.bind(SendHandler.send)(message(b"one"), peer)
    broker.bind(SendHandler.send)(message(b"two"), peer)
    position = broker.log.store.end_position // 2
    reply = broker.bind(QueryHandler.by_position)(ViewMessage(offset=position), peer)
    assert decode(reply.body).body == b"two"


async def test_a_message_that_readers_do_not_see_yet_is_shown_to_replicas_alone(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    broker.bind(SendHandler.send)(message(b"one"), peer)
    broker.log.store.set_confirmed(0)
    with pytest.raises(CallRefused, match="can not find message"):
        broker.bind(QueryHandler.by_position)(ViewMessage(offset=0), peer)
    reply = broker.bind(QueryHandler.by_position)(ViewMessage(offset=0, unconfirmed=True), peer)
    assert decode(reply.body).body == b"one"


@pytest.mark.parametrize("position", [-1, 1, 10**12])
async def test_a_position_without_a_message_is_refused(
    broker: Broker, peer: FakePeer, message: MakeSend, position: int
) -> None:
    broker.bind(SendHandler.send)(message(), peer)
    with pytest.raises(CallRefused, match="can not find message by the offset") as refused:
        broker.bind(QueryHandler.by_position)(ViewMessage(offset=position), peer)
    assert refused.value.code == ResponseCode.SYSTEM_ERROR


async def test_a_query_finds_as_many_messages_as_with_apaches_broker(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    for number in range(70):
        broker.bind(SendHandler.send)(
            message(b"%d" % number, properties="KEYS\x01k\x02TAGS\x01t\x02"), peer
        )
    newest = [b"%d" % number for number in range(6, 70)]
    assert sorted(bodies(broker, peer, ask("k", max_num=1_024))) == sorted(newest)
    assert await tagged(broker, peer, "t", max_num=1_024) == newest
    broker.control.settings.change({"maxMsgsNumBatch": "2"}, broker.control.clock.now_ms())
    assert sorted(bodies(broker, peer, ask("k", max_num=1_024))) == [b"68", b"69"]


async def test_a_half_message_is_not_found_by_its_key_and_shown_by_its_position(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    text = "KEYS\x01k\x02UNIQ_KEY\x01u\x02TRAN_MSG\x01true\x02"
    broker.bind(SendHandler.send)(message(b"half", properties=text, sys_flag=4), peer)
    call = ask("k", topic=names.HALF_TOPIC)
    with pytest.raises(CallRefused, match="read_internal_topics=true") as refused:
        broker.bind(QueryHandler.by_key)(call, peer)
    assert refused.value.code == ResponseCode.NO_PERMISSION
    assert bodies(broker, peer, ask("k")) == []
    shown = broker.bind(QueryHandler.by_position)(ViewMessage(offset=0), peer)
    assert decode(shown.body).body == b"half"
    broker.control.settings.change({"read_internal_topics": "true"}, broker.control.clock.now_ms())
    assert bodies(broker, peer, call) == [b"half"]


async def test_a_query_waits_for_keys_of_messages_in_front_of_its_own(
    broker: Broker, peer: FakePeer, message: MakeSend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.store.key_index.dispatch.KEYS_MAX", 1)
    monkeypatch.setattr("roquet.store.key_index.dispatch.HASH_COUNT", 1)
    for n in range(20):
        broker.bind(SendHandler.send)(
            message(f"{n}".encode(), properties=f"KEYS\x01k{n}\x02"), peer
        )
    later: Any = broker.bind(QueryHandler.by_key)(ask("k19"), peer)
    assert [record.body for record in decode_many((await later).body)] == [b"19"]


async def test_a_key_is_looked_up_page_by_page_also_within_a_millisecond(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    for number in range(5):
        broker.bind(SendHandler.send)(message(b"%d" % number, properties="KEYS\x01same\x02"), peer)
    seen, last_key = [], None
    while True:
        reply: Any = broker.bind(QueryHandler.by_key)(
            ask("same", max_num=2, last_key=last_key), peer
        )
        if not reply.body:
            break
        page = list(decode_many(reply.body))
        seen.append([record.body for record in page])
        last_key = str(page[0].position)
    assert seen == [[b"3", b"4"], [b"1", b"2"], [b"0"]]


@pytest.mark.parametrize("last_key", ["x", "-1", "1" * 40, "²", ""])
async def test_a_page_key_of_another_index_counts_for_none(
    broker: Broker, peer: FakePeer, message: MakeSend, last_key: str
) -> None:
    broker.bind(SendHandler.send)(message(b"one", properties="KEYS\x01k1\x02"), peer)
    assert bodies(broker, peer, ask("k1", last_key=last_key)) == [b"one"]
