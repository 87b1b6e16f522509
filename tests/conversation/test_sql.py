"""Messages chosen by their properties: the broker filters, whoever asks and however."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.conversation.conftest import (
    config_of,
    consumer_of,
    next_of,
    producer_of,
    puller_of,
    virtual_cluster,
)

from roquet.client import ConsumerConfig, Message, PopConsumer, PushConsumer
from roquet.model.errors import CallRefused, ConnectionLost, UsageError
from roquet.model.results import PullStatus
from roquet.model.subscription import Subscription
from roquet.net.channel import Channel
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster
from roquet.wire.call import Call
from roquet.wire.calls.bodies import CheckClientBody
from roquet.wire.calls.heartbeat import CheckSubscription
from roquet.wire.calls.pop import Pop
from roquet.wire.calls.pull import Pull
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

SQL = "amount > 90 AND region IN ('eu', 'us')"


@asynccontextmanager
async def started(count: int = 0, **settings: Any) -> AsyncIterator[Cluster]:
    """A cluster with messages of all amounts below `count`, three regions in turn."""
    async with virtual_cluster(**settings) as running:
        await send(running, range(count))
        await asyncio.sleep(1)  # until the name server knows the topic
        yield running


async def send(running: Cluster, amounts: Iterable[int]) -> None:
    async with producer_of(running) as producer:
        await producer.send_many([message(amount) for amount in amounts])


def message(amount: int) -> Message:
    properties = {"amount": str(amount), "region": ("eu", "us", "asia")[amount % 3]}
    return Message("t", b"%d" % amount, tag="T", properties=properties)


def wanted(count: int) -> list[bytes]:
    return sorted(b"%d" % amount for amount in range(91, count) if amount % 3 != 2)


async def test_a_push_consumer_gets_matching_messages_and_commits_past_others() -> None:
    async with started(200) as running:
        member = consumer_of(running, sql=SQL)
        async with member:
            found = await member.fetch(200, 1_000)
            assert sorted(m.body for m in found) == wanted(200)
            assert member.subscriptions == {"t": SQL}
            for one in found:
                await one.ack()
            await asyncio.sleep(1)
            assert sum((await member.lag()).values()) == 0
        broker = running.brokers[0].broker
        ends = [(q, broker.log.store.bounds("t", q)[1]) for q in broker.log.store.queue_ids("t")]
        assert all(broker.tables.offsets.get("g", "t", q) == end for q, end in ends)


async def test_a_long_poll_is_answered_at_once_by_a_matching_message_only() -> None:
    async with started(5) as running:
        member = consumer_of(running, sql=SQL)
        async with member:
            assert await member.next(60_000) is None
            loop, began = this_loop(), this_loop().time()
            for amount in (1, 2, 95, 3, 96):
                await send(running, [amount])
            assert (await next_of(member)).body == b"96"
            assert loop.time() - began < 2
            assert await member.next(60_000) is None


async def test_a_failed_message_comes_again_whatever_it_matches() -> None:
    async with started(93) as running:
        member = consumer_of(running, sql="amount = 92")
        async with member:
            first = await next_of(member)
            await first.nack()
            again = await next_of(member)
            assert (first.body, again.body, again.reconsume_times) == (b"92", b"92", 1)


async def test_a_subscription_may_change_from_tags_to_an_expression_and_back() -> None:
    async with started() as running:
        member = consumer_of(running, tags="none")
        async with member:
            await send(running, [0])
            assert await member.next(20_000) is None
            member.subscribe("t", sql="amount >= 5")
            await send(running, [4, 5])
            assert (await next_of(member)).body == b"5"
            member.subscribe("t", "T")
            await send(running, [3])
            # What a pull that waited had passed over is looked at anew by others' measure.
            assert {(await next_of(member)).body for _ in range(2)} == {b"4", b"3"}


async def test_pop_consumers_share_the_matching_messages() -> None:
    async with started(200) as running:
        config = config_of(ConsumerConfig)
        members = [
            PopConsumer(running.namesrv_addr, group="g", topic="t", sql=SQL, config=config)
            for _ in range(2)
        ]
        found = []
        async with members[0], members[1]:
            for _ in range(len(wanted(200))):
                done, _rest = await asyncio.wait(
                    [asyncio.ensure_future(member.next(2_000)) for member in members]
                )
                for one in done:
                    if (taken := one.result()) is not None:
                        found.append(taken.body)
                        await taken.ack()
            await send(running, [1, 98])
            last = await asyncio.gather(*(member.next(5_000) for member in members))
            assert [one.body for one in last if one is not None] == []
            await send(running, [97])
            last = await asyncio.gather(*(member.next(5_000) for member in members))
            assert [one.body for one in last if one is not None] == [b"97"]
        assert sorted(found) == wanted(200)


async def test_a_pull_consumer_may_ask_for_an_expression_each_time() -> None:
    async with started(300) as running:
        reader = puller_of(running)
        async with reader:
            found = []
            for queue in await reader.queues("t"):
                end, offset = await reader.max_offset(queue), 0
                while offset < end:
                    result = await reader.pull(queue, offset, 5, sql=SQL)
                    assert result.status in (PullStatus.FOUND, PullStatus.NO_MATCH)
                    assert result.next_offset > offset
                    found += [one.body for one in result.messages]
                    offset = result.next_offset
            assert sorted(found) == wanted(300)
            with pytest.raises(UsageError, match="at character 10"):
                await reader.pull(queue, 0, sql="amount > ")
            with pytest.raises(UsageError, match="not by both"):
                await reader.pull(queue, 0, sql="amount > 5", tags="T")


async def test_assigned_and_subscribed_pull_consumers_filter_too() -> None:
    async with started(200) as running:
        async with puller_of(running) as reader:
            await reader.assign(await reader.queues("t"), sql=SQL)
            found = await reader.fetch(200, 1_000)
            assert sorted(one.body for one in found) == wanted(200)
        async with puller_of(running, "h") as reader:
            await reader.subscribe("t", sql=SQL)
            found = await reader.fetch(200, 1_000)
            assert sorted(one.body for one in found) == wanted(200)


async def test_a_bad_expression_is_refused_when_the_consumer_subscribes() -> None:
    config = config_of(ConsumerConfig)
    for kind in (PushConsumer, PopConsumer):
        with pytest.raises(UsageError, match="there is no LIKE"):
            kind("127.0.0.1:1", group="g", topic="t", sql="a LIKE 'x%'", config=config)
        with pytest.raises(UsageError, match="not by both"):
            kind("127.0.0.1:1", group="g", topic="t", sql="a = 1", tags="T", config=config)


async def test_a_broker_without_sql_filters_is_reported_at_the_start() -> None:
    async with started(1, property_filter=False) as running:
        config = config_of(ConsumerConfig)
        for kind in (PushConsumer, PopConsumer):
            member = kind(
                running.namesrv_addr, group="g", topic="t", sql="amount > 5", config=config
            )
            with pytest.raises(CallRefused, match="filter message by SQL92"):
                await member.start()
            assert not member.is_open
        async with puller_of(running) as reader:
            with pytest.raises(CallRefused, match="filter message by SQL92"):
                await reader.subscribe("t", sql="amount > 5")
            queues = await reader.queues("t")
            with pytest.raises(CallRefused, match="filter message by SQL92"):
                await reader.assign(queues, sql="amount > 5")


async def test_apaches_reading_of_expressions_is_used_if_both_sides_are_configured() -> None:
    async with started(3, sql_compatibility=True) as running:
        member = consumer_of(running, sql="amount = 0x10", sql_compatibility=True)
        async with member:
            assert (await next_of(member)).body == b"0"
    async with started(3) as running:
        member = consumer_of(running, sql="amount = 0x10", sql_compatibility=True)
        with pytest.raises(CallRefused, match="not 'x10', at character 11"):
            await member.start()


async def test_a_consumer_may_start_before_its_topic_and_its_broker() -> None:
    async with virtual_cluster(brokers=0) as running:
        member = consumer_of(running, sql="amount > 5")
        async with member:
            await running.add_broker()
            await send(running, [5, 6])
            assert (await next_of(member)).body == b"6"


BOMBS = [
    "(" * 10_000 + "a = 1" + ")" * 10_000,
    "NOT " * 10_000 + "a",
    "a = 1" + " = TRUE" * 5_000,
    " OR ".join(["a > 1"] * 5_000),
    "a = " + "9" * 100_000,
    "a = '" + "x" * 200_000 + "'",
    "a IN ('" + "','".join("x" * 2_000) + "'",
]


async def test_whatever_expression_a_peer_sends_it_is_answered_at_once() -> None:
    async with started(93) as running:
        channel = await Channel.connect("127.0.0.1", running.brokers[0].port)
        for bomb in [*BOMBS, "", "\0", "'", "a b", "\ud800 = 1"]:
            for call in (
                pull_of(bomb), pull_of(bomb, sys_flag=6), pop_of(bomb), check_of(bomb)
            ):  # fmt: skip
                with pytest.raises(CallRefused) as refused:
                    await channel.call(call)
                assert refused.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
                assert len(refused.value.remark or "") < 400
        found = await channel.call(pull_of("amount >= 0 OR amount < 0"))
        assert found.code == 0
        assert len(running.brokers[0].broker.log.filters) < 20
        await channel.close()


async def test_an_expression_longer_than_any_header_ends_its_connection_alone() -> None:
    async with started(93) as running:
        bad, good = [await Channel.connect("127.0.0.1", running.brokers[0].port) for _ in range(2)]
        with pytest.raises(ConnectionLost):
            await bad.call(pull_of("a = '" + "x" * 3_000_000 + "'"))
        assert (await good.call(pull_of("amount >= 0 OR amount < 0"))).code == 0
        await bad.close()
        await good.close()


def pull_of(expression: str, **fields: Any) -> Pull:
    given: dict[str, Any] = {"sys_flag": 4, "suspend_timeout_millis": 0, **fields}
    return Pull(
        consumer_group="g", topic="t", queue_id=0, queue_offset=0, max_msg_nums=32,
        commit_offset=0, subscription=expression, sub_version=0, expression_type="SQL92", **given,
    )  # fmt: skip


def pop_of(expression: str) -> Call[Any]:
    if not expression:  # which a pop does not look at
        return pull_of(expression)
    return Pop(
        consumer_group="g", topic="t", queue_id=-1, max_msg_nums=32, invisible_time=60_000,
        poll_time=0, born_time=this_loop().clock.now_ms(), init_mode=0, exp=expression,
        exp_type="SQL92",
    )  # fmt: skip


def check_of(expression: str) -> CheckSubscription:
    wanted = Subscription(topic="t", sub_string=expression, expression_type="SQL92")
    body = CheckClientBody(client_id="c", group="g", subscription_data=wanted)
    return CheckSubscription(body=codec.dumps(body))
