"""What the genuine mqadmin asks of single members: through our broker, and of our client.

Each command is a JVM of its own, so there are few of them.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from harness import genuine
from harness.java_client import JavaClient, until
from roquet.client import (
    ConsumeFrom,
    ConsumerConfig,
    Producer,
    ProducerConfig,
    PushConsumer,
    ReceivedMessage,
)
from roquet.model.queue import MessageQueue
from roquet.net.pool import ChannelPool
from roquet.net.router import Router
from roquet.testing.cluster import Cluster, cluster
from roquet.wire.calls.admin.client_forwarding import (
    ConsumeDirectly,
    ConsumeDirectlyResult,
    ConsumeResult,
    GetRunningInfo,
    RunningInfo,
)
from roquet.wire.calls.admin.offset_reset import GetClientStatus, ResetClientOffset
from roquet.wire.calls.bodies import ClientStatus, ResetOffsetBody
from roquet.wire.fastjson import codec

pytestmark = pytest.mark.interop

Admin = Callable[..., Awaitable[str]]


@pytest.fixture
def admin(java: None, tmp_path: Path) -> Admin:
    """`await admin("consumerStatus", "-n", ...)`: what the genuine mqadmin prints."""

    async def run(*words: str) -> str:
        command = genuine.java("tools.command.MQAdminStartup", *words, heap="256m")
        home = tmp_path / "admin"
        return await asyncio.to_thread(genuine.run, command, seconds=60, home=home)

    return run


async def a_java_member(running: Cluster, java: JavaClient) -> str:
    """The id of a Java consumer at work on our broker."""
    async with Producer(running.namesrv_addr, group="maker") as producer:
        for body in ("good", "fail-always"):
            assert (await producer.send("Relays", body.encode())).ok
    client_id = await java.join(running.namesrv_addr, "relayed", "Relays", "relays", tries=0)
    await until(lambda: "good" in java.bodies("relays"))
    return client_id


async def test_a_java_member_answers_through_our_broker(
    java_member: JavaClient, tmp_path: Path
) -> None:
    async with cluster(store=tmp_path) as running:
        client_id = await a_java_member(running, java_member)
        pool = ChannelPool(Router())
        address = running.broker_addrs[0]
        info = await pool.call(
            address,
            GetRunningInfo(consumer_group="relayed", client_id=client_id, jstack_enable=True),
            10_000,
        )
        info_read = codec.loads(info.body, RunningInfo)
        assert info_read.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert {queue.topic for queue in info_read.mq_table} >= {"Relays"}
        assert "ConsumeMessageThread" in (info_read.jstack or "")

        async with Producer(running.namesrv_addr, group="maker") as producer:
            receipt = await producer.send("Elsewhere", b"directly")
            call = ConsumeDirectly(
                consumer_group="relayed",
                client_id=client_id,
                topic="Elsewhere",
                msg_id=receipt.offset_message_id,
            )
            result = codec.loads(
                (await pool.call(address, call, 10_000)).body, ConsumeDirectlyResult
            )
            assert result.consume_result is ConsumeResult.CR_SUCCESS
            assert "directly" in java_member.bodies("relays")
        await a_reset(running, java_member)
        await java_member.leave("relays")
        await pool.close()


async def a_reset(running: Cluster, java: JavaClient) -> None:
    """A Java member goes on where our broker tells it, and says how far it is."""
    broker = running.brokers[0].broker
    group = broker.tables.clients.consumers("relayed")
    assert group is not None
    (peer,) = group.members
    name = broker.control.settings.config.broker_name
    offsets = {MessageQueue("Relays", name, number): 0 for number in range(4)}
    before = java.bodies("relays").count("good")
    body = codec.dumps(ResetOffsetBody(offset_table=offsets))
    peer.oneway(ResetClientOffset(topic="Relays", group="relayed", timestamp=0, body=body))
    await until(lambda: java.bodies("relays").count("good") > before)
    reply = await peer.call(GetClientStatus(topic="Relays", group="relayed"))
    table = codec.loads(reply.body, ClientStatus).message_queue_table
    assert table is not None
    assert set(table) == set(offsets)


async def test_mqadmin_sees_our_member_and_has_it_handle_a_message(
    theirs: genuine.Genuine, admin: Admin
) -> None:
    seen: list[bytes] = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append(message.body)

    topic = f"OurMember{time.time_ns()}"
    reading = ConsumerConfig(client_ip="127.0.0.1", consume_from=ConsumeFrom.FIRST)
    async with (
        Producer(theirs.namesrv, group="maker") as producer,
        PushConsumer(theirs.namesrv, group="ours", topic=topic, config=reading) as consumer,
    ):
        receipt = await producer.send(topic, b"again and again")
        work = asyncio.create_task(consumer.run(handler))
        await until(lambda: bool(seen))
        of_us = ("-n", theirs.namesrv, "-g", "ours", "-i", consumer.client_id)
        output = await admin("consumerStatus", *of_us, "-s")
        for words in (
            "PROP_CONSUME_TYPE", "CONSUME_PASSIVELY", "V5_5_0", f"Topic: {topic}",
            "#Consumer RT&TPS#", "#Consumer jstack#", "MainThread",
        ):  # fmt: skip
            assert words in output, output
        output = await admin(
            "queryMsgById", "-n", theirs.namesrv, "-g", "ours", "-d", consumer.client_id,
            "-i", receipt.offset_message_id, "-t", topic,
        )  # fmt: skip
        assert "CR_SUCCESS" in output, output
        assert seen == [b"again and again"] * 2
        consumer.stop()
        await work


async def test_mqadmin_shows_our_traces_and_we_read_javas(admin: Admin, tmp_path: Path) -> None:
    async with cluster(store=tmp_path, trace_topic=True) as running:
        seen = asyncio.Event()

        async def handler(message: ReceivedMessage) -> None:
            seen.set()

        reading = ConsumerConfig(trace=True, consume_from=ConsumeFrom.FIRST)
        async with (
            Producer(
                running.namesrv_addr, group="tracer", config=ProducerConfig(trace=True)
            ) as producer,
            PushConsumer(
                running.namesrv_addr, group="traced", topic="Traced", config=reading
            ) as consumer,
        ):
            receipt = await producer.send("Traced", b"x", tag="T", keys=("the-key",))
            work = asyncio.create_task(consumer.run(handler))
            await seen.wait()
            consumer.stop()
            await work
        output = await admin(
            "queryMsgTraceById", "-n", running.namesrv_addr, "-i", receipt.message_id
        )
        for words in ("Pub", "tracer", "SubBefore" if "SubBefore" in output else "Sub", "traced"):
            assert words in output, output


async def test_mqadmin_changes_our_name_server(admin: Admin, tmp_path: Path) -> None:
    async with cluster(store=tmp_path) as running:
        namesrv = running.namesrv_addr
        async with Producer(namesrv, group="maker") as producer:
            await producer.send("Written", b"x")
        output = await admin("wipeWritePerm", "-n", namesrv, "-b", "broker-a")
        assert "wipe write perm of broker[broker-a]" in output, output
        output = await admin("topicRoute", "-n", namesrv, "-t", "Written")
        assert '"perm":4' in output, output
        output = await admin("addWritePerm", "-n", namesrv, "-b", "broker-a")
        assert "add write perm of broker[broker-a]" in output, output
        output = await admin(
            "updateNamesrvConfig", "-n", namesrv, "-k", "orderMessageEnable", "-v", "true"
        )
        assert "success" in output, output
        output = await admin("getNamesrvConfig", "-n", namesrv)
        assert "orderMessageEnable" in output, output
        assert running.namesrvs[0].state.config.order_messages
