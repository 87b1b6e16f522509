"""Messages of queues with owners, across hand-overs, leaves and deaths."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.lab.conftest import SMALL, history

from roquet.lab.attempts import Attempts, QueuePauses, SimulatedMessages
from roquet.lab.group import SimulatedGroup
from roquet.lab.queue_model import HistoryEvents, QueueModel
from roquet.lab.scenario import LabScenario, ScenarioTimes
from roquet.lab.timeline import (
    DIE,
    GONE,
    JOIN,
    LEAVE,
    MICROS_PER_MS,
    Timeline,
    draw_timeline,
    topic_layout,
)

Done = list[tuple[int, int, int, int]]


def run(
    scenario: LabScenario, timeline: Timeline, strategy: str = "AVG"
) -> tuple[Attempts, QueuePauses]:
    messages = SimulatedMessages.of([timeline])
    group = SimulatedGroup(strategy, topic_layout(scenario), timeline, scenario)
    model = QueueModel(scenario, [timeline], messages)
    model.assign_first([group.owners])
    for at, events in timeline.events:
        model.run(np.array([at]))
        leaving = model.apply([HistoryEvents(0, at, events)])
        if group.apply(at, events):
            model.reassign(np.array([0]), [group.owners], np.array([at]), leaving)
    model.run(np.array([1 << 61]))
    return model.finish(scenario.duration_ms * MICROS_PER_MS)


def simulated(attempts: Attempts) -> Done:
    """Message, member, begin and end in ms, in the order of beginning; cut ones end in minus."""
    rows = sorted(
        (int(b) // MICROS_PER_MS, int(m), int(w), int(e) // MICROS_PER_MS, bool(d))
        for m, w, b, e, d in zip(
            attempts.message,
            attempts.member,
            attempts.begin,
            attempts.end,
            attempts.done,
            strict=True,
        )
    )
    return [(m, w, b, e if d else -e) for b, m, w, e, d in rows]


def pauses_of(pauses: QueuePauses) -> list[tuple[int, int]]:
    return sorted(
        (int(b) // MICROS_PER_MS, int(e) // MICROS_PER_MS)
        for b, e in zip(pauses.begin, pauses.end, strict=True)
    )


def test_a_member_handles_one_message_after_the_other() -> None:
    timeline = history([(0, 0, 30), (10, 0, 20), (100, 0, 5)])
    assert simulated(run(SMALL, timeline)[0]) == [(0, 0, 0, 30), (1, 0, 30, 50), (2, 0, 100, 105)]


def test_members_work_at_the_same_time() -> None:
    timeline = history([(0, 0, 30), (10, 1, 20), (20, 0, 5)])
    assert simulated(run(SMALL, timeline)[0]) == [(0, 0, 0, 30), (1, 1, 10, 30), (2, 0, 30, 35)]


def test_a_slow_member_takes_longer() -> None:
    timeline = history([(0, 0, 30), (0, 1, 30)], slow=[1])
    assert simulated(run(replace(SMALL, slow_factor=3), timeline)[0]) == [
        (0, 0, 0, 30),
        (1, 1, 0, 90),
    ]


def test_a_queue_that_moves_waits_for_its_handler_at_work() -> None:
    # One member has both queues; the second one joins and takes queue 1.
    scenario = replace(SMALL, members=1)
    timeline = history([(0, 1, 500), (1, 1, 10)], [(100, [(JOIN, 1)])], members=1, comers=1)
    attempts, pauses = run(scenario, timeline)
    assert simulated(attempts) == [(0, 0, 0, 500), (1, 1, 500, 510)]
    assert pauses_of(pauses) == [(100, 500)]


def test_a_handler_that_takes_too_long_is_not_waited_for_and_its_message_comes_twice() -> None:
    scenario = replace(SMALL, members=1)
    timeline = history([(0, 1, 5_000), (1, 1, 10)], [(100, [(JOIN, 1)])], members=1, comers=1)
    attempts, pauses = run(scenario, timeline)
    assert simulated(attempts) == [(0, 0, 0, 5_000), (0, 1, 900, 5_900), (1, 1, 5_900, 5_910)]
    assert pauses_of(pauses) == [(100, 900)]


def test_a_lock_keeps_the_new_owner_of_an_ordered_queue_out_until_it_is_released() -> None:
    scenario = replace(SMALL, members=1, ordered=True)
    timeline = history([(0, 1, 5_000), (1, 1, 10)], [(100, [(JOIN, 1)])], members=1, comers=1)
    assert simulated(run(scenario, timeline)[0]) == [(0, 0, 0, 5_000), (1, 1, 5_000, 5_010)]


def test_a_lock_outlasts_an_owner_that_had_not_begun() -> None:
    # Queue 1 goes from member 0, which is at it, to member 1, which leaves before it may begin.
    scenario = replace(SMALL, members=1, messages=2, ordered=True)
    timeline = history(
        [(0, 1, 5_000), (1, 1, 10)], [(100, [(JOIN, 1)]), (200, [(LEAVE, 1)])], members=1, comers=1
    )
    assert simulated(run(scenario, timeline)[0]) == [(0, 0, 0, 5_000), (1, 0, 5_000, 5_010)]


def test_members_hear_of_a_change_a_little_later() -> None:
    scenario = replace(SMALL, members=1, times=ScenarioTimes(notice_ms=70))
    timeline = history([(110, 1, 10)], [(100, [(JOIN, 1)])], members=1, comers=1)
    assert simulated(run(replace(scenario, messages=1), timeline)[0]) == [(0, 1, 170, 180)]


def test_a_leaving_member_ends_its_message_while_its_queues_wait() -> None:
    scenario = replace(SMALL, queues=4)
    # Member 0 has the queues 0 and 1, and is at a message of queue 0 when it leaves.
    timeline = history([(0, 0, 2_000), (5, 0, 10), (6, 1, 10)], [(100, [(LEAVE, 0)])])
    attempts, pauses = run(scenario, timeline)
    assert simulated(attempts) == [(0, 0, 0, 2_000), (1, 1, 2_000, 2_010), (2, 1, 2_010, 2_020)]
    assert pauses_of(pauses) == [(100, 2_000), (100, 2_000)]


def test_uncommitted_messages_of_a_dead_member_are_handled_again() -> None:
    # It commits each five seconds: the first message is safe, the second is not.
    timeline = history(
        [(1_000, 0, 10), (6_000, 0, 10), (6_100, 0, 500)], [(6_300, [(DIE, 0), (GONE, 0)])]
    )
    attempts, pauses = run(SMALL, timeline)
    assert simulated(attempts) == [
        (0, 0, 1_000, 1_010),
        (1, 0, 6_000, 6_010),
        (2, 0, 6_100, -6_300),
        (1, 1, 6_300, 6_310),
        (2, 1, 6_310, 6_810),
    ]
    assert pauses_of(pauses) == []  # the broker saw it at once


def test_the_queues_of_a_silent_member_stand_still_until_it_is_given_up() -> None:
    timeline = history([(0, 1, 5), (6_000, 0, 10)], [(5_000, [(DIE, 0)]), (9_000, [(GONE, 0)])])
    attempts, pauses = run(replace(SMALL, messages=2), timeline)
    assert simulated(attempts) == [(0, 1, 0, 5), (1, 1, 9_000, 9_010)]
    assert pauses_of(pauses) == [(5_000, 9_000)]


def test_a_new_owner_waits_in_vain_for_the_commit_of_a_silent_member() -> None:
    timeline = history(
        [(0, 1, 5), (6_000, 1, 10)], [(5_000, [(DIE, 1)]), (5_500, [(JOIN, 2)])], comers=1
    )
    # Three listed members and two queues: AVG gives queue 1 to member 1 still.
    attempts, pauses = run(replace(SMALL, messages=2), timeline)
    assert simulated(attempts) == [(0, 1, 0, 5)]
    assert pauses_of(pauses) == [(5_000, 60_000)]
    # The circle of one more queue gives the newcomer queue 2.
    scenario = replace(SMALL, queues=3, messages=2)
    timeline = history(
        [(0, 1, 5), (6_000, 2, 10)], [(5_000, [(DIE, 0)]), (5_500, [(JOIN, 2)])], comers=1
    )
    attempts, pauses = run(scenario, timeline, "AVG_BY_CIRCLE")
    assert simulated(attempts) == [(0, 1, 0, 5), (1, 2, 6_500, 6_510)]
    assert (5_000, 6_500) in pauses_of(pauses)


def test_a_handler_that_dies_while_its_queue_is_handed_over_loses_nothing() -> None:
    scenario = replace(SMALL, members=1)
    timeline = history(
        [(0, 1, 700)], [(100, [(JOIN, 1)]), (300, [(DIE, 0), (GONE, 0)])], members=1, comers=1
    )
    attempts = simulated(run(replace(scenario, messages=1), timeline)[0])
    assert attempts[0] == (0, 0, 0, -300)
    assert attempts[1][:2] == (0, 1)


def test_a_queue_without_an_owner_stands_still_to_the_end() -> None:
    timeline = history([(0, 0, 5), (9_000, 0, 5)], [(5_000, [(LEAVE, 0)])])
    attempts, pauses = run(replace(SMALL, messages=2), timeline, "CONFIG")
    assert simulated(attempts) == [(0, 0, 0, 5)]
    assert pauses_of(pauses) == [(5_000, 60_000)]


CHURN = LabScenario(
    name="h", queues=5, members=3, messages=60, duration_ms=60_000, joins=2, leaves=2, kills=2,
    crashes=1, restarts=1, keys=20, zipf=0.8, sigma=1.2, load=0.9, brokers=2, slow_members=1,
    times=ScenarioTimes(silent_ms=9_000),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**62), st.booleans(), st.sampled_from(["AVG", "STICKY", "CONSISTENT_HASH"]))
def test_nothing_is_lost_and_no_member_handles_two_messages_at_once(
    seed: int, ordered: bool, strategy: str
) -> None:
    scenario = replace(CHURN, ordered=ordered)
    timeline = draw_timeline(scenario, seed)
    attempts, pauses = run(scenario, timeline, strategy)
    assert set(attempts.message[attempts.done].tolist()) == set(range(60))
    assert (attempts.begin >= timeline.ready[attempts.message]).all()
    assert (pauses.end >= pauses.begin).all()
    for member in set(attempts.member.tolist()):
        own = attempts.member == member
        order = np.argsort(attempts.begin[own], kind="stable")
        begin, end = attempts.begin[own][order], attempts.end[own][order]
        assert (begin[1:] >= end[:-1]).all()
        came, went = timeline.spans[member]
        assert (begin >= came).all()
        assert (begin <= went).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**62))
def test_messages_of_a_queue_are_first_done_in_their_order(seed: int) -> None:
    timeline = draw_timeline(CHURN, seed)
    _, end, _ = run(CHURN, timeline)[0].first(60)
    for queue in range(5):
        own = end[timeline.queue == queue]
        assert (np.diff(own) >= 0).all()


@pytest.mark.parametrize("strategy", ["AVG", "BOUNDED_LOAD"])
def test_a_quiet_history_equals_one_computed_by_hand(strategy: str) -> None:
    scenario = msgspec.structs.replace(CHURN, joins=0, leaves=0, kills=0, crashes=0, restarts=0)
    timeline = draw_timeline(scenario, 11)
    owners = SimulatedGroup(strategy, topic_layout(scenario), timeline, scenario).owners
    free = [0] * scenario.members
    wanted = {}
    for message in range(scenario.messages):
        member = owners[int(timeline.queue[message])]
        work = int(timeline.work[message])
        work = int(work * scenario.slow_factor) if timeline.slow[member] else work
        begin = max(int(timeline.ready[message]), free[member])
        free[member] = begin + work
        wanted[message] = (member, begin, free[member])
    attempts = run(scenario, timeline, strategy)[0]
    rows = zip(attempts.message, attempts.member, attempts.begin, attempts.end, strict=True)
    assert {int(m): (int(w), int(b), int(e)) for m, w, b, e in rows} == wanted
