"""Requests that wait for replies, and replies, without a broker that pushes them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.client.conftest import Created, FakeCluster, config_of, fake_cluster, until

from roquet.client.config import ProducerConfig
from roquet.client.producer import Producer
from roquet.client.reading.request_reply import PendingRequests
from roquet.model import properties as names
from roquet.model.errors import CallRefused, CallTimeout, MessageIllegal, RecordError
from roquet.net.router import Peer
from roquet.wire.call import Reply
from roquet.wire.calls.heartbeat import Heartbeat
from roquet.wire.calls.reply import PushReply
from roquet.wire.records.property_text import decode_properties


def push(properties: str, body: bytes = b"answer", sys_flag: int = 0) -> PushReply:
    return PushReply(
        body=body, producer_group="g", topic="c_REPLY_TOPIC", queue_id=0, sys_flag=sys_flag,
        born_timestamp=1, properties=properties, born_host="h:1", store_host="h:2", stored_ms=2,
    )  # fmt: skip


class RequesterView:
    """A requester as its brokers see it: its connections and what it sent."""

    def __init__(self, cluster: FakeCluster, producer: Producer) -> None:
        self.brokers = list(cluster.brokers.values())
        self.producer = producer

    @property
    def sends(self) -> list[dict[str, str]]:
        calls = [call for broker in self.brokers for call in broker.sends]
        return [decode_properties(call.properties.encode()) for call in calls]

    def peer(self, at: int = 0) -> Peer:
        (peer,) = self.brokers[at].server.peers
        connection: Peer = peer
        return connection


@asynccontextmanager
async def asking(**queues: int) -> AsyncIterator[RequesterView]:
    async with (
        fake_cluster(t=queues or {"a": 1}) as cluster,
        Producer(cluster.address, config=config_of(ProducerConfig)) as producer,
    ):
        yield RequesterView(cluster, producer)


async def test_brokers_know_the_requester_before_the_request_comes() -> None:
    async with asking(a=1, b=1) as asked:
        with pytest.raises(CallTimeout):
            await asked.producer.request("t", b"?", timeout_ms=500)
        assert all(broker.heartbeats for broker in asked.brokers)
        (sent,) = asked.sends
        assert sent[names.REPLY_TO_CLIENT] == asked.producer.client_id
        assert sent[names.TTL] == "500"


async def test_a_thousand_requests_cost_one_introduction() -> None:
    async with asking() as asked:
        requests = (asked.producer.request("t", b"?", timeout_ms=900) for _ in range(1_000))
        await asyncio.gather(*requests, return_exceptions=True)
        assert len(asked.brokers[0].heartbeats) <= 3
        assert len({sent[names.CORRELATION_ID] for sent in asked.sends}) == 1_000


async def test_an_unreadable_reply_fails_the_request_and_is_refused_to_the_broker() -> None:
    async with asking() as asked:
        request = asyncio.create_task(asked.producer.request("t", b"?"))
        await asyncio.sleep(0.5)
        text = f"CORRELATION_ID\x01{asked.sends[0][names.CORRELATION_ID]}\x02"
        with pytest.raises(CallRefused, match="process reply message fail: body is not zlib"):
            await asked.peer().call(push(text, b"not zlib", sys_flag=1))
        with pytest.raises(RecordError):
            await request


async def test_replies_to_no_pending_request_are_dropped(created: Created) -> None:
    pending = created(PendingRequests)
    async with asking() as asked:
        request = asyncio.create_task(asked.producer.request("t", b"?"))
        await asyncio.sleep(0.5)
        text = f"CORRELATION_ID\x01{asked.sends[0][names.CORRELATION_ID]}\x02mine\x01yes\x02"
        for properties in ("", "CORRELATION_ID\x01other\x02", text, text):
            assert (await asked.peer().call(push(properties))).code == 0
        reply = await request
        assert (reply.body, reply.properties["mine"], reply.born_host) == (b"answer", "yes", "h:1")
        assert reply.message_id == ""
        assert [len(requests) for requests in pending] == [0]


async def test_a_request_that_cannot_be_sent_raises_the_reason(created: Created) -> None:
    pending = created(PendingRequests)
    async with asking() as asked:
        asked.brokers[0].faults += [CallRefused(13, "no such thing")] * 3
        with pytest.raises(CallRefused, match="no such thing"):
            await asked.producer.request("t", b"?")
        assert [len(requests) for requests in pending] == [0]


async def test_the_properties_of_the_system_count_against_the_limit() -> None:
    async with asking() as asked:
        most = {"p": "x" * (names.PROPERTIES_SIZE_MAX - 60)}
        await asked.producer.send("t", b"fits", properties=most)
        with pytest.raises(MessageIllegal, match="over the limit of 32767"):
            await asked.producer.request("t", b"?", properties=most)


async def test_a_lost_connection_is_reopened_while_a_request_waits() -> None:
    async with asking() as asked:
        request = asyncio.create_task(asked.producer.request("t", b"?", timeout_ms=10_000))
        await asyncio.sleep(0.5)
        before = len(asked.brokers[0].heartbeats)
        asked.peer().drop("a test wants it")  # type: ignore[attr-defined]
        await asyncio.sleep(0.5)
        assert len(asked.brokers[0].heartbeats) > before
        text = f"CORRELATION_ID\x01{asked.sends[0][names.CORRELATION_ID]}\x02"
        await asked.peer().call(push(text))
        assert (await request).body == b"answer"


async def test_an_unreachable_broker_delays_requests_by_a_second_at_most() -> None:
    async with asking(a=1, b=1) as asked:
        hung = asyncio.Event()

        async def hang(_call: Heartbeat, _peer: Peer) -> Reply | None:
            await hung.wait()
            return None

        for broker in asked.brokers[1:]:
            broker.handlers[Heartbeat] = hang
        await asked.producer.send("t", b"x")
        began = asyncio.get_running_loop().time()
        request = asyncio.create_task(asked.producer.request("t", b"?", timeout_ms=9_000))
        await until(lambda: len(asked.sends) == 2, step_s=0.01)
        assert asyncio.get_running_loop().time() - began < 1.1
        request.cancel()
        hung.set()
