"""The Producer's public methods."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from random import Random

import pytest
from tests.client.conftest import Created, config_of, fake_cluster, producer_of, producing

from roquet.client.config import ProducerConfig
from roquet.client.producer import Producer
from roquet.client.sending.outstanding_sends import KeyOrder
from roquet.client.sending.selectors import Chance, KeyHash
from roquet.model.errors import CallRefused, ConfigError, ConnectFailed, MessageIllegal, UsageError
from roquet.model.message import Message
from roquet.model.queue import MessageQueue
from roquet.model.results import SendReceipt
from roquet.testing.clock import this_loop
from roquet.wire.receipt_handle import RecallHandle
from roquet.wire.records.property_text import decode_properties


async def test_a_message_is_stored_and_its_receipt_says_where() -> None:
    async with producing({"a": 1}) as (cluster, producer):
        receipt = await producer.send("t", b"hello", tag="new", keys="k1")
        (call,) = cluster.a.sends
        properties = decode_properties(call.properties)
        assert receipt.ok
        assert receipt.queue == MessageQueue("t", "a", 0)
        assert receipt.queue_offset == 0
        assert receipt.message_id == properties["UNIQ_KEY"]
        assert receipt.offset_message_id == "a-0-0"
        assert (call.producer_group, call.body, properties["TAGS"], properties["KEYS"]) == (
            "shop",
            b"hello",
            "new",
            "k1",
        )


async def test_a_ready_message_does_as_well() -> None:
    async with producing({"a": 1}) as (cluster, producer):
        await producer.send(Message("t", b"x" * 9_000, flag=4))
        (call,) = cluster.a.sends
        assert (zlib.decompress(call.body), call.flag, call.sys_flag) == (b"x" * 9_000, 4, 0x301)


async def test_one_key_one_queue_as_java_chooses_it() -> None:
    async with producing({"a": 4}) as (_cluster, producer):
        orders = ["XXX001", "XXX002", "XXX003"]
        sent = [await producer.send("t", b"x", order_key=key) for key in orders * 2]
        assert [receipt.queue.queue_id for receipt in sent] == [3, 2, 1] * 2


async def test_brokers_know_the_producer_until_it_leaves() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        async with producer_of(cluster) as producer:
            await producer.send("t", b"x")
            await asyncio.sleep(1)
        assert cluster.a.heartbeats[0].producer_data_set[0].group_name == "shop"
        assert cluster.a.left[0].producer_group == "shop"
        assert cluster.a.left[0].client_id == producer.client_id


async def test_a_send_waits_for_a_cluster_that_is_still_starting() -> None:
    async with producing({"a": 1}) as (cluster, producer):
        cluster.unready = 5
        assert (await producer.send("t", b"x")).ok
        assert 500 <= this_loop().clock.monotonic_ms() < 3_000


async def test_without_a_cluster_a_send_fails_in_time_and_says_why() -> None:
    async with Producer("127.0.0.1:1", config=config_of(ProducerConfig)) as producer:
        with pytest.raises(ConnectFailed, match="is it running") as caught:
            await producer.send("t", b"x", timeout_ms=2_000)
        assert caught.value.definite
        assert this_loop().clock.monotonic_ms() == 2_000


async def test_a_joining_broker_gets_its_share_within_a_route_refresh() -> None:
    async with producing({"a": 4, "b": 2}) as (cluster, producer):
        await producer.send("t", b"x")
        new = await cluster.add("c")
        cluster.topics["t"]["c"] = 3
        await asyncio.sleep(31)
        for _ in range(90):
            await producer.send("t", b"x")
        assert len(new.sends) == 30


async def test_a_batch_goes_to_one_queue_with_one_receipt() -> None:
    async with producing({"a": 4}) as (cluster, producer):
        messages = [Message("t", b"%d" % i, order_key="o") for i in range(3)]
        receipt = await producer.send_batch(messages)
        (call,) = cluster.a.sends
        queue = receipt.queue.queue_id
        assert (call.code, call.batch, call.queue_id) == (320, True, queue)
        assert cluster.a.bodies("t", queue) == [b"0", b"1", b"2"]
        assert len(receipt.message_id.split(",")) == 3
        assert receipt.offset_message_id == f"a-{queue}-0,a-{queue}-1,a-{queue}-2"


async def test_batches_that_cannot_be_are_refused_before_the_wire() -> None:
    async with producing({"a": 4}, body_size_max=2_000) as (cluster, producer):
        with pytest.raises(UsageError, match="at least one"):
            await producer.send_batch([])
        with pytest.raises(UsageError, match="one topic"):
            await producer.send_batch([Message("t", b"x"), Message("u", b"x")])
        with pytest.raises(UsageError, match="one queue"):
            await producer.send_batch([Message("t", b"x", order_key=k) for k in "ab"])
        with pytest.raises(MessageIllegal, match=r"over the limit of 2000: send_many splits it"):
            await producer.send_batch([Message("t", b"x" * 1_000)] * 2)
        assert not cluster.a.sends


async def test_a_key_is_not_overtaken_by_its_own_retry() -> None:
    async with producing({"a": 2, "b": 2}) as (cluster, producer):
        for broker in cluster.brokers.values():
            broker.faults += [CallRefused(2, "busy")] * 2
        sends = [
            asyncio.ensure_future(producer.send("t", b"%d" % n, order_key=f"k{n % 3}"))
            for n in range(60)
        ]
        receipts = await asyncio.gather(*sends)
        assert max(receipt.tries for receipt in receipts) > 1
        for key in range(3):
            offsets = [receipt.queue_offset for receipt in receipts[key::3]]
            assert offsets == sorted(offsets)
            assert len({receipt.queue for receipt in receipts[key::3]}) == 1


BY_TAG = KeyHash(lambda message: message.tag)

KEYED: dict[str, Callable[[Producer, bytes], Awaitable[SendReceipt]]] = {
    "batches": lambda producer, body: producer.send_batch([Message("t", body, order_key="k")] * 2),
    "batches by a selector": lambda producer, body: producer.send_batch(
        [Message("t", body, tag="k")] * 2, selector=BY_TAG
    ),
    "a selector": lambda producer, body: producer.send("t", body, tag="k", selector=BY_TAG),
    "both kinds": lambda producer, body: (
        producer.send("t", body, order_key="k")
        if int(body) % 2
        else producer.send_batch([Message("t", body, order_key="k")])
    ),
}


@pytest.mark.parametrize("way", KEYED)
@pytest.mark.parametrize("is_known", [True, False])
async def test_messages_bound_to_a_queue_keep_their_order_over_retries(
    way: str, is_known: bool, created: Created
) -> None:
    key_orders = created(KeyOrder)
    async with producing({"a": 2, "b": 2}) as (cluster, producer):
        if is_known:
            await producer.send("t", b"x")
        for broker in cluster.brokers.values():
            broker.faults += [CallRefused(2, "busy")] * 2
        receipts = await asyncio.gather(*(KEYED[way](producer, b"%d" % n) for n in range(9)))
        offsets = [receipt.queue_offset for receipt in receipts]
        assert offsets == sorted(offsets)
        assert len({receipt.queue for receipt in receipts}) == 1
        assert not len(key_orders[0])


async def test_a_selector_that_spreads_does_not_serialize_sends() -> None:
    async with producing({"a": 1}) as (cluster, producer):
        await producer.send("t", b"x")
        cluster.a.send_ms = 1_000
        start, chance = this_loop().clock.monotonic_ms(), Chance(Random(5))
        await asyncio.gather(*(producer.send("t", b"x", selector=chance) for _ in range(20)))
        assert this_loop().clock.monotonic_ms() - start < 1_100


async def test_without_a_key_sends_do_not_wait_for_each_other() -> None:
    async with producing({"a": 1}) as (cluster, producer):
        await producer.send("t", b"x")
        cluster.a.send_ms = 1_000
        start = this_loop().clock.monotonic_ms()
        await asyncio.gather(*(producer.send("t", b"x") for _ in range(20)))
        keys = (producer.send("t", b"x", order_key=f"k{n}") for n in range(20))
        await asyncio.gather(*keys)
        assert this_loop().clock.monotonic_ms() - start < 2_100


async def test_a_selector_chooses_the_queue() -> None:
    async with producing({"a": 4}, selector=lambda queues, _: queues[1]) as (cluster, producer):
        assert (await producer.send("t", b"x")).queue.queue_id == 1
        last = await producer.send("t", b"x", selector=lambda queues, _: queues[-1])
        assert last.queue.queue_id == 3
        assert (await producer.send("t", b"x", order_key="XXX002")).queue.queue_id == 2
        many = await producer.send_many(Message("t", b"x") for _ in range(9))
        assert {receipt.queue.queue_id for receipt in many} == {1}
        batch = await producer.send_batch([Message("t", b"x")], selector=lambda q, _: q[0])
        assert batch.queue.queue_id == 0
        await producer.send_oneway("t", b"x", selector=lambda queues, _: queues[0])
        await asyncio.sleep(0.1)
        assert len(cluster.a.bodies("t", 0)) == 2
        before = len(cluster.a.sends)
        with pytest.raises(UsageError, match="none of the 4 queues"):
            await producer.send("t", b"x", selector=lambda queues, _: None)  # type: ignore[arg-type,return-value]
        assert len(cluster.a.sends) == before


async def test_a_delayed_message_is_no_part_of_a_batch() -> None:
    async with producing({"a": 1}) as (cluster, producer):
        with pytest.raises(UsageError, match="cannot be in a batch"):
            await producer.send_batch([Message("t", b"x", delay_level=1), Message("t", b"y")])
        await producer.send_many(Message("t", b"x", delay_level=n % 2) for n in range(4))
        assert not any(call.batch for call in cluster.a.sends)


async def test_one_way_arrives() -> None:
    async with producing({"a": 1}) as (cluster, producer):
        await producer.send_oneway("t", b"x")
        await asyncio.sleep(0.1)
        assert cluster.a.bodies("t", 0) == [b"x"]


async def test_a_producer_is_used_while_it_is_open() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        producer = producer_of(cluster)
        with pytest.raises(UsageError, match="not started"):
            await producer.send("t", b"x")
        async with producer:
            await producer.send("t", b"x")
        with pytest.raises(UsageError, match="closed"):
            await producer.send("t", b"x")
        with pytest.raises(UsageError, match="closed"):
            producer.send_many([])
        await producer.close()  # twice is fine


def test_what_cannot_work_is_said_when_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(ConfigError, match="no name server given"):
        Producer()
    with pytest.raises(UsageError, match="group name"):
        Producer("127.0.0.1:1", group="a b")


async def test_what_is_no_handle_is_refused_before_the_wire() -> None:
    async with producing({"a": 1}) as (_cluster, producer):
        with pytest.raises(UsageError, match="'nonsense' is not a recall handle"):
            await producer.recall("t", "nonsense")
        with pytest.raises(UsageError, match="only receipts of messages with delay or deliver_at"):
            await producer.recall("t", None)


async def test_a_handle_of_a_broker_that_is_unknown_cannot_be_asked() -> None:
    handle = RecallHandle("t", "gone", 1_900_000_000_000, "k").text()
    async with producing({"a": 1}) as (_cluster, producer):
        with pytest.raises(ConnectFailed, match="gone"):
            await producer.recall("t", handle)
