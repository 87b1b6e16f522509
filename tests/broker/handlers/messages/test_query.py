import asyncio
from typing import Any

import pytest
from tests.broker.conftest import LocalBroker, refuses

from roquet.broker.handlers.messages import query
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


def bodies(broker: LocalBroker, call: QueryByKey) -> list[bytes]:
    reply = broker.ask(call)
    return [record.body for record in decode_many(reply.body)]


async def tagged(broker: LocalBroker, tag: str, **fields: Any) -> list[bytes]:
    reply = await broker.ask(ask(tag, index_type="T", **fields))
    return [record.body for record in decode_many(reply.body)]


async def test_messages_are_found_by_each_of_their_keys(broker: LocalBroker) -> None:
    broker.send(b"one", properties="KEYS\x01k1 k2\x02")
    broker.send(b"two", properties="KEYS\x01k2\x02")
    assert bodies(broker, ask("k1")) == [b"one"]
    assert sorted(bodies(broker, ask("k2"))) == [b"one", b"two"]
    assert bodies(broker, ask("k2", topic="other")) == []


async def test_a_message_is_found_by_its_unique_key(broker: LocalBroker) -> None:
    reply = broker.send(b"one")
    assert bodies(broker, ask(reply.transaction_id, max_num=0, unique_key=True)) == [b"one"]


async def test_a_query_reports_the_position_of_the_index(broker: LocalBroker) -> None:
    broker.send(properties="KEYS\x01k1\x02")
    reply = broker.ask(ask("k1"))
    assert (reply.code, reply.index_last_update_phyoffset) == (ResponseCode.SUCCESS, 0)
    assert reply.index_last_update_timestamp > 0
    reply = broker.ask(ask("unknown"))
    assert (reply.code, reply.body) == (ResponseCode.QUERY_NOT_FOUND, b"")
    assert reply.remark == "can not find message, maybe time range not correct"
    assert (reply.index_last_update_phyoffset, reply.index_last_update_timestamp) == (0, 0)


async def test_a_query_returns_at_most_the_requested_count(broker: LocalBroker) -> None:
    for _ in range(5):
        broker.send(properties="KEYS\x01same\x02")
    assert len(bodies(broker, ask("same", max_num=2))) == 2
    assert len(bodies(broker, ask("same", max_num=10**9))) == 5


async def test_a_query_for_zero_messages_finds_none(broker: LocalBroker) -> None:
    broker.send(properties="KEYS\x01same\x02")
    assert bodies(broker, ask("same", max_num=0)) == []
    with refuses(ResponseCode.SYSTEM_ERROR, "-3 messages"):
        broker.ask(ask("same", max_num=-3))


async def test_messages_are_found_by_their_tag(broker: LocalBroker) -> None:
    for number, tag in enumerate(["Aa", "BB", "Aa", "Aa"]):  # two tags of one hash
        text = f"TAGS\x01{tag}\x02"
        broker.send(b"%d" % number, queue_id=number % 2, properties=text)
    assert await tagged(broker, "Aa") == [b"0", b"2", b"3"]
    assert await tagged(broker, "Aa", max_num=2) == [b"2", b"3"]
    assert await tagged(broker, "Aa", end_timestamp=1) == []
    assert await tagged(broker, "Aa", topic="other") == []
    assert (await broker.ask(ask("BB", index_type="T"))).index_last_update_phyoffset > 0


async def test_other_tasks_run_during_a_search_by_tag(broker: LocalBroker) -> None:
    for _ in range(40):
        broker.send(properties="TAGS\x01Aa\x02")
    looking = asyncio.ensure_future(tagged(broker, "Aa", end_timestamp=1))
    turns = 0
    while not looking.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 10
    assert looking.result() == []


@pytest.mark.parametrize("fields", [{}, {"index_type": "T"}], ids=["key", "tag"])
async def test_an_answer_holds_no_more_than_a_frame_does(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    monkeypatch.setattr(query, "BYTES_MAX", 1_500)
    for number in range(5):
        body = b"%d" % number * 1_000
        broker.send(body, properties="KEYS\x01k\x02TAGS\x01k\x02")
    reply = broker.ask(ask("k", **fields))
    if asyncio.iscoroutine(reply):
        reply = await reply
    assert [record.body[:1] for record in decode_many(reply.body)] == [b"3", b"4"]


async def test_a_tag_is_searched_among_the_newest_messages(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "TAG_LOOK_COUNT", 3)
    monkeypatch.setattr(query, "LOOK_COUNT", 2)
    for number in range(5):
        broker.send(b"%d" % number, properties="TAGS\x01Aa\x02")
    assert await tagged(broker, "Aa") == [b"2", b"3", b"4"]


@pytest.mark.parametrize("kind", ["K", "U", "?"])
async def test_other_kinds_of_index_are_the_one_there_is(broker: LocalBroker, kind: str) -> None:
    broker.send(b"one", properties="KEYS\x01k1\x02")
    assert bodies(broker, ask("k1", index_type=kind, last_key="x")) == [b"one"]


async def test_a_message_is_found_by_its_position(broker: LocalBroker) -> None:
    broker.send(b"one")
    broker.send(b"two")
    position = broker.log.store.end_position // 2
    assert decode(broker.ask(ViewMessage(offset=position)).body).body == b"two"


async def test_a_message_that_is_hidden_yet_is_shown_to_replicas_alone(broker: LocalBroker) -> None:
    broker.send(b"one")
    broker.log.store.set_confirmed(0)
    with pytest.raises(CallRefused, match="can not find message"):
        broker.ask(ViewMessage(offset=0))
    assert decode(broker.ask(ViewMessage(offset=0, unconfirmed=True)).body).body == b"one"


@pytest.mark.parametrize("position", [-1, 1, 10**12])
async def test_a_position_without_a_message_is_refused(broker: LocalBroker, position: int) -> None:
    broker.send()
    with refuses(ResponseCode.SYSTEM_ERROR, "can not find message by the offset"):
        broker.ask(ViewMessage(offset=position))


async def test_a_query_finds_as_many_messages_as_with_apaches_broker(broker: LocalBroker) -> None:
    for number in range(70):
        broker.send(b"%d" % number, properties="KEYS\x01k\x02TAGS\x01t\x02")
    newest = [b"%d" % number for number in range(6, 70)]
    assert sorted(bodies(broker, ask("k", max_num=1_024))) == sorted(newest)
    assert await tagged(broker, "t", max_num=1_024) == newest
    broker.configure(maxMsgsNumBatch="2")
    assert sorted(bodies(broker, ask("k", max_num=1_024))) == [b"68", b"69"]


async def test_a_half_message_is_found_by_its_position_alone(broker: LocalBroker) -> None:
    text = "KEYS\x01k\x02UNIQ_KEY\x01u\x02TRAN_MSG\x01true\x02"
    broker.send(b"half", properties=text, sys_flag=4)
    call = ask("k", topic=names.HALF_TOPIC)
    with refuses(ResponseCode.NO_PERMISSION, "read_internal_topics=true"):
        broker.ask(call)
    assert bodies(broker, ask("k")) == []
    assert decode(broker.ask(ViewMessage(offset=0)).body).body == b"half"
    broker.configure(read_internal_topics="true")
    assert bodies(broker, call) == [b"half"]


async def test_a_query_waits_for_keys_of_messages_in_front_of_its_own(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.store.key_index.dispatch.KEYS_MAX", 1)
    monkeypatch.setattr("roquet.store.key_index.dispatch.HASH_COUNT", 1)
    for n in range(20):
        broker.send(f"{n}".encode(), properties=f"KEYS\x01k{n}\x02")
    later = broker.ask(ask("k19"))
    assert [record.body for record in decode_many((await later).body)] == [b"19"]


async def test_a_key_is_looked_up_by_page_also_within_a_millisecond(broker: LocalBroker) -> None:
    for number in range(5):
        broker.send(b"%d" % number, properties="KEYS\x01same\x02")
    seen, last_key = [], None
    while True:
        reply = broker.ask(ask("same", max_num=2, last_key=last_key))
        if not reply.body:
            break
        page = list(decode_many(reply.body))
        seen.append([record.body for record in page])
        last_key = str(page[0].position)
    assert seen == [[b"3", b"4"], [b"1", b"2"], [b"0"]]


@pytest.mark.parametrize("last_key", ["x", "-1", "1" * 40, "²", ""])
async def test_a_page_key_of_another_index_is_ignored(broker: LocalBroker, last_key: str) -> None:
    broker.send(b"one", properties="KEYS\x01k1\x02")
    assert bodies(broker, ask("k1", last_key=last_key)) == [b"one"]
