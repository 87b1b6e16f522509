"""A group through its changes: queue owners, and the counters of moves and imbalance."""

import pytest
from msgspec.structs import replace
from tests.lab.conftest import SMALL, history

from roquet.lab.group import SimulatedGroup
from roquet.lab.scenario import LabScenario
from roquet.lab.timeline import DIE, GONE, JOIN, LEAVE, MICROS_PER_MS, REVIEW, topic_layout

SECOND = 1_000 * MICROS_PER_MS


def group(strategy: str, scenario: LabScenario, comers: int = 2) -> SimulatedGroup:
    timeline = history([(0, 0, 1)], members=scenario.members, comers=comers)
    return SimulatedGroup(strategy, topic_layout(scenario), timeline, scenario)


def test_a_joining_and_a_leaving_member_are_counted_with_their_moves() -> None:
    one = group("AVG", replace(SMALL, queues=8))
    assert one.owners == [0, 0, 0, 0, 1, 1, 1, 1]
    assert one.apply(10 * SECOND, [(JOIN, 2)])
    assert one.owners == [0, 0, 0, 1, 1, 1, 2, 2]
    assert one.apply(20 * SECOND, [(LEAVE, 0)])
    assert one.owners == [1, 1, 1, 1, 2, 2, 2, 2]
    assert (one.changes, one.moved, one.least) == (2, 3 + 5, 2 + 3)
    assert one.moved_fair == pytest.approx(8 / 3 + 8 / 3)


def test_a_dead_member_keeps_its_queues_until_it_is_given_up() -> None:
    one = group("STICKY", replace(SMALL, queues=4))
    assert not one.apply(SECOND, [(DIE, 0)])
    assert one.owners == [0, 0, 1, 1]
    assert one.apply(9 * SECOND, [(GONE, 0)])
    assert one.owners == [1, 1, 1, 1]


def test_evenness_is_weighed_by_time_and_nothing_after_the_end_counts() -> None:
    one = group("AVG", replace(SMALL, queues=2, duration_ms=20_000))
    one.apply(10 * SECOND, [(JOIN, 2)])  # three members, two queues
    one.apply(90 * SECOND, [(LEAVE, 2)])
    one.finish()
    assert one.idle_us == one.spare_us == 10 * SECOND
    assert one.uneven_us == pytest.approx((10 * 1 + 10 * 1.5) * SECOND)


def test_lag_weighted_rebalances_only_where_that_is_worth_it() -> None:
    one = group("LAG_WEIGHTED", replace(SMALL, queues=4))
    before = one.owners
    heavy = [queue for queue, owner in zip(one.queues, before, strict=True) if owner == 0]
    assert not one.apply(SECOND, [(REVIEW, -1)], dict.fromkeys(heavy, 300))
    assert one.owners == before
    assert one.apply(2 * SECOND, [(REVIEW, -1)], dict.fromkeys(heavy, 3_000))
    assert {one.owners[one.queues.index(queue)] for queue in heavy} == {0, 1}
    assert one.changes == 0
    assert one.moved > 0
