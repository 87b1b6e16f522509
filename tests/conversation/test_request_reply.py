"""Request and reply, from a producer through a real broker to a consumer and back."""

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.conversation.conftest import SERVER_HOST, config_of, remote_cluster, virtual_cluster

from roquet.client import (
    ConsumerConfig,
    Message,
    PopConsumer,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
)
from roquet.model import properties as names
from roquet.model.errors import CallTimeout, ConnectFailed, MessageIllegal, UsageError
from roquet.testing.clock import this_loop
from roquet.testing.cluster import BlockingCluster, Cluster

Answer = Callable[[ReceivedMessage], Awaitable[object]]


@asynccontextmanager
async def answering(
    running: Cluster, answer: Answer, kind: type[PushConsumer | PopConsumer] = PushConsumer
) -> AsyncIterator[None]:
    """A consumer of topic t that answers."""
    config = config_of(ConsumerConfig, rng=Random(1))
    async with kind(running.namesrv_addr, group="answers", topic="t", config=config) as consumer:
        task = asyncio.create_task(consumer.run(answer))
        yield
        consumer.stop()
        await task


@asynccontextmanager
async def asking(
    answer: Answer,
    brokers: int = 1,
    kind: type[PushConsumer | PopConsumer] = PushConsumer,
    **of_producer: Any,
) -> AsyncIterator[tuple[Cluster, Producer]]:
    """A cluster, a producer, and a consumer that answers."""
    async with virtual_cluster(brokers=brokers) as running:
        config = config_of(ProducerConfig, rng=Random(2), **of_producer)
        async with (
            Producer(running.namesrv_addr, config=config) as producer,
            answering(running, answer, kind),
        ):
            yield running, producer


async def upper(message: ReceivedMessage) -> None:
    await message.reply(message.body.upper(), properties={"asked": message.body.decode()})


async def test_a_request_returns_with_the_reply() -> None:
    async with asking(upper) as (_, producer):
        reply = await producer.request("t", b"hello", timeout_ms=10_000)
        assert reply.body == b"HELLO"
        assert reply.properties["asked"] == "hello"
        assert reply.properties[names.MESSAGE_TYPE] == "reply"
        assert reply.correlation_id
        assert reply.message_id


async def test_a_request_has_the_properties_that_java_clients_read() -> None:
    seen: list[ReceivedMessage] = []

    async def look(message: ReceivedMessage) -> None:
        seen.append(message)
        assert await message.reply(b"x")

    async with asking(look) as (_, producer):
        reply = await producer.request(Message("t", b"?", tag="A"), timeout_ms=9_000)
        (message,) = seen
        assert message.wants_reply
        assert message.tag == "A"
        assert message.properties[names.REPLY_TO_CLIENT] == producer.client_id
        assert message.properties[names.TTL] == "9000"
        assert message.properties[names.CORRELATION_ID] == reply.correlation_id


async def test_a_thousand_in_flight_each_get_their_own_reply() -> None:
    async with asking(upper, brokers=2) as (_, producer):
        bodies = [b"body %d" % n for n in range(1_000)]
        asked = (producer.request("t", body, timeout_ms=30_000) for body in bodies)
        replies = await asyncio.gather(*asked)
        assert [reply.body for reply in replies] == [body.upper() for body in bodies]


async def test_requests_are_never_batched() -> None:
    async with asking(upper, linger_ms=5) as (_, producer):
        reply, receipt = await asyncio.gather(
            producer.request("t", b"a", timeout_ms=10_000), producer.send("t", b"b")
        )
        assert reply.body == b"A"
        assert receipt.ok


async def test_a_large_reply_is_compressed() -> None:
    async def answer(message: ReceivedMessage) -> None:
        await message.reply(b"long " * 10_000)

    async with asking(answer) as (running, producer):
        reply = await producer.request("t", b"?", timeout_ms=10_000)
        assert reply.body == b"long " * 10_000
        topic = "DefaultCluster_REPLY_TOPIC"
        config = config_of(ConsumerConfig, rng=Random(3))
        async with PullConsumer(running.namesrv_addr, group="audit", config=config) as audit:
            (queue,) = await audit.queues(topic)
            (kept,) = (await audit.pull(queue, 0)).messages
            assert kept.body == reply.body
            assert kept.size < 1_000
            assert kept.properties[names.CORRELATION_ID] == reply.correlation_id


async def test_a_member_that_pops_answers_as_well() -> None:
    async with asking(upper, kind=PopConsumer) as (_, producer):
        assert (await producer.request("t", b"pop", timeout_ms=10_000)).body == b"POP"


async def test_an_unanswered_request_ends_at_its_timeout(caplog: pytest.LogCaptureFixture) -> None:
    late: list[bool] = []

    async def slowly(message: ReceivedMessage) -> None:
        await asyncio.sleep(20)
        late.append(await message.reply(b"late"))

    caplog.set_level(logging.DEBUG, "roquet.client.reading.request_reply")
    async with asking(slowly) as (_, producer):
        began = asyncio.get_running_loop().time()
        with pytest.raises(CallTimeout, match="was stored, but no reply came within 5000 ms"):
            await producer.request("t", b"?", timeout_ms=5_000)
        assert asyncio.get_running_loop().time() - began == pytest.approx(5, abs=0.1)
        await asyncio.sleep(30)
        assert late == [True]  # the client took it, as Java's does, though nobody waits
        (said,) = [r for r in caplog.records if r.name == "roquet.client.reading.request_reply"]
        assert said.levelno == logging.DEBUG
        assert "came too late" in said.getMessage()


async def test_a_reply_to_a_closed_producer_fails() -> None:
    outcomes: list[bool] = []
    taken = asyncio.Event()
    go_on = asyncio.Event()

    async def answer(message: ReceivedMessage) -> None:
        taken.set()
        await go_on.wait()
        outcomes.append(await message.reply(b"x"))

    async with virtual_cluster() as running, answering(running, answer):
        async with Producer(
            running.namesrv_addr, config=config_of(ProducerConfig, rng=Random(2))
        ) as producer:
            asked = asyncio.create_task(producer.request("t", b"?", timeout_ms=60_000))
            await taken.wait()
        with pytest.raises(ConnectFailed, match="the producer was closed"):
            await asked
        go_on.set()
        await asyncio.sleep(5)
        assert outcomes == [False]


async def test_a_requester_that_connects_again_gets_its_reply() -> None:
    taken = asyncio.Event()
    go_on = asyncio.Event()

    async def answer(message: ReceivedMessage) -> None:
        taken.set()
        await go_on.wait()
        assert await message.reply(b"x")

    network = this_loop().network
    async with remote_cluster() as running, answering(running, answer):
        config = config_of(ProducerConfig, rng=Random(2))
        with network.host("10.0.0.2"):
            producer = Producer(running.namesrv_addr, config=config)
            await producer.start()
        asked = asyncio.create_task(producer.request("t", b"?", timeout_ms=60_000))
        await taken.wait()
        network.drop("10.0.0.2", SERVER_HOST)
        await asyncio.sleep(0.5)
        await producer.send("other", b"meanwhile")
        go_on.set()
        assert (await asked).body == b"x"
        await producer.close()


async def test_a_message_that_is_no_request_cannot_be_answered() -> None:
    faults: list[str] = []

    async def answer(message: ReceivedMessage) -> None:
        try:
            await message.reply(b"x")
        except UsageError as error:
            faults.append(str(error))

    async with asking(answer) as (_, producer):
        await producer.send("t", b"plain")
        await asyncio.sleep(30)
    (fault,) = faults
    assert "is not a request: no producer waits for a reply" in fault


async def test_an_empty_reply_is_refused_and_so_is_a_property_of_the_system() -> None:
    faults: list[Exception] = []

    async def answer(message: ReceivedMessage) -> None:
        for body, properties in ((b"", {}), (b"x", {names.CORRELATION_ID: "mine"})):
            try:
                await message.reply(body, properties=properties)
            except MessageIllegal as error:
                faults.append(error)
        await message.reply(b"fine")

    async with asking(answer) as (_, producer):
        assert (await producer.request("t", b"?", timeout_ms=10_000)).body == b"fine"
        assert len(faults) == 2
        with pytest.raises(MessageIllegal, match="belongs to the system"):
            await producer.request("t", b"?", properties={names.TTL: "1"})


def test_the_program_of_the_how_to_runs() -> None:
    root = Path(__file__).parents[2]
    text = (root / "docs" / "howto" / "request-reply.md").read_text("utf-8")
    program = text.partition("```python\n")[2].partition("```")[0]
    with BlockingCluster() as running:
        environ = {"NAMESRV_ADDR": running.namesrv_addr, "PYTHONPATH": str(root / "src")}
        ended = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            env={**os.environ, **environ}, check=False, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert (ended.stdout, ended.returncode) == ("42 EUR for a lamp\n", 0), ended.stderr
