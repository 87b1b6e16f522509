"""Sends through the proxy, as consumers of both protocols see them."""

from typing import Any

import pytest
from tests.proxy.conftest import User, consumer_settings, message_of, stored

from roquet.admin import topics
from roquet.admin.client import AdminClient
from roquet.admin.topics import TopicSettings
from roquet.client import ClientConfig
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.proxy.proxy import Proxy
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster


async def test_a_remoting_consumer_gets_all_parts_of_a_message(
    running: Cluster, proxy: Proxy
) -> None:
    system = {"tag": "paid", "keys": ["k1", "k2"], "message_id": "01AB", "trace_context": "tc"}
    answer = await User(proxy).send("NORM", b"hello", properties={"who": "me"}, **system)
    assert answer.status.code == pb.OK
    (message,) = await stored(running, "NORM")
    assert (message.body, message.tag, message.keys) == (b"hello", "paid", ("k1", "k2"))
    assert message.message_id == "01AB"
    assert message.properties["who"] == "me"
    assert message.properties["__BORNHOST"] == "10.0.0.7"


async def test_messages_of_one_group_share_a_queue(proxy: Proxy) -> None:
    user = User(proxy)
    answers = [await user.send("FIFOT", message_group="g1") for _ in range(5)]
    assert [answer.entries[0].offset for answer in answers] == [0, 1, 2, 3, 4]


async def test_a_batch_has_an_entry_for_each_message(proxy: Proxy) -> None:
    messages = [message_of("NORM", message_id=f"ID{number}") for number in range(3)]
    request = service.SendMessageRequest(messages=messages)
    answer = await User(proxy).call("SendMessage", request)
    assert [entry.message_id for entry in answer.entries] == ["ID0", "ID1", "ID2"]
    assert {entry.status.code for entry in answer.entries} == {pb.OK}


async def test_a_delayed_message_comes_in_its_time_and_a_recalled_one_never(proxy: Proxy) -> None:
    user, clock = User(proxy), this_loop().clock
    async with user.telemetry(consumer_settings(topic="DELAYT")):
        kept = await user.send("DELAYT", b"kept", deliver_ms=clock.now_ms() + 30_000)
        recalled = await user.send("DELAYT", b"recalled", deliver_ms=clock.now_ms() + 30_000)
        assert kept.entries[0].recall_handle
        request = service.RecallMessageRequest(
            topic=pb.Resource(name="DELAYT"), recall_handle=recalled.entries[0].recall_handle
        )
        assert (await user.call("RecallMessage", request)).status.code == pb.OK
        sent_ms = clock.now_ms()
        found: list[pb.Message] = []
        while not found:
            found = await user.receive(topic="DELAYT")
        assert [message.body for message in found] == [b"kept"]
        assert 29_000 <= clock.now_ms() - sent_ms <= 33_000
        await user.ack(*found, topic="DELAYT")
        assert await user.receive(topic="DELAYT", timeout_s=60) == []


async def test_a_batch_with_an_illegal_message_stores_none(running: Cluster, proxy: Proxy) -> None:
    messages = [message_of("NORM", message_id="ID0"), message_of("NORM", b"", message_id="ID1")]
    request = service.SendMessageRequest(messages=messages)
    answer = await User(proxy).call("SendMessage", request)
    assert answer.status.code == pb.MESSAGE_BODY_EMPTY
    assert await stored(running, "NORM") == []


async def test_a_message_that_cannot_be_stored_leaves_the_others_their_results(
    proxy: Proxy,
) -> None:
    messages = [
        message_of("NORM", message_id="ID0"),
        message_of("NORM", message_id="ID1", trace_context="t" * 40_000),
    ]
    answer = await User(proxy).call("SendMessage", service.SendMessageRequest(messages=messages))
    assert answer.status.code == pb.MULTIPLE_RESULTS
    assert [entry.status.code == pb.OK for entry in answer.entries] == [True, False]


@pytest.mark.parametrize("field", ["born_timestamp", "delivery_timestamp"])
async def test_a_time_that_is_none_is_refused(proxy: Proxy, field: str) -> None:
    message = message_of("NORM")
    getattr(message.system_properties, field).seconds = 2**63 - 1
    answer = await User(proxy).call("SendMessage", service.SendMessageRequest(messages=[message]))
    assert answer.status.code in (pb.BAD_REQUEST, pb.ILLEGAL_DELIVERY_TIME)


async def test_a_delivery_time_before_the_epoch_is_over(proxy: Proxy) -> None:
    answer = await User(proxy).send("DELAYT", deliver_ms=-1_000)
    assert answer.status.code == pb.OK


@pytest.mark.parametrize(
    "fields", [{"message_id": "a\x01b"}, {"born_host": "x\x02TRAN_MSG\x01true"}]
)
async def test_separators_of_properties_are_refused(proxy: Proxy, fields: dict[str, Any]) -> None:
    answer = await User(proxy).send("NORM", **fields)
    assert answer.status.code in (pb.ILLEGAL_MESSAGE_ID, pb.BAD_REQUEST)


async def test_a_topic_that_nobody_may_write_to_refuses_at_once_and_says_so(
    running: Cluster, proxy: Proxy
) -> None:
    user, clock = User(proxy), this_loop().clock
    async with AdminClient(running.namesrv_addr, ClientConfig(clock=clock)) as admin:
        await topics.update(admin, "NORM", TopicSettings(permission=4))
        begun_ms = clock.now_ms()
        answer = await user.send("NORM")
        assert answer.status.code == pb.FORBIDDEN
        assert "topic NORM has no queue that may be written to" in answer.status.message
        assert clock.now_ms() - begun_ms < 100
        await topics.update(admin, "NORM", TopicSettings(permission=6))
    assert (await user.send("NORM")).status.code == pb.OK
