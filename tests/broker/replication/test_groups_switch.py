"""Groups and topics across a switch of the master: locks, progress, order, and ends of queues."""

import asyncio
from itertools import pairwise
from random import Random
from typing import Any, Final

import msgspec
import pytest
from tests.broker.replication.role_switches import (
    SWITCHES,
    Switch,
    ask,
    asked,
    designate,
    kill,
    stop,
)
from tests.conversation.failover_group import CLIENT, NAMESRV, PORT, TOPIC, Group, group, settled

from roquet.broker.tables.locks import LIFETIME_MS
from roquet.broker.tables.replica_copies import SILENCE_MS, WAIT_MS
from roquet.client import ConsumeFrom, ConsumerConfig, PushConsumer, ReceivedMessage
from roquet.model.errors import CallError
from roquet.model.queue import MessageQueue
from roquet.model.route import TopicRoute
from roquet.model.topic import SubscriptionGroup
from roquet.store.retention import local_hour
from roquet.testing.clock import START_MS
from roquet.wire.calls.admin.topic import CreateGroup, CreateTopic, DeleteTopic
from roquet.wire.calls.bodies import LockBody, LockedQueues
from roquet.wire.calls.heartbeat import LockQueues
from roquet.wire.calls.offset import MaxOffset, QueryOffset, UpdateOffset
from roquet.wire.calls.route import GetRoute
from roquet.wire.calls.send import Send, SendBatch
from roquet.wire.fastjson import codec

pytestmark = pytest.mark.virtual_time

QUEUES = [MessageQueue(TOPIC, "g", number) for number in range(4)]

RENEW_MS = 20_000
"""Ms between two renewals of a member's locks."""

LOOKS: Final = 60

COUNT: Final = 40

CREATE = CreateTopic(topic="new", default_topic="TBW102", read_queue_nums=3, write_queue_nums=3,
                     perm=6, topic_filter_type="SINGLE_TAG")  # fmt: skip

QUEUE_COUNT = 4

HANDLING_S = 0.02


async def lock(running: Group, number: int, member: str) -> list[MessageQueue]:
    """Ask a broker for the locks of all queues; gives those that the member has."""
    body = codec.dumps(LockBody(consumer_group="billing", client_id=member, mq_set=QUEUES))
    reply = await asked(running, number, LockQueues(body=body))
    return codec.loads(reply.body, LockedQueues).lock_ok_mq_set


@pytest.mark.parametrize("switch", SWITCHES.values(), ids=SWITCHES)
async def test_an_owner_locks_again_at_the_new_master_and_keeps_others_out(switch: Switch) -> None:
    async with group() as running:
        number = await running.settled(3)
        await running.send_on(["first"])
        assert await lock(running, number, "owner") == QUEUES
        number = await switch(running)
        assert await lock(running, number, "owner") == QUEUES
        assert await lock(running, number, "other") == []
        await running.loop.clock.sleep(LIFETIME_MS)
        assert await lock(running, number, "other") == QUEUES, "nobody renewed them"


async def test_nobody_has_two_owners_once_the_former_one_has_renewed() -> None:
    async with group() as running:
        before = await running.settled(3)
        await running.send_on(["first"])
        assert await lock(running, before, "owner") == QUEUES
        number = await designate(running, 2)
        assert await lock(running, number, "other") == QUEUES, "locks are not stored"
        assert await lock(running, before, "owner") == [], "a replica grants none"
        assert await lock(running, number, "owner") == []
        await running.loop.clock.sleep(RENEW_MS)
        assert await lock(running, number, "other") == QUEUES
        assert await lock(running, number, "owner") == []


async def test_locks_of_a_former_term_do_not_count_when_a_broker_leads_again() -> None:
    async with settled(["first"]) as running:
        assert await lock(running, 1, "owner") == QUEUES
        await designate(running, 2)
        assert await lock(running, 2, "other") == QUEUES
        await designate(running, 1)
        assert await lock(running, 1, "other") == QUEUES


@pytest.mark.parametrize("switch", SWITCHES.values(), ids=SWITCHES)
async def test_progress_that_was_committed_a_moment_before_is_known_to_the_new_master(
    switch: Switch,
) -> None:
    async with group() as running:
        number = await running.settled(3)
        await running.send_on(f"m{n}" for n in range(5))
        created = CreateGroup(body=codec.dumps(SubscriptionGroup(group_name="billing")))
        await asked(running, number, created)
        place: dict[str, Any] = {"consumer_group": "billing", "topic": TOPIC, "queue_id": 0}
        for offset in (2, 4):
            await asked(running, number, UpdateOffset(**place, commit_offset=offset))
            await running.loop.clock.sleep(200)
        number = await switch(running)
        assert (await asked(running, number, QueryOffset(**place))).offset == 4
        await asked(running, number, UpdateOffset(**place, commit_offset=5))
        assert (await asked(running, number, QueryOffset(**place))).offset == 5


@pytest.mark.parametrize("switch", [stop])
async def test_retention_goes_on_at_the_new_master(switch: Switch) -> None:
    hour = local_hour(START_MS)
    settings: dict[str, Any] = {
        "log_file_size": 16 * 1024,
        "retention": 120_000,
        "delete_hour": hour,
    }
    async with settled((f"{n}" + "x" * 4_000 for n in range(12)), **settings) as running:
        number = await switch(running)
        store = running.brokers[number].broker.log.store
        assert store.begin_position == 0, "nothing is deleted early"
        await running.loop.clock.sleep(125_000)
        await running.send_on(["new"])
        await running.loop.clock.sleep(15_000)
        begins = [server.broker.log.store.begin_position for server in running.brokers.values()]
        assert min(begins) >= 2 * 16 * 1024, "old files are deleted at master and replicas"
        assert store.bounds(TOPIC, 0)[0] > 0
        await running.send_on(["newer"])


async def end_at_leader(running: Group) -> int | None:
    """End of the queue at the leader that name servers show; None while nobody tells it."""
    asking = ask(running, NAMESRV, 9876, GetRoute(topic=TOPIC))
    route = codec.loads((await running.hosts.run(CLIENT, asking)).body, TopicRoute)
    leader = route.broker_datas[0].leader if route.broker_datas else None
    if leader is None:
        return None
    host, call = leader.split(":")[0], MaxOffset(topic=TOPIC, queue_id=0)
    try:
        return (await running.hosts.run(CLIENT, ask(running, host, PORT, call, 300))).offset
    except CallError:
        return None


@pytest.mark.parametrize("is_noticed", [True, False])
async def test_the_end_of_a_queue_never_goes_back_while_its_master_is_restarted(
    is_noticed: bool,
) -> None:
    async with group() as running:
        number = await running.settled(3)
        for body in range(COUNT):
            await running.send(f"{body}")
        await running.loop.clock.sleep(1_000)
        if not is_noticed:  # name servers show it until it registers anew
            running.part(number)
        await running.kill(number)
        running.network.heal()
        await running.start_broker(number)
        seen = []
        for _ in range(LOOKS):
            seen.append(await end_at_leader(running))
            await running.loop.clock.sleep(50)
        assert set(seen) <= {COUNT, None}
        assert seen[-1] == COUNT


async def kill_at_once(running: Group) -> int:
    """Kill the master in the moment of an answer; gives the next one."""
    number = running.master()
    assert number is not None
    await running.kill(number)
    return await running.settled(2)


async def creation_ms(running: Group, topic: str) -> int:
    """How long it takes to create a topic."""
    clock = running.loop.clock
    began_ms = clock.monotonic_ms()
    call = CreateTopic(topic=topic, default_topic="TBW102", read_queue_nums=1, write_queue_nums=1,
                       perm=6, topic_filter_type="SINGLE_TAG")  # fmt: skip
    await asked(running, running.master() or 0, call)
    return clock.monotonic_ms() - began_ms


async def test_a_topic_or_group_made_in_the_moment_of_a_kill_is_known_to_the_new_master() -> None:
    async with settled(["first"]) as running:
        await asked(running, 1, CREATE)
        number = await kill_at_once(running)
        made = running.brokers[number].broker.tables.topics.get("new")
        assert made is not None
        assert made.write_queue_nums == 3
        created = CreateGroup(body=codec.dumps(SubscriptionGroup(group_name="billing")))
        await asked(running, number, created)
        await asked(running, number, DeleteTopic(topic="new"))
        await running.start_broker(1)
        await running.settled(3)
        tables = running.brokers[await kill_at_once(running)].broker.tables
        assert tables.groups.get("billing") is not None
        assert tables.topics.get("new") is None


@pytest.mark.parametrize("kind", [Send, SendBatch])
async def test_a_topic_of_a_send_in_the_moment_of_a_kill_is_known_to_the_new_master(
    kind: type[Send] | type[SendBatch],
) -> None:
    async with settled() as running:
        body = b"body" if kind is Send else b"\0\0\0\x1a" + bytes(8) + b"\0\0\0\0\0\0\0\4body\0\0"
        call = kind(
            producer_group="p", topic="fresh", default_topic_queue_nums=5, queue_id=4,
            born_timestamp=running.loop.clock.now_ms(), properties="", body=body,
            batch=kind is SendBatch,
        )  # fmt: skip
        assert (await asked(running, 1, call)).code == 0
        number = await kill_at_once(running)
        broker = running.brokers[number].broker
        made = broker.tables.topics.get("fresh")
        assert made is not None
        assert made.write_queue_nums == 5
        assert broker.log.store.bounds("fresh", 4) == (0, 1)


async def test_a_topic_is_made_in_a_tenth_of_a_second_and_does_not_wait_for_who_hangs() -> None:
    async with settled() as running:
        await running.loop.clock.sleep(5_000)
        assert await creation_ms(running, "topic-a") <= 150
        running.part(3)
        assert WAIT_MS <= await creation_ms(running, "topic-b") <= WAIT_MS + 100
        await running.loop.clock.sleep(5_000 + SILENCE_MS)
        assert await creation_ms(running, "topic-c") <= 150
        running.network.heal()
        await running.until(lambda: running.brokers[3].broker.tables.topics.get("topic-c"))
        assert await creation_ms(running, "topic-d") <= 150


class Handled(msgspec.Struct, frozen=True):
    """One message in the hands of a member."""

    queue_id: int
    offset: int
    member: int
    began_ms: int
    ended_ms: int


class OrderedMember:
    """A member of the group, on a host of its own, that notes when it handles what."""

    def __init__(self, running: Group, number: int, seen: list[Handled]) -> None:
        self.running, self.number, self.seen = running, number, seen
        self.host = f"10.0.4.{number}"
        config = ConsumerConfig(
            clock=running.loop.clock,
            rng=Random(number),
            client_ip=self.host,
            consume_from=ConsumeFrom.FIRST,
            ordered=True,
        )
        self.consumer = PushConsumer(f"{NAMESRV}:9876", group="g", topic=TOPIC, config=config)

    async def start(self) -> None:
        await self.running.hosts.run(self.host, self.consumer.start())
        self.task = self.running.hosts.run(self.host, self.consumer.run(self.handle))

    async def handle(self, message: ReceivedMessage) -> None:
        began_ms = self.running.loop.clock.now_ms()
        await asyncio.sleep(HANDLING_S)
        ended_ms = self.running.loop.clock.now_ms()
        queue_id, offset = message.queue.queue_id, message.queue_offset
        self.seen.append(Handled(queue_id, offset, self.number, began_ms, ended_ms))

    async def close(self) -> None:
        await self.running.hosts.run(self.host, self.consumer.close())
        await self.task


async def produce(running: Group, sent: list[tuple[int, int]], count: int) -> None:
    """Send messages to all queues, one after the other, to whoever leads."""
    while len(sent) < count:
        queue_id = len(sent) % QUEUE_COUNT
        call = Send(producer_group="p", topic=TOPIC, queue_id=queue_id, born_timestamp=1, body=b"x")
        number = running.master()
        try:
            reply = None if number is None else await asked(running, number, call)
        except (CallError, AssertionError, KeyError):
            reply = None
        if reply is None or reply.code:
            await asyncio.sleep(0.1)
        else:
            sent.append((queue_id, reply.queue_offset or 0))


def owners_at_once(seen: list[Handled], from_ms: int) -> list[tuple[Handled, Handled]]:
    """Pairs of messages of one queue that two members handled at the same time."""
    by_queue = sorted(
        (one for one in seen if one.began_ms >= from_ms),
        key=lambda one: (one.queue_id, one.began_ms),
    )
    return [
        (first, second)
        for first, second in pairwise(by_queue)
        if first.queue_id == second.queue_id
        and first.member != second.member
        and second.began_ms < first.ended_ms
    ]


@pytest.mark.parametrize("switch", [kill, designate])
async def test_an_ordered_group_goes_on_in_order_with_one_owner_for_each_queue(
    switch: Switch,
) -> None:
    async with group() as running:
        number = await running.settled(3)
        topic = CreateTopic(
            topic=TOPIC, read_queue_nums=QUEUE_COUNT, write_queue_nums=QUEUE_COUNT, perm=6
        )
        await asked(running, number, topic)
        seen: list[Handled] = []
        sent: list[tuple[int, int]] = []
        members = [OrderedMember(running, number, seen) for number in (1, 2)]
        for member in members:
            await member.start()
        await asyncio.sleep(30)  # both have their queues
        await produce(running, sent, 40)
        await switch(running)
        over_ms = running.loop.clock.now_ms()
        await produce(running, sent, 80)
        await running.loop.clock.sleep(LIFETIME_MS)
        await produce(running, sent, 160)
        await asyncio.sleep(10)
        for member in members:
            await member.close()
        assert set(sent) <= {(one.queue_id, one.offset) for one in seen}, "all come"
        assert owners_at_once(seen, over_ms + LIFETIME_MS) == []
        assert {one.member for one in seen if one.began_ms > over_ms} == {1, 2}
        for queue_id in range(QUEUE_COUNT):
            late = [
                one.offset
                for one in seen
                if one.queue_id == queue_id and one.began_ms >= over_ms + LIFETIME_MS
            ]
            assert late == sorted(set(late)), "in order, each once"
