"""When the sender of a message is answered by an elected master."""

import asyncio

import pytest
from tests.broker.replication.controlled_parts import ControlledParts

from roquet.broker.replication.confirmation.set_acknowledgements import needed_of, policy_of
from roquet.broker.settings.config import BrokerConfig
from roquet.model.errors import CallRefused
from roquet.rules.election.lease import MasterTerm
from roquet.rules.replication.acknowledgement import ALL_OF_THE_SET, PutStatus
from roquet.rules.replication.role_change import LeadGroup
from roquet.rules.replication.sync_state import ReplicaReportFacts, SentFrame
from roquet.testing.clock import in_virtual_time


async def leading(*others: int, **settings: object) -> ControlledParts:
    """A master of epoch 3, with a lease of an hour."""
    parts = ControlledParts(**settings)  # type: ignore[arg-type]
    members = frozenset({1, *others})
    await parts.transitions.lead(1, LeadGroup(epoch=3, members=members, set_version=1))
    parts.mode.term.extend(MasterTerm(epoch=3, until_ms=parts.mode.term.now_ms() + 3_600_000))
    parts.transitions.fence(is_fenced=False)
    return parts


def report(parts: ControlledParts, broker_id: int, position: int) -> None:
    facts = ReplicaReportFacts(broker_id=broker_id, report=position)
    parts.mode.sync_set.reported(facts, SentFrame(position, parts.clock.monotonic_ms()))


@in_virtual_time
async def test_a_message_that_the_whole_set_has_is_acknowledged() -> None:
    parts = await leading(2, 3)
    waits = asyncio.create_task(parts.mode.acknowledgements.status(parts.append()))
    await asyncio.sleep(0.1)
    report(parts, 2, 100)
    await asyncio.sleep(0.1)
    assert not waits.done()
    report(parts, 3, 100)
    assert await waits is PutStatus.PUT_OK


@in_virtual_time
async def test_a_message_that_a_member_lacks_is_not_acknowledged() -> None:
    parts = await leading(2)
    assert await parts.mode.acknowledgements.status(parts.append()) is PutStatus.FLUSH_SLAVE_TIMEOUT
    assert parts.clock.monotonic_ms() == 3_000


@in_virtual_time
async def test_nothing_is_acknowledged_after_the_end_of_the_lease_though_all_have_it() -> None:
    parts = await leading()
    parts.mode.term.end()
    assert await parts.mode.acknowledgements.status(parts.append()) is PutStatus.FLUSH_SLAVE_TIMEOUT


@in_virtual_time
async def test_a_lease_that_ends_while_a_sender_waits_counts() -> None:
    parts = await leading(2)
    waits = asyncio.create_task(parts.mode.acknowledgements.status(parts.append()))
    await asyncio.sleep(0.1)
    parts.mode.term.end()
    report(parts, 2, 100)
    assert await waits is PutStatus.FLUSH_SLAVE_TIMEOUT


@in_virtual_time
async def test_a_sender_of_an_earlier_epoch_is_not_answered_in_a_later_one() -> None:
    parts = await leading(2)
    waits = asyncio.create_task(parts.mode.acknowledgements.status(parts.append()))
    await asyncio.sleep(0.1)
    await parts.transitions.lead(1, LeadGroup(epoch=4, members=frozenset({1}), set_version=2))
    parts.mode.term.extend(MasterTerm(epoch=4, until_ms=3_600_000))
    assert await waits is PutStatus.FLUSH_SLAVE_TIMEOUT


@in_virtual_time
async def test_with_too_few_in_sync_a_message_is_refused_unless_it_does_not_wait() -> None:
    parts = await leading()
    acknowledgements = parts.mode.acknowledgements
    assert acknowledgements.is_needed
    assert acknowledgements.is_short
    with pytest.raises(CallRefused, match="in-sync replicas not enough"):
        acknowledgements.check()
    acknowledgements.check(waits=False)
    parts.mode.sync_set.propose(frozenset({1, 2}))
    assert acknowledgements.is_short, "nobody knows yet whether the second one is a member"
    parts.mode.sync_set.adopt(frozenset({1, 2}), 2)
    assert not acknowledgements.is_short
    acknowledgements.check()


@in_virtual_time
async def test_a_message_whose_members_leave_before_they_have_it_is_not_acknowledged() -> None:
    parts = await leading(2)
    waits = asyncio.create_task(parts.mode.acknowledgements.status(parts.append()))
    await asyncio.sleep(0.1)
    parts.mode.sync_set.propose(frozenset({1}))
    parts.mode.sync_set.adopt(frozenset({1}), 2)
    assert await waits is PutStatus.FLUSH_SLAVE_TIMEOUT


@in_virtual_time
async def test_an_operator_may_be_content_with_the_master_alone() -> None:
    parts = await leading(min_in_sync_replicas=1)
    assert not parts.mode.acknowledgements.is_short
    assert await parts.mode.acknowledgements.status(parts.append()) is PutStatus.PUT_OK


@in_virtual_time
async def test_with_synchronous_flush_the_disk_is_waited_for_as_well() -> None:
    parts = await leading(min_in_sync_replicas=1, sync_flush=True, sync_flush_timeout=500)
    status = parts.mode.acknowledgements.status(parts.append())
    assert await status is PutStatus.FLUSH_DISK_TIMEOUT  # no flush runs here
    assert parts.clock.monotonic_ms() == 500


def test_the_settings_say_how_many_logs_are_needed() -> None:
    config = BrokerConfig(controller_mode=True, controllers=("a:1",))
    assert policy_of(config).min_in_sync_replicas == 2
    assert needed_of(config) == ALL_OF_THE_SET
    config = BrokerConfig(
        controller_mode=True, controllers=("a:1",), all_ack_in_sync_set=False, in_sync_replicas=2
    )
    assert needed_of(config) == 2
