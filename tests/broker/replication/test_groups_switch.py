"""Groups across a switch of the master: locks of ordered queues, progress, and old files."""

from typing import Any

import pytest
from tests.broker.replication.role_switches import SWITCHES, Switch, asked, designate, stop
from tests.conversation.failover_group import TOPIC, Group, group

from roquet.broker.tables.locks import LIFETIME_MS
from roquet.model.queue import MessageQueue
from roquet.model.topic import SubscriptionGroup
from roquet.store.retention import local_hour
from roquet.testing.clock import START_MS
from roquet.wire.calls.admin.topic import CreateGroup
from roquet.wire.calls.bodies import LockBody, LockedQueues
from roquet.wire.calls.lock import LockQueues
from roquet.wire.calls.offset import QueryOffset, UpdateOffset
from roquet.wire.fastjson import codec

pytestmark = pytest.mark.virtual_time

QUEUES = [MessageQueue(TOPIC, "g", number) for number in range(4)]

RENEW_MS = 20_000
"""Ms between two renewals of a member's locks."""


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
    async with group() as running:
        await running.settled(3)
        await running.send_on(["first"])
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
    async with group(**settings) as running:
        await running.settled(3)
        await running.send_on(f"{n}" + "x" * 4_000 for n in range(12))
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
