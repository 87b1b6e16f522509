from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace
from tests.admin.conftest import ClusterWithAdmin

from roquet.admin import group_fork, groups, offset_reset, topics
from roquet.admin.client import AdminClient
from roquet.admin.offset_reset import QueueEdge
from roquet.admin.topics import TopicSettings
from roquet.client import (
    ConsumeFrom,
    ConsumerConfig,
    MessageModel,
    PopConsumer,
    Producer,
    ProducerConfig,
    PushConsumer,
)
from roquet.model.errors import CallTimeout, NotFound, RoquetError, UsageError
from roquet.model.topic import SubscriptionGroup
from roquet.wire.call import Call, R, Reply
from roquet.wire.calls.admin.stats import GetRuntimeInfo
from roquet.wire.calls.admin.topic import CreateGroup, GetGroup
from roquet.wire.calls.bodies import KVTable
from roquet.wire.calls.offset import UpdateOffset
from roquet.wire.fastjson import codec

pytestmark = pytest.mark.virtual_time


async def orders(it: ClusterWithAdmin) -> int:
    """Eight messages a second apart, all handled by `billing`; the time of the fifth one."""
    await topics.create(it.admin, "orders", TopicSettings(read_queues=2, write_queues=2))
    await it.settle()
    moment = 0
    async with Producer(it.namesrv, config=ProducerConfig(clock=it.clock)) as producer:
        for number in range(8):
            moment = it.clock.now_ms() if number == 4 else moment
            await producer.send("orders", b"%d" % number)
            await it.clock.sleep(1_000)
    async with PushConsumer(it.namesrv, group="billing", topic="orders", config=FIRST) as consumer:
        assert await bodies(consumer, 8) == [b"%d" % n for n in range(8)]
    return moment


FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST)


async def bodies(consumer: PushConsumer | PopConsumer, count: int) -> list[bytes]:
    found = []
    for message in await consumer.fetch(count, 30_000):
        found.append(message.body)
        await message.ack()
    return sorted(found)


async def settings_of(it: ClusterWithAdmin, group: str) -> dict[str, SubscriptionGroup]:
    answers, _ = await it.admin.ask_each(await it.admin.brokers(), GetGroup(group=group))
    return {b: codec.loads(reply.body, SubscriptionGroup) for b, reply in answers.items()}


async def progress(it: ClusterWithAdmin, group: str) -> dict[tuple[str, str, int], int]:
    queues = (await groups.show(it.admin, group)).queues
    return {(q.topic, q.broker, q.queue_id): q.committed for q in queues}


async def test_the_copy_reads_from_the_moment_on_and_the_group_stays(
    cluster: ClusterWithAdmin,
) -> None:
    moment = await orders(cluster)
    before = await progress(cluster, "billing")
    planned = await group_fork.plan(cluster.admin, "billing", "replay", moment)
    assert sum(one.end - one.target for one in planned.positions) == 4
    with pytest.raises(NotFound):
        await groups.show(cluster.admin, "replay")
    assert await group_fork.fork(cluster.admin, planned) == ["broker-a", "broker-b"]
    assert (await groups.show(cluster.admin, "replay")).lag == 4
    async with PushConsumer(
        cluster.namesrv, group="replay", topic="orders", config=FIRST
    ) as consumer:
        assert await bodies(consumer, 5) == [b"4", b"5", b"6", b"7"]
    assert await progress(cluster, "billing") == before


async def test_a_copy_may_pop(cluster: ClusterWithAdmin) -> None:
    moment = await orders(cluster)
    await group_fork.fork(
        cluster.admin, await group_fork.plan(cluster.admin, "billing", "replay", moment)
    )
    async with PopConsumer(
        cluster.namesrv, group="replay", topic="orders", config=FIRST
    ) as consumer:
        assert await bodies(consumer, 5) == [b"4", b"5", b"6", b"7"]


async def test_the_copy_has_the_groups_settings_and_may_consume(cluster: ClusterWithAdmin) -> None:
    await orders(cluster)
    changes: Mapping[str, object] = {
        "retry_max_times": 3,
        "consume_message_orderly": True,
        "consume_enable": False,
        "attributes": {"+priority.factor": "50"},
    }
    await groups.create(cluster.admin, "billing", changes)
    planned = await group_fork.plan(cluster.admin, "billing", "replay", QueueEdge.FIRST)
    await group_fork.fork(cluster.admin, planned)
    wanted = {
        broker: replace(config, group_name="replay", consume_enable=True)
        for broker, config in (await settings_of(cluster, "billing")).items()
    }
    assert await settings_of(cluster, "replay") == wanted
    assert {config.attributes["priority.factor"] for config in wanted.values()} == {"50"}


async def test_retry_topics_are_no_part_of_the_copy(cluster: ClusterWithAdmin) -> None:
    await orders(cluster)
    async with PushConsumer(
        cluster.namesrv, group="billing", topic="orders", config=FIRST
    ) as consumer:
        async with Producer(cluster.namesrv) as producer:
            await producer.send("orders", b"fails")
        message = await consumer.next(30_000)
        assert message is not None
        await message.nack(1_000)
        assert await bodies(consumer, 1) == [b"fails"]
        planned = await group_fork.plan(cluster.admin, "billing", "replay", QueueEdge.FIRST)
    assert {one.queue.topic for one in planned.positions} == {"orders"}


async def test_only_topics_that_the_group_reads_are_copied(cluster: ClusterWithAdmin) -> None:
    await orders(cluster)
    await topics.create(cluster.admin, "bills", TopicSettings())
    await cluster.settle()
    both = ["bills", "orders"]
    async with PushConsumer(cluster.namesrv, group="billing", topic=both):
        await cluster.settle()
        planned = await group_fork.plan(cluster.admin, "billing", "replay", QueueEdge.FIRST)
        assert {one.queue.topic for one in planned.positions} == {*both}
    planned = await group_fork.plan(cluster.admin, "billing", "replay", QueueEdge.FIRST, ["orders"])
    assert {one.queue.topic for one in planned.positions} == {"orders"}
    with pytest.raises(UsageError, match=r"reads no topic 'order'; did you mean 'orders'"):
        await group_fork.plan(cluster.admin, "billing", "replay", QueueEdge.FIRST, ["order"])


async def test_a_name_that_is_taken_is_refused(cluster: ClusterWithAdmin) -> None:
    await orders(cluster)
    await groups.create(cluster.admin, "audit", {})
    for name, reason in (
        ("billing", "is there already"),
        ("audit", "is there already"),
        ("CID_RMQ_SYS_x", "the system's own"),
        ("%RETRY%billing", "the system's own"),
        ("a b", "may hold only"),
    ):
        with pytest.raises(UsageError, match=reason):
            await group_fork.plan(cluster.admin, "billing", name, QueueEdge.FIRST)


async def test_a_group_that_cannot_be_copied_is_refused(cluster: ClusterWithAdmin) -> None:
    await orders(cluster)
    await groups.create(cluster.admin, "idle", {})
    with pytest.raises(NotFound, match="unknown to every broker"):
        await group_fork.plan(cluster.admin, "nobody", "replay", QueueEdge.FIRST)
    with pytest.raises(UsageError, match="has read no topic yet"):
        await group_fork.plan(cluster.admin, "idle", "replay", QueueEdge.FIRST)
    future_ms = cluster.clock.now_ms() + 60_000
    with pytest.raises(UsageError, match="yet to come"):
        await group_fork.plan(cluster.admin, "billing", "replay", future_ms)
    everybody = ConsumerConfig(message_model=MessageModel.BROADCASTING)
    async with PushConsumer(cluster.namesrv, group="news", topic="orders", config=everybody):
        await cluster.settle()
        with pytest.raises(UsageError, match="broadcasts"):
            await group_fork.plan(cluster.admin, "news", "replay", QueueEdge.FIRST)


class ChangedAdmin(AdminClient):
    """An admin client that is answered something else to requests of one kind."""

    kind: type[Call[Any]]
    answer: Any

    async def ask(self, address: str, call: Call[R], timeout_ms: int | None = None) -> R:
        if isinstance(call, self.kind):
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer  # type: ignore[no-any-return]
        return await super().ask(address, call, timeout_ms)


async def test_a_moment_that_is_gone_says_what_is_the_oldest(
    cluster: ClusterWithAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = await orders(cluster)
    plan_reset = offset_reset.plan

    async def shortened(*args: Any) -> Any:
        """Queues whose first messages have been deleted."""
        return [replace(one, begin=1, target=max(one.target, 1)) for one in await plan_reset(*args)]

    async with ChangedAdmin(cluster.namesrv) as admin:
        admin.kind, table = GetRuntimeInfo, {group_fork.OLDEST: str(moment)}
        admin.answer = Reply(body=codec.dumps(KVTable(table=table)))
        await group_fork.plan(admin, "billing", "replay", moment - 1)  # no queue has lost any
        monkeypatch.setattr(offset_reset, "plan", shortened)
        await group_fork.plan(admin, "billing", "replay", moment)
        with pytest.raises(
            UsageError, match=r"gone from broker-.: its oldest one is of 20"
        ) as info:
            await group_fork.plan(admin, "billing", "replay", moment - 1)
        assert "--at first" in str(info.value)
        await group_fork.plan(admin, "billing", "replay", QueueEdge.FIRST)
        admin.answer = CallTimeout("no reply within 3000 ms")
        with pytest.raises(CallTimeout):
            await group_fork.plan(admin, "billing", "replay", moment)


async def test_a_copy_that_was_not_finished_hands_out_nothing(cluster: ClusterWithAdmin) -> None:
    moment = await orders(cluster)
    planned = await group_fork.plan(cluster.admin, "billing", "replay", moment)
    async with ChangedAdmin(cluster.namesrv) as admin:
        admin.kind, admin.answer = UpdateOffset, CallTimeout("no reply within 3000 ms")
        with pytest.raises(RoquetError, match="`roquet group delete replay`, and begin anew"):
            await group_fork.fork(admin, planned)
        admin.kind = CreateGroup
        with pytest.raises(CallTimeout):
            await group_fork.fork(admin, replace(planned, name="other"))
    assert (await groups.show(cluster.admin, "replay")).disabled_on == ["broker-a", "broker-b"]
    async with PushConsumer(
        cluster.namesrv, group="replay", topic="orders", config=FIRST
    ) as consumer:
        assert await consumer.fetch(1, 20_000) == []
    await groups.delete(cluster.admin, "replay")
    await group_fork.fork(
        cluster.admin, await group_fork.plan(cluster.admin, "billing", "replay", moment)
    )
