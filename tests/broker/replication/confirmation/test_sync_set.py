"""The sync-state set of a master, and what its members have confirmed."""

import asyncio

import pytest

from roquet.broker.replication.confirmation.sync_set import WARN_AGAIN_MS, ReplicaPlaces, SyncSet
from roquet.rules.replication.acknowledgement import ALL_OF_THE_SET
from roquet.rules.replication.sync_state import ReplicaReportFacts, SentFrame, SyncState
from roquet.testing.clock import this_loop

pytestmark = pytest.mark.virtual_time


class Master:
    """A sync-state set over a log that a test lets grow."""

    def __init__(self, *members: int, needed: int = ALL_OF_THE_SET, end: int = 100) -> None:
        self.clock = this_loop().clock
        self.end = end
        self.flushed: int | None = None
        """How far the log is on the master's disk; None: everywhere."""
        self.is_sync_flush = False
        self.size_min = 1
        """Members without which no messages are taken."""
        self.shown: list[int | None] = []
        self.set = SyncSet(
            self.clock,
            lambda: self.end,
            lambda: needed,
            self.shown.append,
            flushed=lambda: self.end if self.flushed is None else self.flushed,
            only_flushed=lambda size: self.is_sync_flush or size < self.size_min,
        )
        self.set.begin(1, SyncState(members=frozenset({1, *members}), version=3), end)

    def report(self, broker_id: int, position: int, *, is_learner: bool = False) -> None:
        facts = ReplicaReportFacts(broker_id=broker_id, report=position, is_learner=is_learner)
        self.set.reported(facts, SentFrame(self.end, self.clock.monotonic_ms()))

    def reaches(self, position: int) -> "asyncio.Task[bool]":
        deadline_ms = self.clock.monotonic_ms() + 3_000
        return asyncio.create_task(self.set.reach(position, deadline_ms))


async def test_a_master_alone_confirms_whatever_it_has() -> None:
    master = Master()
    assert master.shown[-1] is None
    master.end = 250
    assert master.set.is_alone
    assert master.set.confirmed == 250
    assert await master.reaches(250)


async def test_a_message_is_acknowledged_once_every_member_has_it() -> None:
    master = Master(2, 3)
    master.end = 150
    waits = master.reaches(150)
    master.report(2, 150)
    await asyncio.sleep(0.1)
    assert not waits.done()
    assert master.set.confirmed == 100
    master.report(3, 150)
    assert await waits
    assert master.shown[-1] == 150


async def test_with_synchronous_flush_consumers_see_no_more_than_the_masters_disk_has() -> None:
    master = Master(2)
    master.flushed, master.end, master.is_sync_flush = 100, 150, True
    waits = master.reaches(150)
    master.report(2, 150)
    assert await waits, "a sender waits for the disk by himself"
    assert (master.shown[-1], master.set.confirmed) == (100, 100)
    master.flushed = 150
    master.set.confirm()
    assert (master.shown[-1], master.set.confirmed) == (150, 150)


async def test_a_master_that_takes_no_messages_alone_shows_no_more_than_its_disk_has() -> None:
    master = Master()
    master.size_min = 2
    master.flushed, master.end = 100, 150
    master.set.confirm()
    assert (master.shown[-1], master.set.confirmed) == (100, 100)
    master.flushed = 150
    master.set.confirm()
    assert (master.shown[-1], master.set.confirmed) == (150, 150)
    master.size_min = 1
    master.end = 200
    master.set.confirm()
    assert (master.shown[-1], master.set.confirmed) == (None, 200)


async def test_with_synchronous_flush_that_holds_for_a_master_alone_too() -> None:
    master = Master()
    master.flushed, master.end, master.is_sync_flush = 100, 150, True
    master.set.confirm()
    assert (master.shown[-1], master.set.confirmed) == (100, 100)
    master.set.propose(frozenset({1, 2}))
    master.report(2, 150)
    master.set.adopt(frozenset({1, 2}), 4)
    assert (master.shown[-1], master.set.confirmed) == (100, 100)
    master.flushed = 150
    master.set.confirm()
    assert (master.shown[-1], master.set.confirmed) == (150, 150)


async def test_with_fewer_logs_needed_consumers_still_see_only_what_all_members_have() -> None:
    master = Master(2, 3, needed=2)
    master.end = 150
    master.report(2, 150)
    assert await master.reaches(150)
    assert master.set.confirmed == 100
    assert master.shown[-1] == 100


async def test_a_member_without_a_connection_holds_up_acknowledgements_until_the_timeout() -> None:
    master = Master(2)
    master.end = 150
    assert not await master.reaches(150)
    assert this_loop().clock.monotonic_ms() == 3_000


async def test_the_confirmed_position_never_falls() -> None:
    master = Master(2)
    master.end = 150
    master.report(2, 140)
    master.set.disconnected(2)
    master.report(2, 100)
    assert master.set.confirmed == 140


async def test_a_replica_that_has_caught_up_is_wanted_and_acknowledges_from_the_proposal_on() -> (
    None
):
    master = Master()
    master.end = 150
    master.report(2, 120)
    assert master.set.wanted(15_000) == {1}
    master.report(2, 150)
    assert master.set.changed.is_set()
    assert master.set.wanted(15_000) == {1, 2}
    master.set.propose(frozenset({1, 2}))
    assert not master.set.is_alone
    assert master.shown[-1] == 150
    master.end = 160
    waits = master.reaches(160)
    await asyncio.sleep(0.1)
    assert not waits.done()
    master.report(2, 160)
    assert await waits
    master.set.adopt(frozenset({1, 2}), 4)
    assert master.set.state == SyncState(members=frozenset({1, 2}), version=4)


async def test_a_replica_that_lacks_what_a_lone_master_shows_is_not_wanted_any_more() -> None:
    master = Master()
    master.report(2, 100)
    master.end = 150
    assert master.set.wanted(15_000) == {1}


async def test_a_learner_never_joins() -> None:
    master = Master()
    master.report(2, 100, is_learner=True)
    assert master.set.wanted(15_000) == {1}


async def test_a_member_leaves_that_is_gone_or_too_long_behind() -> None:
    master = Master(2, 3)
    master.report(2, 100)
    master.report(3, 100)
    assert master.set.wanted(15_000) == {1, 2, 3}
    master.set.disconnected(3)
    assert master.set.wanted(15_000) == {1, 2}
    await asyncio.sleep(15.001)
    assert master.set.wanted(15_000) == {1}


async def test_the_set_shrinks_only_after_the_controllers_yes() -> None:
    master = Master(2)
    master.end = 150
    master.set.propose(frozenset({1}))
    waits = master.reaches(150)
    await asyncio.sleep(0.1)
    assert not waits.done()
    master.set.adopt(frozenset({1}), 4)
    assert await waits
    assert master.set.is_alone


async def test_after_a_refusal_the_members_are_those_before() -> None:
    master = Master()
    master.set.propose(frozenset({1, 2}))
    master.end = 150
    master.set.withdraw()
    assert master.set.is_alone
    assert await master.reaches(150)


async def test_whoever_waits_is_not_answered_after_the_end_of_the_term() -> None:
    master = Master(2)
    master.end = 150
    waits = master.reaches(150)
    await asyncio.sleep(0.1)
    master.set.end_term()
    assert not await waits
    master.report(2, 150)
    assert not await master.reaches(150)
    assert this_loop().clock.monotonic_ms() == 3_100


async def test_reports_of_an_earlier_term_count_for_nothing_in_the_next() -> None:
    master = Master(2)
    master.end = 200
    master.report(2, 200)
    master.set.begin(1, SyncState(members=frozenset({1, 2}), version=9), 150)
    assert master.set.confirmed == 150


async def test_a_message_that_one_log_has_to_hold_waits_for_no_report() -> None:
    master = Master(2, 3, needed=1)
    master.end = 150
    assert await master.reaches(150)
    assert this_loop().clock.monotonic_ms() == 0
    assert master.shown[-1] == 100, "consumers still wait for all members"


async def test_until_the_answer_as_many_of_those_who_stay_have_to_hold_a_message() -> None:
    master = Master(2, 3, needed=2)
    master.set.propose(frozenset({1, 3}))
    master.end = 150
    waits = master.reaches(150)
    master.report(2, 150)
    await asyncio.sleep(0.1)
    assert not waits.done(), "3 might be elected alone"
    master.report(3, 150)
    assert await waits


async def test_members_that_stay_keep_what_was_acknowledged_if_enough_have_it() -> None:
    master = Master(2, 3, needed=2)
    master.end = 150
    master.report(2, 150)
    assert await master.reaches(150)
    master.report(3, 120)
    assert not master.set.keep_acknowledged(frozenset({1, 3}))
    assert master.set.keep_acknowledged(frozenset({1, 2}))
    assert master.set.keep_acknowledged(frozenset({1}))
    master.report(3, 150)
    assert master.set.keep_acknowledged(frozenset({1, 3}))


async def test_a_master_can_be_replaced_while_a_member_with_all_that_counts_is_connected() -> None:
    master = Master(2)
    assert not master.set.can_be_replaced
    master.report(2, 100)
    assert master.set.can_be_replaced
    master.end = 150
    assert master.set.can_be_replaced, "the rest was never acknowledged"
    master.set.disconnected(2)
    assert not master.set.can_be_replaced


async def test_where_all_members_have_each_message_those_who_stay_do() -> None:
    master = Master(2, 3)
    master.end = 150
    assert master.set.keep_acknowledged(frozenset({1, 3}))


class MasterConnections(Master):
    """A master of the set [1, 2] whose log ends at 100, and what its connections report."""

    def __init__(self) -> None:
        super().__init__(2)
        self.set.begin(1, SyncState(members=frozenset({1, 2}), version=1), 0)
        self.places = ReplicaPlaces(self.set, self.clock, lambda: self.end, lambda: 7_500)

    def reports(self, connection: int, position: int, broker_id: int = 2) -> None:
        facts = ReplicaReportFacts(broker_id=broker_id, report=position)
        self.places.report(connection, facts, SentFrame(self.end, self.clock.monotonic_ms()))

    @property
    def wanted(self) -> frozenset[int]:
        return self.set.wanted(15_000)


async def test_a_stranger_stands_in_no_living_replicas_way() -> None:
    master = MasterConnections()
    master.reports(1, 100)
    for stranger in (2, 3):
        master.reports(stranger, 0)
    assert master.places.is_contested(2)
    master.end = 250
    master.reports(1, 250)
    assert master.set.confirmed == 250
    master.reports(2, 250)
    assert [master.places.is_holder(one, 2) for one in (1, 2, 3)] == [True, False, False]
    master.places.forget(2, 2)
    master.places.forget(3, 2)
    assert not master.places.is_contested(2)
    assert master.wanted == {1, 2}


async def test_what_a_stranger_reports_acknowledges_nothing_of_a_living_replica() -> None:
    master = MasterConnections()
    master.reports(1, 100)
    master.end = 250
    master.reports(2, 250)
    assert master.set.confirmed == 100


async def test_the_end_of_a_connection_gives_its_place_to_the_one_that_follows() -> None:
    master = MasterConnections()
    for connection, position in ((1, 100), (2, 0), (3, 100)):
        master.reports(connection, position)
    master.places.forget(1, 2)
    assert master.places.is_holder(3, 2)
    assert master.wanted == {1, 2}
    master.places.forget(3, 2)
    assert master.places.is_holder(2, 2)
    master.places.forget(2, 2)
    assert master.wanted == {1}


async def test_a_connection_that_may_be_dead_counts_from_its_next_report_on() -> None:
    master = MasterConnections()
    master.reports(1, 100)
    await master.clock.sleep(9_000)
    master.reports(2, 100)
    master.places.forget(2, 2)
    assert master.places.is_holder(1, 2)
    assert master.wanted == {1}
    master.reports(1, 100)
    assert master.wanted == {1, 2}


async def test_a_replica_that_comes_back_takes_its_place_from_a_dead_connection_or_a_stranger() -> (
    None
):
    master = MasterConnections()
    master.reports(1, 100)
    await master.clock.sleep(7_000)
    master.reports(2, 100)
    assert master.places.is_holder(1, 2), "an idle replica is silent for as long"
    await master.clock.sleep(501)
    master.reports(2, 100)
    assert master.places.is_holder(2, 2)
    master.reports(3, 0, broker_id=4)
    master.reports(5, 100, broker_id=4)
    assert master.places.is_holder(5, 4), "the first one never had the log"


async def test_two_connections_of_one_id_are_a_line_an_hour(
    caplog: pytest.LogCaptureFixture,
) -> None:
    master = MasterConnections()
    for connection in range(1, 10):
        master.reports(connection, 100)
    assert caplog.text.count("two connections say that they are replica 2") == 1
    await master.clock.sleep(WARN_AGAIN_MS)
    master.reports(1, 100)
    master.reports(2, 100)
    assert caplog.text.count("two connections say") == 2
