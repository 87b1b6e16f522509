"""Receives: what a client gets, and what becomes of what it did not get."""

import asyncio

import pytest
from tests.proxy.conftest import (
    User,
    consumer_settings,
    dead_letters,
    producer_settings,
    receive_request,
)

from roquet.admin import groups, topics
from roquet.admin.client import AdminClient
from roquet.admin.topics import TopicSettings
from roquet.client import ClientConfig, Message, Producer, ProducerConfig
from roquet.proxy.config import ProxyConfig
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.proxy.proxy import Proxy
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster


async def test_a_message_comes_with_all_that_its_sender_gave(proxy: Proxy) -> None:
    user = User(proxy)
    async with user.telemetry(consumer_settings()):
        await user.receive(timeout_s=6)
        await user.send("NORM", b"hello", tag="paid", keys=["k1", "k2"], properties={"who": "me"})
        (message,) = await user.receive()
    system = message.system_properties
    assert message.body == b"hello"
    assert dict(message.user_properties) == {"who": "me"}
    assert (system.tag, list(system.keys)) == ("paid", ["k1", "k2"])
    assert system.body_digest == pb.Digest(type=pb.MD5, checksum="5D41402ABC4B2A76B9719D911017C592")
    assert (system.message_type, system.delivery_attempt) == (pb.NORMAL, 1)
    assert len(system.receipt_handle.split(" ")) == 9


async def test_a_receive_waits_for_a_message(proxy: Proxy) -> None:
    user = User(proxy)
    async with user.telemetry(consumer_settings()):
        waiting = asyncio.create_task(user.receive())
        await asyncio.sleep(10)
        sent_ms = this_loop().clock.now_ms()
        await user.send("NORM", b"late")
        assert [message.body for message in await waiting] == [b"late"]
        assert this_loop().clock.now_ms() - sent_ms < 1_000


async def test_a_receive_waits_for_its_clients_settings(proxy: Proxy) -> None:
    user = User(proxy)
    await user.send("NORM", b"x")
    receiving = asyncio.create_task(user.receive())
    await asyncio.sleep(1)
    assert not receiving.done()
    async with user.telemetry(consumer_settings()):
        assert [message.body for message in await receiving] == [b"x"]


async def test_a_client_whose_settings_a_killed_proxy_had_is_served_from_the_second_receive_on(
    proxy: Proxy,
) -> None:
    user, request = User(proxy), receive_request("g", "NORM", auto_renew=True)
    (refused, _) = await user.call("ReceiveMessage", request, 30)
    assert refused.status.code == pb.UNRECOGNIZED_CLIENT_TYPE
    receiving = asyncio.create_task(user.receive(auto_renew=True))
    await asyncio.sleep(1)
    await user.send("NORM", b"x")
    (message,) = await receiving
    # Clients that send their settings again are told to, and meanwhile it is one like another.
    for _ in range(5):
        await asyncio.sleep(50)
        beat = await user.call("Heartbeat", service.HeartbeatRequest(group=request.group))
        assert beat.status.code == pb.UNRECOGNIZED_CLIENT_TYPE
    (answer,) = (await user.ack(message)).entries
    assert answer.status.code == pb.OK


async def test_tags_are_compared_by_their_text_and_others_acknowledged(proxy: Proxy) -> None:
    user = User(proxy)
    # These two have the same hash in Java.
    wanted = pb.FilterExpression(type=pb.TAG, expression="Aa")
    async with user.telemetry(consumer_settings()):
        await user.receive(timeout_s=6)
        await user.send("NORM", b"other", tag="BB")
        await user.send("NORM", b"wanted", tag="Aa")
        found = await user.receive(filter_expression=wanted)
        assert [message.body for message in found] == [b"wanted"]
        await user.ack(*found)
        await asyncio.sleep(60)
        assert await user.receive(timeout_s=6) == []


async def test_a_message_that_is_not_acknowledged_comes_again(proxy: Proxy) -> None:
    user = User(proxy)
    async with user.telemetry(consumer_settings()):
        await user.receive(timeout_s=6)
        await user.send("NORM", b"x")
        (first,) = await user.receive()
        await asyncio.sleep(20)
        (second,) = await user.receive()
        assert second.system_properties.message_id == first.system_properties.message_id
        assert second.system_properties.delivery_attempt == 2


async def test_what_a_broken_stream_did_not_carry_comes_at_once_to_others(proxy: Proxy) -> None:
    user, other = User(proxy), User(proxy, "other")
    async with user.telemetry(consumer_settings()), other.telemetry(consumer_settings()):
        await user.receive(timeout_s=6)
        for number in range(3):
            await user.send("NORM", b"%d" % number)
        context = user.context(30)
        parts = proxy.methods["ReceiveMessage"].unary_stream(receive_request("g", "NORM"), context)
        assert (await anext(parts)).status.code == pb.OK
        first = (await anext(parts)).message
        second = (await anext(parts)).message  # whether this one arrived is not known
        await parts.aclose()
        await asyncio.sleep(3)
        found = {message.body for message in await other.receive()}
        assert found == {b"0", b"1", b"2"} - {first.body}
        assert second.body in found


async def test_messages_that_come_after_their_client_has_gone_come_at_once_to_others(
    proxy: Proxy,
) -> None:
    user, other = User(proxy), User(proxy, "other")
    async with user.telemetry(consumer_settings()), other.telemetry(consumer_settings()):
        await user.receive(timeout_s=6)
        receiving = asyncio.create_task(user.receive())
        await asyncio.sleep(1)
        receiving.cancel()
        await asyncio.sleep(0.1)
        await user.send("NORM", b"x")
        await asyncio.sleep(3)
        assert [message.body for message in await other.receive()] == [b"x"]


async def test_a_delivery_that_no_client_got_counts_as_no_try(
    proxy: Proxy, running: Cluster
) -> None:
    user = User(proxy)
    async with user.telemetry(consumer_settings("G_few")):  # two retries
        await user.receive("G_few", timeout_s=6)
        await user.send("NORM", b"x")
        for _ in range(5):
            request = receive_request("G_few", "NORM")
            parts = proxy.methods["ReceiveMessage"].unary_stream(request, user.context(30))
            assert (await anext(parts)).status.code == pb.OK
            await parts.aclose()
            await asyncio.sleep(3)
        (message,) = await user.receive("G_few")
    assert message.system_properties.delivery_attempt == 1
    assert await dead_letters(running, "G_few") == []


async def test_after_the_last_try_a_message_is_a_dead_letter(
    proxy: Proxy, running: Cluster
) -> None:
    user = User(proxy)
    async with user.telemetry(consumer_settings("G_few")):
        await user.receive("G_few", timeout_s=6)
        await user.send("NORM", b"x")
        attempts = [m.system_properties.delivery_attempt for m in await user.receive("G_few")]
        for _ in range(9):
            await asyncio.sleep(30)
            found = await user.receive("G_few", timeout_s=6)
            attempts += [message.system_properties.delivery_attempt for message in found]
    assert attempts == [1, 2, 3]
    assert [letter.body for letter in await dead_letters(running, "G_few")] == [b"x"]


async def test_a_message_of_a_broken_stream_is_not_renewed(proxy: Proxy) -> None:
    user, other = User(proxy), User(proxy, "other")
    async with user.telemetry(consumer_settings()), other.telemetry(consumer_settings()):
        await user.receive(timeout_s=6)
        await user.send("NORM", b"x")
        request = receive_request("g", "NORM", auto_renew=True)
        parts = proxy.methods["ReceiveMessage"].unary_stream(request, user.context(30))
        assert (await anext(parts)).status.code == pb.OK
        assert (await anext(parts)).message.body == b"x"
        await parts.aclose()
        await asyncio.sleep(3)
        assert (await other.ack(*await other.receive())).status.code == pb.OK
        for _ in range(4):  # clients that are heard of
            await asyncio.sleep(60)
            await user.call("Heartbeat", service.HeartbeatRequest(group=pb.Resource(name="g")))
            assert await other.receive(timeout_s=6) == []


async def test_the_limit_of_tries_is_the_groups_not_that_of_the_clients_settings(
    proxy: Proxy, running: Cluster
) -> None:
    user = User(proxy)
    async with user.telemetry(producer_settings("NORM")):  # which has 3 tries
        await user.receive(timeout_s=6)
        await user.send("NORM", b"x")
        attempts = []
        for _ in range(5):
            found = await user.receive(timeout_s=6)
            attempts += [message.system_properties.delivery_attempt for message in found]
            await asyncio.sleep(20)
    assert attempts == [1, 2, 3, 4, 5]


async def test_a_group_that_becomes_ordered_is_so_for_clients_that_are_there(
    proxy: Proxy, running: Cluster
) -> None:
    user = User(proxy)
    clock = this_loop().clock
    async with user.telemetry(consumer_settings("G_few", "FIFOT")):
        await user.receive("G_few", "FIFOT", timeout_s=6)
        async with AdminClient(running.namesrv_addr, ClientConfig(clock=clock)) as admin:
            await groups.create(admin, "G_few", {"consume_message_orderly": True})
        await asyncio.sleep(30)
        await user.send("FIFOT", b"1", message_group="g1")
        await user.send("FIFOT", b"2", message_group="g1")
        assert len(await user.receive("G_few", "FIFOT", count=1)) == 1
        assert await user.receive("G_few", "FIFOT", timeout_s=6) == []


async def test_a_filter_that_names_no_tag_is_refused_before_messages_are_popped(
    proxy: Proxy,
) -> None:
    user = User(proxy)
    async with user.telemetry(consumer_settings()):
        request = receive_request(
            "g", "NORM", filter_expression=pb.FilterExpression(type=pb.TAG, expression="||")
        )
        first, *_ = await user.call("ReceiveMessage", request, 30)
        assert first.status.code == pb.ILLEGAL_FILTER_EXPRESSION


@pytest.mark.parametrize("name", ["MY_POP_CK", "odd\ud800"])
async def test_odd_properties_of_other_producers_stop_no_receive(
    proxy: Proxy, running: Cluster, name: str
) -> None:
    user, clock = User(proxy), this_loop().clock
    async with user.telemetry(consumer_settings()):
        await user.receive(timeout_s=6)
        async with Producer(running.namesrv_addr, config=ProducerConfig(clock=clock)) as producer:
            await producer.send(Message("NORM", b"x", properties={name: "value"}))
        assert [message.body for message in await user.receive()] == [b"x"]


async def test_a_proxy_that_stops_releases_first_what_a_broken_stream_did_not_carry(
    proxy: Proxy, running: Cluster
) -> None:
    stopping = Proxy(running.namesrv_addr, ProxyConfig(clock=this_loop().clock))
    stopping.start()
    user, other = User(stopping), User(proxy)
    async with user.telemetry(consumer_settings()), other.telemetry(consumer_settings()):
        await user.receive(timeout_s=6)
        await user.send("NORM", b"x")
        request = receive_request("g", "NORM", invisible_ms=3_600_000)
        parts = stopping.methods["ReceiveMessage"].unary_stream(request, user.context(30))
        assert (await anext(parts)).status.code == pb.OK
        await parts.aclose()
        await stopping.close()
        await asyncio.sleep(3)
        assert [message.body for message in await other.receive()] == [b"x"]


async def test_a_receive_that_names_no_known_broker_takes_them_in_turns(
    running: Cluster, proxy: Proxy
) -> None:
    clock = this_loop().clock
    await running.add_broker()
    async with AdminClient(running.namesrv_addr, ClientConfig(clock=clock)) as admin:
        await topics.create(admin, "WIDE", TopicSettings(read_queues=1, write_queues=1))
        await groups.create(admin, "g", {})
    user, found = User(proxy), []
    for _ in range(2):
        await user.send("WIDE")
    async with user.telemetry(consumer_settings(topic="WIDE")):
        for _ in range(4):
            request = receive_request("g", "WIDE", count=1)
            request.message_queue.broker.name = "unknown"
            request.long_polling_timeout.FromMilliseconds(5_000)
            parts = await user.call("ReceiveMessage", request, 30)
            found += [part.message.body for part in parts if part.HasField("message")]
    assert found == [b"x", b"x"]
