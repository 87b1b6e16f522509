"""A member that leaves the sync-state set too early loses messages, which the rule prevents."""

from collections.abc import Callable

import pytest
from tests.conversation.failover_group import group

from roquet.broker.replication.confirmation.sync_set import SyncSet
from roquet.rules.replication.sync_state import ReplicaReportFacts, SentFrame, SyncState
from roquet.testing.clock import this_loop
from simulation.replicated.defects import leaving_member

pytestmark = pytest.mark.virtual_time

STAY = frozenset({1, 3})


def reports(sync_set: SyncSet, broker_id: int, position: int) -> None:
    facts = ReplicaReportFacts(broker_id=broker_id, report=position)
    sync_set.reported(facts, SentFrame(position, this_loop().clock.monotonic_ms()))


def set_of_three(end: Callable[[], int]) -> SyncSet:
    """Broker 1 leads since position 100; two logs have to hold a message."""
    sync_set = SyncSet(
        this_loop().clock,
        end,
        lambda: 2,
        lambda _: None,
        flushed=end,
        only_flushed=lambda _: False,
    )
    sync_set.begin(1, SyncState(members=frozenset({1, 2, 3}), version=3), 100)
    return sync_set


def acknowledged_while_2_leaves() -> tuple[bool, int]:
    """Whether 2 may leave, which alone has what is acknowledged, and what is acknowledged then.

    The log of 3 ends at 100.
    """
    end = [150]
    sync_set = set_of_three(lambda: end[0])
    reports(sync_set, 3, 100)
    reports(sync_set, 2, 150)
    assert sync_set.acknowledged == 150
    may_leave = sync_set.keep_acknowledged(STAY)
    sync_set.propose(STAY)
    end[0] = 200
    reports(sync_set, 2, 200)
    return may_leave, sync_set.acknowledged


async def test_a_member_leaves_though_those_who_stay_lack_what_was_acknowledged() -> None:
    assert acknowledged_while_2_leaves() == (False, 150)
    with leaving_member():
        assert acknowledged_while_2_leaves() == (True, 200)
    assert acknowledged_while_2_leaves() == (False, 150)


async def test_without_a_change_as_many_logs_as_before_have_to_hold_a_message() -> None:
    with leaving_member():
        sync_set = set_of_three(lambda: 150)
        assert sync_set.acknowledged == 100
        reports(sync_set, 3, 120)
        assert sync_set.acknowledged == 120


async def test_a_message_is_lost_when_its_two_holders_are_killed_one_after_the_other() -> None:
    with leaving_member():
        async with group(all_ack_in_sync_set=False, in_sync_replicas=2) as running:
            assert await running.settled(3) == 1
            await running.send_on(["everywhere"])
            await running.loop.clock.sleep(2_000)
            running.network.partition(running.host(1), running.host(3))
            assert (await running.send("between")).code == 0
            await running.kill(2)
            await running.until(lambda: running.members() == STAY, 4)
            running.network.drop(running.host(1), running.host(3))
            await running.kill(1)
            running.network.heal()
            await running.until(lambda: running.master() == 3, 30)
            with pytest.raises((AssertionError, IndexError)):
                running.check()
