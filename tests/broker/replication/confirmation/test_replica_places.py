"""Which connection is the replica whose id it names, in virtual time."""

import pytest

from roquet.broker.replication.confirmation.replica_places import WARN_AGAIN_MS, ReplicaPlaces
from roquet.broker.replication.confirmation.sync_set import SyncSet
from roquet.rules.replication.acknowledgement import ALL_OF_THE_SET
from roquet.rules.replication.sync_state import ReplicaReportFacts, SentFrame, SyncState
from roquet.testing.clock import in_virtual_time, this_loop


class Master:
    """A master of the set [1, 2] whose log ends at 100, and what its connections report."""

    def __init__(self) -> None:
        self.clock = this_loop().clock
        self.end = 100
        self.set = SyncSet(
            self.clock,
            lambda: self.end,
            lambda: ALL_OF_THE_SET,
            lambda _: None,
            flushed=lambda: self.end,
            only_flushed=lambda _: False,
        )
        self.set.begin(1, SyncState(members=frozenset({1, 2}), version=1), 0)
        self.places = ReplicaPlaces(self.set, self.clock, lambda: self.end, lambda: 7_500)

    def report(self, connection: int, position: int, broker_id: int = 2) -> None:
        facts = ReplicaReportFacts(broker_id=broker_id, report=position)
        self.places.report(connection, facts, SentFrame(self.end, self.clock.monotonic_ms()))

    @property
    def wanted(self) -> frozenset[int]:
        return self.set.wanted(15_000)


@in_virtual_time
async def test_a_stranger_stands_in_no_living_replicas_way() -> None:
    master = Master()
    master.report(1, 100)
    for stranger in (2, 3):
        master.report(stranger, 0)
    assert master.places.is_contested(2)
    master.end = 250
    master.report(1, 250)
    assert master.set.confirmed == 250
    master.report(2, 250)
    assert [master.places.is_holder(one, 2) for one in (1, 2, 3)] == [True, False, False]
    master.places.forget(2, 2)
    master.places.forget(3, 2)
    assert not master.places.is_contested(2)
    assert master.wanted == {1, 2}


@in_virtual_time
async def test_what_a_stranger_reports_acknowledges_nothing_of_a_living_replica() -> None:
    master = Master()
    master.report(1, 100)
    master.end = 250
    master.report(2, 250)
    assert master.set.confirmed == 100


@in_virtual_time
async def test_the_end_of_a_connection_gives_its_place_to_the_one_that_follows() -> None:
    master = Master()
    for connection, position in ((1, 100), (2, 0), (3, 100)):
        master.report(connection, position)
    master.places.forget(1, 2)
    assert master.places.is_holder(3, 2)
    assert master.wanted == {1, 2}
    master.places.forget(3, 2)
    assert master.places.is_holder(2, 2)
    master.places.forget(2, 2)
    assert master.wanted == {1}


@in_virtual_time
async def test_a_connection_that_may_be_dead_counts_from_its_next_report_on() -> None:
    master = Master()
    master.report(1, 100)
    await master.clock.sleep(9_000)
    master.report(2, 100)
    master.places.forget(2, 2)
    assert master.places.is_holder(1, 2)
    assert master.wanted == {1}
    master.report(1, 100)
    assert master.wanted == {1, 2}


@in_virtual_time
async def test_a_replica_that_comes_back_takes_its_place_from_a_dead_connection_or_a_stranger() -> (
    None
):
    master = Master()
    master.report(1, 100)
    await master.clock.sleep(7_000)
    master.report(2, 100)
    assert master.places.is_holder(1, 2), "an idle replica is silent for as long"
    await master.clock.sleep(501)
    master.report(2, 100)
    assert master.places.is_holder(2, 2)
    master.report(3, 0, broker_id=4)
    master.report(5, 100, broker_id=4)
    assert master.places.is_holder(5, 4), "the first one never had the log"


@in_virtual_time
async def test_two_connections_of_one_id_are_a_line_an_hour(
    caplog: pytest.LogCaptureFixture,
) -> None:
    master = Master()
    for connection in range(1, 10):
        master.report(connection, 100)
    assert caplog.text.count("two connections say that they are replica 2") == 1
    await master.clock.sleep(WARN_AGAIN_MS)
    master.report(1, 100)
    master.report(2, 100)
    assert caplog.text.count("two connections say") == 2
