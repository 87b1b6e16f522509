"""Topics and groups across a switch of the master: what was answered is known afterwards."""

import pytest
from tests.broker.replication.role_switches import asked
from tests.conversation.failover_group import Group, group

from roquet.broker.tables.replica_copies import SILENCE_MS, WAIT_MS
from roquet.model.topic import SubscriptionGroup
from roquet.testing.clock import in_virtual_time
from roquet.wire.calls.admin.topic import CreateGroup, CreateTopic, DeleteTopic
from roquet.wire.calls.send import Send, SendBatch
from roquet.wire.fastjson import codec

CREATE = CreateTopic(topic="new", default_topic="TBW102", read_queue_nums=3, write_queue_nums=3,
                     perm=6, topic_filter_type="SINGLE_TAG")  # fmt: skip


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


@in_virtual_time
async def test_a_topic_or_group_made_in_the_moment_of_a_kill_is_known_to_the_new_master() -> None:
    async with group() as running:
        await running.settled(3)
        await running.send_on(["first"])
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
@in_virtual_time
async def test_a_topic_of_a_send_in_the_moment_of_a_kill_is_known_to_the_new_master(
    kind: type[Send] | type[SendBatch],
) -> None:
    async with group() as running:
        await running.settled(3)
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


@in_virtual_time
async def test_a_topic_is_made_in_a_tenth_of_a_second_and_does_not_wait_for_who_hangs() -> None:
    async with group() as running:
        await running.settled(3)
        await running.loop.clock.sleep(5_000)
        assert await creation_ms(running, "topic-a") <= 150
        running.part(3)
        assert WAIT_MS <= await creation_ms(running, "topic-b") <= WAIT_MS + 100
        await running.loop.clock.sleep(5_000 + SILENCE_MS)
        assert await creation_ms(running, "topic-c") <= 150
        running.network.heal()
        await running.until(lambda: running.brokers[3].broker.tables.topics.get("topic-c"))
        assert await creation_ms(running, "topic-d") <= 150
