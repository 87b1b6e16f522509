"""A log that is cut after an unclean election: what its broker knew of the lost end does no harm.

A broker has messages that the new master never got: it is cut, and elected in good order later.
"""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest
from tests.broker.replication.role_switches import asked, bodies, records
from tests.conversation.failover_group import TOPIC, Group, group

from roquet.model import properties as props
from roquet.model.errors import CallRefused
from roquet.model.topic import SubscriptionGroup
from roquet.testing.clock import in_virtual_time
from roquet.wire.calls.admin.topic import CreateGroup
from roquet.wire.calls.offset import QueryOffset, UpdateOffset
from roquet.wire.fastjson import codec

COPY_MS: Final = 12_000
"""Longer than a replica takes to copy its master's progress."""

DUE_MS: Final = 120_000
"""How much later timed messages are due: when both switches are over."""


async def send_timed(running: Group, *texts: str) -> None:
    """Send messages that come after both switches."""
    due_ms = running.loop.clock.now_ms() + DUE_MS
    for text in texts:
        reply = await running.send(text, properties=f"{props.TIMER_DELIVER_MS}\x01{due_ms}\x02")
        assert reply.code == 0
        del running.acknowledged[text]  # its offset is that of the queue where it waits


async def commit(running: Group, offset: int) -> None:
    """Let a group commit an offset at the first master."""
    created = CreateGroup(body=codec.dumps(SubscriptionGroup(group_name="g")))
    await asked(running, 1, created)
    call = UpdateOffset(consumer_group="g", topic=TOPIC, queue_id=0, commit_offset=offset)
    await asked(running, 1, call)


@asynccontextmanager
async def one_behind() -> AsyncIterator[Group]:
    """Three brokers, each of which takes messages alone; the third is parted from the first."""
    async with group(in_sync_replicas=1, min_in_sync_replicas=1) as running:
        assert await running.settled(3) == 1
        await running.send_on(["everywhere"])
        await send_timed(running, "timed everywhere")
        await running.loop.clock.sleep(COPY_MS)
        running.network.partition(running.host(1), running.host(3))
        await running.until(lambda: running.members() == {1, 2})
        yield running


async def elect_the_one_behind(running: Group) -> None:
    """Elect the third one, while the second one is parted and the first one is gone."""
    await running.loop.clock.sleep(COPY_MS)
    running.part(2)
    running.network.drop(running.host(1), running.host(3))
    await running.kill(1)
    with pytest.raises(CallRefused, match="broker 2 was elected in epoch 2 meanwhile"):
        await running.elect(3, unclean=True)
    await running.elect(3, unclean=True)
    await running.until(lambda: running.master() == 3)


async def elect_the_cut_one(running: Group) -> None:
    """Let the second one follow the third one, and elect it in good order."""
    running.network.heal()
    await running.until(lambda: running.members() == {2, 3})
    await running.loop.clock.sleep(COPY_MS)
    await running.elect(2)
    await running.until(lambda: running.master() == 2)


@pytest.mark.parametrize("kept", ["kept", "kept longer"], ids=["of one size", "of two sizes"])
@in_virtual_time
async def test_timed_messages_of_an_unclean_master_come_once_and_in_time_at_the_one_that_was_cut(
    kept: str,
) -> None:
    async with one_behind() as running:
        await send_timed(running, *(f"lost {number}" for number in range(4)))
        await elect_the_one_behind(running)
        due_ms = running.loop.clock.now_ms() + DUE_MS
        texts = [f"{kept} {number}" for number in range(3)]
        await send_timed(running, *texts)
        await elect_the_cut_one(running)
        assert running.loop.clock.now_ms() < due_ms
        await running.loop.clock.sleep(DUE_MS + 5_000)
        found = [record for record in records(running, 2) if record.body.decode() in texts]
        assert Counter(record.body.decode() for record in found) == Counter(texts)
        assert min(record.stored_ms for record in found) >= due_ms
        assert bodies(running, 2).count("timed everywhere") == 1
        assert not any(body.startswith("lost") for body in bodies(running, 2))


@in_virtual_time
async def test_a_group_reads_messages_of_an_unclean_master_that_got_the_offsets_of_lost_ones() -> (
    None
):
    async with one_behind() as running:
        for number in range(6):
            assert (await running.send(f"lost {number}")).code == 0
            del running.acknowledged[f"lost {number}"]
        await commit(running, 7)
        await elect_the_one_behind(running)
        for number in range(8):
            assert (await running.send(f"kept {number}")).code == 0
        await elect_the_cut_one(running)
        running.check()
        call = QueryOffset(consumer_group="g", topic=TOPIC, queue_id=0)
        assert (await asked(running, 2, call)).offset == 1
