from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from roquet.admin import groups
from roquet.admin.client import AdminClient
from roquet.admin.group_info import GroupInfo
from roquet.client.config import ClientConfig
from roquet.model.errors import UsageError
from roquet.model.flags import PullFlag
from roquet.model.subscription import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    Subscription,
)
from roquet.model.topic import READ_WRITE
from roquet.net.channel import Channel
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster, cluster
from roquet.wire.calls.admin.topic import CreateTopic
from roquet.wire.calls.bodies import AssignmentQuery, RequestMode
from roquet.wire.calls.heartbeat import Heartbeat, QueryAssignment, SetRequestMode
from roquet.wire.calls.offset import UpdateOffset
from roquet.wire.calls.pull import Pull
from roquet.wire.calls.send import Send
from roquet.wire.fastjson import codec

pytestmark = pytest.mark.virtual_time


class ScriptedGroup:
    """Two brokers with some queues of a topic each, and members that follow a test."""

    def __init__(self, running: Cluster, queues: int = 2) -> None:
        self.queues = queues
        self.running = running
        self.clock = this_loop().clock
        self.admin = AdminClient(running.namesrv_addr, ClientConfig(clock=self.clock))
        self.channels: dict[tuple[str, int], Channel] = {}

    async def connect(self, member: str, broker: int) -> Channel:
        port = self.running.brokers[broker].port
        if (member, broker) not in self.channels:
            channel = await Channel.connect("127.0.0.1", port, clock=self.clock)
            self.channels[member, broker] = channel
        return self.channels[member, broker]

    async def join(
        self, member: str, expression: str = "*", brokers: tuple[int, ...] = (0, 1), **fields: Any
    ) -> None:
        subscriptions = [
            Subscription(topic="orders", sub_string=expression),
            Subscription(topic="%RETRY%billing"),
        ]
        data = ConsumerData(group_name="billing", subscription_data_set=subscriptions, **fields)
        body = codec.dumps(HeartbeatData(client_id=member, consumer_data_set=[data]))
        for broker in brokers:
            await (await self.connect(member, broker)).call(Heartbeat(body=body))

    async def commit(self, member: str, broker: int, queue_id: int, offset: int = 0) -> None:
        call = UpdateOffset(
            consumer_group="billing", topic="orders", queue_id=queue_id, commit_offset=offset
        )
        await (await self.connect(member, broker)).call(call)

    async def pull(self, member: str, broker: int, queue_id: int, topic: str = "orders") -> None:
        call = Pull(
            consumer_group="billing",
            topic=topic,
            queue_id=queue_id,
            queue_offset=0,
            max_msg_nums=1,
            sys_flag=int(PullFlag.SUSPEND | PullFlag.SUBSCRIPTION),
            commit_offset=0,
            suspend_timeout_millis=15_000,
            subscription="*",
            sub_version=0,
        )
        (await self.connect(member, broker)).oneway(call)
        await self.clock.sleep(10)

    async def ask(self, member: str, strategy: str) -> None:
        body = AssignmentQuery(
            topic="orders", consumer_group="billing", client_id=member, strategy_name=strategy
        )
        await (await self.connect(member, 0)).call(QueryAssignment(body=codec.dumps(body)))

    async def send(self, broker: int, queue_id: int, count: int) -> None:
        channel = await self.connect("producer", broker)
        for _ in range(count):
            send = Send(
                producer_group="p", topic="orders", queue_id=queue_id, born_timestamp=0, body=b"x"
            )
            await channel.call(send)

    async def own_all(self) -> None:
        """c1 has the queues of the first broker, c2 those of the second."""
        for broker, member in enumerate(("c1", "c2")):
            for queue_id in range(2):
                await self.pull(member, broker, queue_id)
            await self.pull(member, broker, 0, "%RETRY%billing")

    async def show(self) -> GroupInfo:
        return await groups.show(self.admin, "billing")

    async def __aenter__(self) -> "ScriptedGroup":
        for broker in range(2):
            create = CreateTopic(
                topic="orders",
                read_queue_nums=self.queues,
                write_queue_nums=self.queues,
                perm=READ_WRITE,
            )
            await (await self.connect("operator", broker)).call(create)
        await self.clock.sleep(1_000)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.admin.__aexit__(None, None, None)
        for channel in self.channels.values():
            await channel.close()


@asynccontextmanager
async def open_story(queues: int = 2) -> AsyncIterator[ScriptedGroup]:
    clock = this_loop().clock
    async with (
        cluster(brokers=2, clock=clock, auto_create_topic=False) as running,
        ScriptedGroup(running, queues) as story,
    ):
        yield story


@pytest.fixture
async def story() -> AsyncIterator[ScriptedGroup]:
    async with open_story() as story:
        yield story


def owners(group: GroupInfo) -> list[list[str] | None]:
    return [queue.owners for queue in group.queues if queue.topic == "orders"]


async def test_a_group_in_good_order_is_shown_with_owners_and_lag(story: ScriptedGroup) -> None:
    for member in ("c1", "c2"):
        await story.join(member)
    await story.own_all()
    await story.send(1, 1, 7)
    await story.commit("c2", 1, 1, 3)
    found = await story.show()
    assert found.problems == []
    assert owners(found) == [["c1"], ["c1"], ["c2"], ["c2"]]
    assert (found.lag, found.queues[-1].lag, found.queues[-1].end) == (4, 4, 7)
    assert [(m.client_id, m.language) for m in found.members or ()] == [
        ("c1", "PYTHON"),
        ("c2", "PYTHON"),
    ]
    assert found.message_model == "CLUSTERING"


async def test_a_queue_without_an_owner_and_one_with_two_are_flagged(story: ScriptedGroup) -> None:
    for member in ("c1", "c2"):
        await story.join(member)
    await story.own_all()
    await story.join("c3")
    await story.pull("c3", 1, 1)
    await story.clock.sleep(2_000)
    await story.pull("c2", 1, 1)
    await story.channels["c1", 0].close()
    await story.clock.sleep(50)
    found = await story.show()
    assert found.problems[0] == "broker-a has not heard of c1: members differ about who they are"
    assert "orders broker-a queue 0 has no owner" in found.problems
    assert "orders broker-b queue 1 has 2 owners: c2, c3" in found.problems


async def test_members_that_listen_to_different_things_are_flagged(story: ScriptedGroup) -> None:
    for member, expression in (("c1", "*"), ("c2", "paid"), ("c3", "*")):
        await story.join(member, expression)
    await story.own_all()
    found = await story.show()
    assert found.problems == [
        "members listen to different things: orders * (c1, c3) · orders paid (c2)"
    ]


async def test_members_that_disagree_how_to_share_are_flagged(story: ScriptedGroup) -> None:
    await story.join("c1", message_model=MessageModel.BROADCASTING)
    await story.join("c2")
    await story.own_all()
    (problem,) = (await story.show()).problems
    assert problem.startswith("members disagree whether they share the messages: ")


async def test_a_decided_group_is_shown_as_it_was_decided(story: ScriptedGroup) -> None:
    for member in ("c1", "c2"):
        await story.join(member)
        await story.pull(member, 0, 0, "%RETRY%billing")
        await story.pull(member, 1, 0, "%RETRY%billing")
    await story.ask("c1", "STICKY")
    await story.ask("c2", "STICKY")
    found = await story.show()
    assert [(d.topic, d.strategy, d.number) for d in found.assignments] == [("orders", "STICKY", 1)]
    assert sorted(str(who) for who in owners(found)) == ["['c1']"] * 2 + ["['c2']"] * 2
    assert found.problems == []
    await story.ask("c2", "LAG_WEIGHTED")
    assert (await story.show()).problems == [
        "members use different strategies: STICKY (c1) · LAG_WEIGHTED (c2)"
    ]


async def test_a_member_that_allocates_itself_in_a_broker_decided_group_is_flagged(
    story: ScriptedGroup,
) -> None:
    for member in ("c1", "c2"):
        await story.join(member)
    await story.own_all()
    await story.ask("c1", "STICKY")
    assert (await story.show()).problems == [
        "members use different strategies: STICKY (c1) · a rule of its own (c2)"
    ]


async def test_members_that_share_by_different_rules_of_their_own_are_flagged(
    story: ScriptedGroup,
) -> None:
    await story.join("c1", strategy="AVG")
    await story.join("c2")  # a genuine member: it does not say
    await story.own_all()
    found = await story.show()
    assert [member.strategy for member in found.members or ()] == ["AVG", None]
    assert found.problems == []
    await story.join("c2", strategy="CONFIG")
    assert (await story.show()).problems == [
        "members use different strategies: AVG (c1) · CONFIG (c2)"
    ]


async def test_push_and_pop_members_of_one_group_are_flagged(story: ScriptedGroup) -> None:
    await story.join("c1")
    await story.join("c2", consume_type=ConsumeType.CONSUME_POP)
    problem = "members take messages in different ways: push (c1) · pop (c2)"
    assert problem in (await story.show()).problems


async def test_members_that_pop_or_broadcast_own_no_queue(story: ScriptedGroup) -> None:
    await story.join("c1", message_model=MessageModel.BROADCASTING)
    found = await story.show()
    assert owners(found) == [None] * 4
    assert found.problems == []
    await story.join("c1")
    pops = codec.dumps(RequestMode(topic="orders", consumer_group="billing", mode="POP"))
    for broker in range(2):
        await (await story.connect("operator", broker)).call(SetRequestMode(body=pops))
    assert owners(await story.show()) == [None] * 4


async def test_a_group_of_pop_consumers_owns_nothing(story: ScriptedGroup) -> None:
    await story.join("c1", consume_type=ConsumeType.CONSUME_POP)
    found = await story.show()
    assert (owners(found), found.problems) == ([None] * 4, [])


async def test_many_queues_with_one_fault_are_counted() -> None:
    assert groups.NAMED_MAX == 16
    async with open_story(queues=9) as story:
        await story.join("c1")
        await story.pull("c1", 0, 0)
        shown = await story.show()
        assert [p for p in shown.problems if p.startswith("orders")] == [
            "orders: 17 queues have no owner"
        ]
        await story.pull("c1", 0, 1)
        shown = await story.show()
        assert len([p for p in shown.problems if p.startswith("orders broker-")]) == 16


async def test_a_group_whose_members_have_gone_still_has_its_lag(story: ScriptedGroup) -> None:
    await story.join("c1")
    await story.send(0, 0, 5)
    await story.commit("c1", 0, 0, 2)
    for broker in range(2):
        await story.channels["c1", broker].close()
    await story.clock.sleep(50)
    found = await story.show()
    assert (found.members, found.problems, found.lag) == ([], [], 3)


async def test_a_broker_that_does_not_answer_is_named(story: ScriptedGroup) -> None:
    await story.join("c1", brokers=(0,))
    brokers = await story.admin.brokers()
    await story.running.stop_broker(1)

    async def as_before() -> Any:
        return brokers

    story.admin.brokers = as_before  # type: ignore[method-assign]
    found = await story.show()
    assert found.problems[0].startswith("broker-b does not answer: its part is missing here (")


async def test_an_unknown_group_is_a_usage_error(story: ScriptedGroup) -> None:
    await story.join("c1")
    with pytest.raises(UsageError, match="unknown to every broker; did you mean 'billing'"):
        await groups.show(story.admin, "biling")
    with pytest.raises(UsageError, match="may hold only"):
        await groups.show(story.admin, "no good")


async def test_all_groups_are_listed_those_of_the_system_when_asked_for(
    story: ScriptedGroup,
) -> None:
    await story.join("c1")
    await story.send(0, 0, 5)
    await story.commit("c1", 0, 0, 2)
    (one,) = await groups.summaries(story.admin)
    assert (one.name, one.members, one.lag) == ("billing", 1, 3)
    names = [one.name for one in await groups.summaries(story.admin, system=True)]
    assert "TOOLS_CONSUMER" in names
    assert await groups.list_names(story.admin) == ["billing"]
