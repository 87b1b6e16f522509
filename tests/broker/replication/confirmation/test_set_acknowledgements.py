"""When the sender of a message is answered by an elected master."""

import asyncio

import pytest
from tests.broker.replication.controlled_parts import ControlledParts

from roquet.broker.replication.confirmation.set_acknowledgements import (
    LogsInForce,
    MasterTermCell,
    needed_of,
    policy_of,
)
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.model.errors import CallRefused
from roquet.rules.election.lease import MasterTerm
from roquet.rules.replication.acknowledgement import ALL_OF_THE_SET, PutStatus
from roquet.rules.replication.role_change import LeadGroup
from roquet.rules.replication.sync_state import ReplicaReportFacts, SentFrame
from roquet.testing.clock import VirtualClock, this_loop

pytestmark = pytest.mark.virtual_time


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


async def test_a_message_that_the_whole_set_has_is_acknowledged() -> None:
    parts = await leading(2, 3)
    waits = asyncio.create_task(parts.mode.acknowledgements.status(parts.append()))
    await asyncio.sleep(0.1)
    report(parts, 2, 100)
    await asyncio.sleep(0.1)
    assert not waits.done()
    report(parts, 3, 100)
    assert await waits is PutStatus.PUT_OK


async def test_a_message_that_a_member_lacks_is_not_acknowledged() -> None:
    parts = await leading(2)
    assert await parts.mode.acknowledgements.status(parts.append()) is PutStatus.FLUSH_SLAVE_TIMEOUT
    assert parts.clock.monotonic_ms() == 3_000


async def test_nothing_is_acknowledged_after_the_end_of_the_lease_though_all_have_it() -> None:
    parts = await leading()
    parts.mode.term.end()
    assert await parts.mode.acknowledgements.status(parts.append()) is PutStatus.FLUSH_SLAVE_TIMEOUT


async def test_a_lease_that_ends_while_a_sender_waits_counts() -> None:
    parts = await leading(2)
    waits = asyncio.create_task(parts.mode.acknowledgements.status(parts.append()))
    await asyncio.sleep(0.1)
    parts.mode.term.end()
    report(parts, 2, 100)
    assert await waits is PutStatus.FLUSH_SLAVE_TIMEOUT


async def test_a_sender_of_an_earlier_epoch_is_not_answered_in_a_later_one() -> None:
    parts = await leading(2)
    waits = asyncio.create_task(parts.mode.acknowledgements.status(parts.append()))
    await asyncio.sleep(0.1)
    await parts.transitions.lead(1, LeadGroup(epoch=4, members=frozenset({1}), set_version=2))
    parts.mode.term.extend(MasterTerm(epoch=4, until_ms=3_600_000))
    assert await waits is PutStatus.FLUSH_SLAVE_TIMEOUT


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


async def test_a_message_whose_members_leave_before_they_have_it_is_not_acknowledged() -> None:
    parts = await leading(2)
    waits = asyncio.create_task(parts.mode.acknowledgements.status(parts.append()))
    await asyncio.sleep(0.1)
    parts.mode.sync_set.propose(frozenset({1}))
    parts.mode.sync_set.adopt(frozenset({1}), 2)
    assert await waits is PutStatus.FLUSH_SLAVE_TIMEOUT


async def test_an_operator_may_be_content_with_the_master_alone() -> None:
    parts = await leading(min_in_sync_replicas=1)
    assert not parts.mode.acknowledgements.is_short
    assert await parts.mode.acknowledgements.status(parts.append()) is PutStatus.PUT_OK


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


def logs_in_force(*, waits_for_all: bool = False) -> tuple[RuntimeSettings, LogsInForce]:
    made = RuntimeSettings(
        BrokerConfig(
            controller_mode=True,
            controllers=("a:1",),
            all_ack_in_sync_set=waits_for_all,
            in_sync_replicas=3,
        )
    )
    logs = LogsInForce(made)
    made.subscribe(logs.configure)
    return made, logs


def test_a_lower_number_is_in_force_once_the_controller_knows_it() -> None:
    made, logs = logs_in_force()
    made.change({"inSyncReplicas": "2"}, 0)
    assert logs.current == 3
    logs.granted(3)
    assert logs.current == 3, "that heartbeat was sent before the change"
    logs.granted(2)
    assert logs.current == 2


def test_a_higher_number_is_in_force_at_once() -> None:
    made, logs = logs_in_force()
    logs.granted(3)
    made.change({"inSyncReplicas": "4"}, 0)
    assert logs.current == 4
    logs.granted(3)
    assert logs.current == 4


def test_a_number_that_the_controller_may_have_stored_holds_until_a_lower_one_does() -> None:
    made, logs = logs_in_force()
    logs.granted(2)
    made.change({"inSyncReplicas": "4"}, 0)
    logs.asked(4)
    made.change({"inSyncReplicas": "2"}, 0)
    assert logs.current == 4, "that answer may be lost"
    logs.asked(2)
    assert logs.current == 4
    logs.granted(2)
    assert logs.current == 2


def test_the_whole_set_stays_the_whole_set() -> None:
    made, logs = logs_in_force(waits_for_all=True)
    made.change({"inSyncReplicas": "2"}, 0)
    logs.granted(ALL_OF_THE_SET)
    assert logs.current == ALL_OF_THE_SET


class SleepyClock(VirtualClock):
    """A machine whose sleep the monotonic clock does not count."""

    asleep_ms = 0

    def boottime_ms(self) -> int:
        return self.monotonic_ms() + self.asleep_ms


def test_without_a_term_nothing_may_be_acknowledged() -> None:
    assert not MasterTermCell(VirtualClock()).may_acknowledge(1)


def test_a_term_is_of_one_epoch_and_ends() -> None:
    clock = VirtualClock()
    cell = MasterTermCell(clock)
    cell.extend(MasterTerm(epoch=3, until_ms=2_000))
    assert cell.may_acknowledge(3)
    assert not cell.may_acknowledge(2)
    clock.jump(1_999)
    assert cell.may_acknowledge(3)
    clock.jump(1)
    assert not cell.may_acknowledge(3)


def test_the_time_for_which_a_machine_slept_counts() -> None:
    clock = SleepyClock()
    cell = MasterTermCell(clock)
    cell.extend(MasterTerm(epoch=3, until_ms=2_000))
    clock.asleep_ms = 60_000
    assert not cell.may_acknowledge(3)


def test_an_answer_that_was_overtaken_shortens_nothing() -> None:
    cell = MasterTermCell(VirtualClock())
    cell.extend(MasterTerm(epoch=3, until_ms=2_000))
    cell.extend(MasterTerm(epoch=3, until_ms=1_000))
    assert cell.current == MasterTerm(epoch=3, until_ms=2_000)
    cell.extend(MasterTerm(epoch=4, until_ms=1_500))
    assert cell.current == MasterTerm(epoch=4, until_ms=1_500)
    cell.end()
    assert cell.current is None


async def test_the_end_of_a_term_is_waited_for_however_often_it_is_extended() -> None:
    clock = this_loop().clock
    cell = MasterTermCell(clock)
    await cell.wait_end()
    cell.extend(MasterTerm(epoch=3, until_ms=2_000))
    end = asyncio.create_task(cell.wait_end())
    await clock.sleep(1_500)
    cell.extend(MasterTerm(epoch=3, until_ms=4_000))
    await end
    assert clock.monotonic_ms() == 4_000
    again = asyncio.create_task(cell.wait_extended())
    await clock.sleep(10)
    assert not again.done()
    cell.extend(MasterTerm(epoch=3, until_ms=5_000))
    await again
