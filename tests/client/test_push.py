"""PushConsumer: queues come by rebalance."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.client.conftest import config_of, consumer_of, consuming, fake_cluster

from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.push import PushConsumer
from roquet.client.reading.message import ReceivedMessage
from roquet.model.errors import CallRefused, UsageError
from roquet.model.queue import MessageQueue
from roquet.model.subscription import ConsumeType
from roquet.rules.replication.read_from import ReadFrom
from roquet.testing.clock import this_loop
from roquet.wire.codes import ResponseCode
from roquet.wire.records.record import encode_properties


def ids(consumer: PushConsumer) -> list[int]:
    return [queue.queue_id for queue in consumer.assignment()]


async def started(consumer: PushConsumer) -> PushConsumer:
    await consumer.start()
    await asyncio.sleep(1)
    return consumer


async def test_the_only_member_gets_all_queues_at_once() -> None:
    async with consuming({"a": 4}) as (_cluster, consumer):
        await asyncio.sleep(0.1)
        assert ids(consumer) == [0, 1, 2, 3]


async def test_members_that_come_and_go_share_at_the_brokers_notice() -> None:
    async with fake_cluster(t={"a": 8}) as cluster:
        members = sorted(
            [await started(consumer_of(cluster)) for _ in range(3)],
            key=lambda member: member.client_id,
        )
        assert [ids(m) for m in members] == [[0, 1, 2], [3, 4, 5], [6, 7]]
        await members.pop(0).close()
        await asyncio.sleep(0.1)
        assert [ids(m) for m in members] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        this_loop().network.drop("127.0.0.1", "127.0.0.1")  # all are gone, and come again
        await asyncio.sleep(30)
        assert [ids(m) for m in members] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        for member in members:
            await member.close()


async def test_without_a_notice_members_look_every_20_s() -> None:
    async with fake_cluster(t={"a": 4}) as cluster:
        cluster.a.notifies = False
        first = await started(consumer_of(cluster))
        await asyncio.sleep(10)  # it looks for its retry topic, more often at first
        second = await started(consumer_of(cluster))
        assert len(ids(first)) == 4
        await asyncio.sleep(20)
        assert sorted(ids(first) + ids(second)) == [0, 1, 2, 3]
        await first.close()
        await second.close()


async def test_a_joining_broker_is_read_within_a_route_refresh() -> None:
    async with consuming({"a": 2}) as (cluster, consumer):
        await asyncio.sleep(1)
        await cluster.add("b")
        cluster.topics["t"]["b"] = 1
        await asyncio.sleep(31)
        assert MessageQueue("t", "b", 0) in consumer.assignment()


async def test_a_broker_that_left_is_read_no_more() -> None:
    async with consuming({"a": 2, "b": 2}) as (cluster, consumer):
        await asyncio.sleep(1)
        await cluster.kill("b")
        await asyncio.sleep(31)
        assert consumer.assignment() == [MessageQueue("t", "a", 0), MessageQueue("t", "a", 1)]


async def test_a_broker_that_forgot_its_members_gets_heartbeats_and_no_queue_is_dropped() -> None:
    async with consuming({"a": 4}) as (cluster, consumer):
        await asyncio.sleep(1)
        revoked: list[object] = []
        consumer.on_revoked(revoked.append)
        cluster.a.members.clear()
        await asyncio.sleep(60)
        assert cluster.a.members["g"]
        assert ids(consumer) == [0, 1, 2, 3]
        assert not revoked


async def test_the_next_owner_goes_on_where_the_former_stopped() -> None:
    async with fake_cluster(t={"a": 2}) as cluster:
        for queue_id in (0, 1):
            cluster.a.put("t", queue_id, *[b"%d" % n for n in range(50)])
        seen: list[tuple[int, bytes]] = []

        async def handler(message: ReceivedMessage) -> None:
            await asyncio.sleep(0.01)
            seen.append((message.queue_id, message.body))

        first = consumer_of(cluster, concurrency=1)
        second = consumer_of(cluster, concurrency=1)
        await first.start()
        running = [asyncio.create_task(first.run(handler))]
        await asyncio.sleep(0.3)
        await second.start()
        running.append(asyncio.create_task(second.run(handler)))
        await asyncio.sleep(10)
        await first.close()
        await second.close()
        await asyncio.gather(*running)
        assert len(set(seen)) == 100
        assert len(seen) <= 101  # the one that was at work while its queue went
        assert {cluster.a.committed["g", "t", n] for n in (0, 1)} == {50}


async def test_a_member_may_start_before_its_cluster(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_cluster() as cluster, consumer_of(cluster) as consumer:
        await asyncio.sleep(120)
        assert ids(consumer) == []
        assert caplog.text.count("topic t does not exist yet") == 1
        await cluster.add("a")
        cluster.topics["t"] = {"a": 2}
        await asyncio.sleep(2)
        assert ids(consumer) == [0, 1]


async def test_a_member_may_start_before_its_name_server(caplog: pytest.LogCaptureFixture) -> None:
    config = config_of(ConsumerConfig)
    async with PushConsumer("127.0.0.1:1", group="g", topic="t", config=config):
        await asyncio.sleep(300)
    assert caplog.text.count("no name server answered") == 1


async def test_heartbeats_name_the_subscriptions() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        await asyncio.sleep(1)
        consumer.subscribe("t", "A || B")
        await asyncio.sleep(2)
        (data,) = cluster.a.heartbeats[-1].consumer_data_set
        assert (data.group_name, data.consume_type) == ("g", ConsumeType.CONSUME_PASSIVELY)
        assert data.strategy == "AVG"
        retry, subscription = sorted(data.subscription_data_set, key=lambda one: one.topic)
        assert (retry.topic, retry.sub_string) == ("%RETRY%g", "*")
        assert (subscription.topic, subscription.sub_string) == ("t", "A || B")
        assert consumer.subscriptions == {"t": "A || B"}


async def test_only_wanted_tags_arrive() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        config = config_of(ConsumerConfig, consume_from=ConsumeFrom.FIRST)
        consumer = PushConsumer(cluster.address, group="g", config=config)
        consumer.subscribe("t", "A || C")
        async with consumer:
            for tag in "ABC":
                properties = encode_properties({"TAGS": tag})
                cluster.a.put("t", 0, tag.encode(), properties=properties)
            assert [m.body for m in await consumer.fetch(3, 1_000)] == [b"A", b"C"]


@pytest.mark.parametrize(
    ("topic", "topics"), [("t", ["t"]), (["t", "u"], ["t", "u"]), ((), []), (None, [])]
)
def test_a_consumer_is_made_with_one_topic_or_several(topic: Any, topics: list[str]) -> None:
    consumer = PushConsumer("127.0.0.1:9876", group="g", topic=topic, tags="a")
    assert consumer.subscriptions == dict.fromkeys(topics, "a")


def test_a_topic_that_is_none_is_refused() -> None:
    wrong: Any = 7
    with pytest.raises(UsageError, match="the topic name is a text, not 7"):
        PushConsumer("127.0.0.1:9876", group="g", topic=wrong)


async def test_a_topic_may_be_left_and_another_one_taken() -> None:
    async with fake_cluster(t={"a": 1}, u={"a": 1}) as cluster, consumer_of(cluster) as consumer:
        await asyncio.sleep(1)
        consumer.unsubscribe("t")
        consumer.subscribe("u")
        await asyncio.sleep(1)
        assert consumer.assignment() == [MessageQueue("u", "a", 0)]


async def test_listeners_get_assigned_and_revoked_queues(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_cluster(t={"a": 2}) as cluster:
        heard: list[tuple[str, int]] = []
        first = consumer_of(cluster)
        first.on_assigned(lambda queues: heard.append(("came", len(queues))))

        async def went(queues: Sequence[MessageQueue]) -> None:
            heard.append(("went", len(queues)))
            raise ValueError("broken listener")

        first.on_revoked(went)
        await started(first)
        second = await started(consumer_of(cluster))
        assert heard == [("came", 2), ("went", 1)]
        assert "broken listener" in caplog.text
        await second.close()
        await asyncio.sleep(1)
        assert heard[2:] == [("came", 1)]
        cluster.a.put("t", 0, b"x")
        (message,) = await first.fetch(1)
        await message.ack()
        calls: list[tuple[Sequence[MessageQueue], int | None]] = []
        first.on_revoked(
            lambda queues: calls.append((queues, cluster.a.committed.get(("g", "t", 0))))
        )
        await first.close()
        assert heard[3:] == [("went", 2)]
        assert calls == [((MessageQueue("t", "a", 0), MessageQueue("t", "a", 1)), 1)]


async def test_a_strategy_that_raises_leaves_all_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    def broken(queues: Sequence[MessageQueue], members: Sequence[str]) -> Any:
        raise ZeroDivisionError("no idea")

    async with consuming({"a": 2}, strategy=broken) as (_cluster, consumer):
        await asyncio.sleep(5)
        assert ids(consumer) == []
        assert "no idea" in caplog.text


async def test_the_group_is_left_in_good_order() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        async with consumer_of(cluster) as consumer:
            await asyncio.sleep(1)
        (left,) = cluster.a.left
        assert (left.client_id, left.consumer_group) == (consumer.client_id, "g")
        assert not cluster.a.members["g"]
        await consumer.close()  # twice is fine


def test_a_wrong_topic_or_expression_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="topic name"):
        PushConsumer("127.0.0.1:1", group="g", topic="a b")
    with pytest.raises(UsageError, match="names no tag"):
        PushConsumer("127.0.0.1:1", group="g", topic="t", tags="||")


async def test_the_log_names_joins_new_queues_and_leaves(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "roquet.client")
    async with fake_cluster(t={"a": 4}) as cluster:
        config = config_of(ConsumerConfig)
        async with PushConsumer(cluster.address, group="g", topic="t", config=config) as one:
            await asyncio.sleep(1)
            async with PushConsumer(cluster.address, group="g", topic="t", config=config):
                await asyncio.sleep(30)
        broker = cluster.a.address
    logged = [record.getMessage() for record in caplog.records if record.levelname == "INFO"]
    assert logged[:3] == [
        f"{one.client_id} joins group g, by name servers {cluster.address}",
        f"{one.client_id} is known to the broker at {broker}",
        "group g: this member has gained t@a:0-3; it has 4 now",
    ]
    assert "group g: this member has given away t@a:2-3; it has 2 now" in logged
    assert logged[-1] == f"{one.client_id} has left group g"


async def test_no_message_is_lost_or_skipped_while_replica_and_master_take_turns() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        master, replica = cluster.a, await cluster.add_replica("a")
        seen: list[bytes] = []
        consumer = consumer_of(cluster, read_from=ReadFrom.REPLICA, save_period_ms=1_000)

        async def handle(message: ReceivedMessage) -> None:
            seen.append(message.body)

        await consumer.start()
        running = asyncio.create_task(consumer.run(handle))
        sent = [b"%d" % number for number in range(60)]
        for number, body in enumerate(sent):
            master.put("t", 0, body)
            if number >= 10:  # the replica is ten messages behind
                replica.put("t", 0, sent[number - 10])
            if number == 30:
                replica.pull_faults.append(CallRefused(ResponseCode.TOPIC_NOT_EXIST, "not yet"))
            await asyncio.sleep(1)
        assert seen == sent
        assert any(pull.queue_offset for pull in replica.pulls)
        assert master.committed["g", "t", 0] >= 58
        assert not replica.committed
        replica.put("t", 0, *sent[50:], b"last")
        await cluster.lose_master("a")
        await asyncio.sleep(40)
        assert seen == [*sent, b"last"]
        assert replica.committed["g", "t", 0] == 61
        await consumer.close()
        await running
