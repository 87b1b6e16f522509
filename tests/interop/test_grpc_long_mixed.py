"""Clients of RocketMQ 5 beside others: remoting consumers, Spark, Apache's brokers and proxy."""

import asyncio
import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bench.kill_master import healed
from tests.interop.grpc_group import (
    CHECKING,
    TYPES,
    add_group,
    add_topics,
    check_each_type,
    clients,
    consume,
    installed,
    keep_sending,
    proxied,
    proxy_process,
    still_missing,
)

from harness import genuine
from harness.java_client import JavaClient, until
from harness.ports import HOST, free_port
from harness.replicated_cluster import ReplicatedCluster
from harness.servers import DevServer
from roquet.admin.client import AdminClient
from roquet.client import PopConsumer, Producer, ReceivedMessage
from roquet.net.channel import Channel
from roquet.proxy.config import ProxyConfig
from roquet.proxy.server import ProxyServer
from roquet.testing.cluster import cluster
from roquet.wire.calls.bodies import POP, RequestMode
from roquet.wire.calls.heartbeat import SetRequestMode
from roquet.wire.fastjson import codec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


async def test_two_grpc_members_a_java_one_and_one_of_ours_handle_each_message_once(
    java_member: JavaClient, tmp_path: Path
) -> None:
    names = installed(["python", "node"])
    async with proxied() as (running, address), clients(names, address, tmp_path) as members:
        namesrv = running.namesrv_addr
        await add_group(namesrv, "mixed", "NORM")
        async with await Channel.connect(HOST, running.brokers[0].port) as channel:
            mode = RequestMode(topic="NORM", consumer_group="mixed", mode=POP)
            await channel.call(SetRequestMode(body=codec.dumps(mode)))
        await java_member.join(namesrv, "mixed", "NORM", "mixed", mode="pop")
        for it in members:
            await it.push("mixed", "NORM")
        ours: list[str] = []

        async def handle(message: ReceivedMessage) -> None:
            ours.append(message.body.decode())

        async with (
            PopConsumer(namesrv, group="mixed", topic="NORM") as consumer,
            Producer(namesrv) as producer,
        ):
            running_ours = asyncio.create_task(consumer.run(handle))
            await asyncio.sleep(7)  # all of them have asked for messages then
            bodies = [f"body {number}" for number in range(600)]
            for body in bodies:
                await producer.send("NORM", body.encode())
                await asyncio.sleep(0.01)

            def all_handled() -> list[list[str]]:
                theirs = [it.bodies("mixed") for it in members]
                return [ours, java_member.bodies("mixed"), *theirs]

            await until(lambda: sum(map(len, all_handled())) >= len(bodies))
            await asyncio.sleep(3)
            consumer.stop()
            await running_ours
        await java_member.leave("mixed")
        assert sorted(itertools.chain(*all_handled())) == sorted(bodies)
        assert all(all_handled()), [len(each) for each in all_handled()]


async def test_spark_reads_what_a_client_sends_and_a_client_gets_what_spark_sinks(
    spark: "SparkSession", tmp_path: Path
) -> None:
    names, port = installed(["python"]), free_port()
    with DevServer(tmp_path, "--memory", "--grpc-port", str(port)) as dev:
        await add_topics(dev.address, {"ToSpark": None, "FromSpark": None})
        async with clients(names, f"{HOST}:{port}", tmp_path) as (client,):
            bodies = {f"body {number}" for number in range(20)}
            for body in bodies:
                await client.send("ToSpark", body, value="a")
            options = {"namesrv": dev.address, "topic": "ToSpark"}
            rows = spark.read.format("roquet").options(**options).load()
            read = {(bytes(row.body).decode(), row.tag) for row in rows.collect()}
            assert read == {(body, "a") for body in bodies}
            writer = rows.select("body").write.format("roquet").mode("append")
            writer.options(namesrv=dev.address, topic="FromSpark").save()
            group = await add_group(dev.address, "of-spark", "FromSpark")
            got = await consume(client, group, "FromSpark", len(bodies))
            assert set(got()) == bodies


@pytest.mark.parametrize("name", ["java", "go"])
async def test_our_proxy_serves_clients_in_front_of_apaches_broker(
    java: None, tmp_path: Path, name: str
) -> None:
    names = installed([name])
    settings = {
        "transactionTimeOut": "2000",
        "transactionCheckInterval": "2000",
        "transactionOpBatchInterval": "100",  # it asks about what was rolled back until then
    }
    with genuine.cluster(tmp_path / "g", recallMessageEnable="true", **settings) as theirs:
        await add_topics(theirs.namesrv, TYPES)
        config = ProxyConfig(port=0, host=HOST)
        async with (
            ProxyServer(theirs.namesrv, config) as proxy,
            clients(names, proxy.address, tmp_path) as (client,),
        ):
            await check_each_type(theirs.namesrv, client)


@pytest.mark.parametrize("name", ["java", "go"])
async def test_apaches_proxy_serves_clients_in_front_of_our_broker(
    java: None, tmp_path: Path, name: str
) -> None:
    names = installed([name])
    async with cluster(recall_message=True, **CHECKING) as ours:
        await add_topics(ours.namesrv_addr, TYPES)
        proxy = genuine.proxy(tmp_path / "proxy", ours.namesrv_addr)
        address = await asyncio.to_thread(proxy.__enter__)
        try:
            async with clients(names, address, tmp_path) as (client,):
                await check_each_type(ours.namesrv_addr, client)
        finally:
            await asyncio.to_thread(proxy.__exit__, None, None, None)


async def test_nothing_acknowledged_is_lost_when_masters_die_behind_the_proxy(
    tmp_path: Path,
) -> None:
    names = installed(["go", "node"])
    async with ReplicatedCluster(tmp_path, has_links=False) as replicated:
        namesrv = replicated.namesrv
        async with AdminClient(namesrv) as admin:
            await healed(replicated, admin)
            await add_topics(namesrv, {"Kept": None})
            await add_group(namesrv, "keepers", "Kept")
            with proxy_process(tmp_path, namesrv) as proxy:
                async with clients(names, proxy.address, tmp_path) as members:
                    sender, reader = members[0], members[-1]
                    await reader.push("keepers", "Kept")
                    stop = asyncio.Event()
                    sending = asyncio.create_task(keep_sending(sender, "Kept", stop))
                    for _ in range(2):
                        await asyncio.sleep(4)
                        master, *_ = await healed(replicated, admin)
                        name = replicated.broker_at(master.address)
                        replicated.kill(name)
                        await asyncio.sleep(10)
                        await replicated.start(name)
                    await asyncio.sleep(5)
                    stop.set()
                    sent = await sending
                    assert not await still_missing(reader, "keepers", "Kept", sent)
    assert len(sent) > 100
