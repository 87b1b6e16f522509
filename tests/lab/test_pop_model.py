"""Pop consumption: the rules of pop, and the effects of deaths and slow handlers."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.lab.conftest import SMALL, history

from roquet.lab.pop_model import RETRIES_MAX, PopModel
from roquet.lab.scenario import LabScenario, ScenarioTimes
from roquet.lab.timeline import DIE, GONE, JOIN, LEAVE, MICROS_PER_MS, Timeline, draw_timeline


def simulated(scenario: LabScenario, timeline: Timeline) -> list[tuple[int, int, int, int]]:
    """Message, member, begin and end in ms, in the order of beginning; cut ones end in minus."""
    game = PopModel(scenario, timeline)
    game.play()
    attempts = game.attempts(0)
    rows = zip(
        attempts.begin, attempts.message, attempts.member, attempts.end, attempts.done, strict=True
    )
    return [
        (
            int(m),
            int(w),
            int(b) // MICROS_PER_MS,
            int(e) // MICROS_PER_MS if d else -int(e) // MICROS_PER_MS,
        )
        for b, m, w, e, d in sorted(rows, key=lambda row: tuple(map(int, row)))
    ]


def test_a_free_member_takes_the_next_message_of_any_queue() -> None:
    timeline = history([(0, 0, 900), (1, 0, 300), (2, 0, 300)])
    assert simulated(SMALL, timeline) == [(0, 0, 0, 900), (1, 1, 1, 301), (2, 1, 301, 601)]


def test_a_quick_member_takes_more_at_a_time() -> None:
    # 1, 2, 4, …: by `rules.consumption.pop.next_batch_size`. Member 1 is busy with a long one
    # meanwhile.
    timeline = history([(0, 0, 10), (0, 0, 5_000), *[(20, 0, 10)] * 6, (20, 1, 9_000)])
    takers = [member for _, member, _, _ in simulated(replace(SMALL, messages=9), timeline)]
    assert takers.count(1) == 1


def test_a_slow_member_takes_longer_and_less() -> None:
    timeline = history([(0, 0, 100)] * 12, slow=[0])
    rows = simulated(replace(SMALL, messages=12, slow_factor=10), timeline)
    assert rows[0] == (0, 0, 0, 1_000)
    assert sum(member == 0 for _, member, _, _ in rows) == 1


def test_messages_of_a_dead_member_return_after_the_invisible_time() -> None:
    scenario = replace(SMALL, messages=1, times=ScenarioTimes(invisible_ms=7_000))
    timeline = history([(1_000, 0, 500)], [(1_200, [(DIE, 0), (GONE, 0)])])
    assert simulated(scenario, timeline) == [(0, 0, 1_000, -1_200), (0, 1, 8_000, 8_500)]


def test_a_message_handled_longer_than_the_invisible_time_is_delivered_again() -> None:
    scenario = replace(SMALL, messages=1, times=ScenarioTimes(invisible_ms=2_000))
    # Everybody takes as long, so it comes again and again, until it would be a dead letter.
    rows = simulated(scenario, history([(0, 0, 5_000)]))
    assert rows[:3] == [(0, 0, 0, 5_000), (0, 1, 2_000, 7_000), (0, 0, 5_000, 10_000)]
    assert len(rows) == 1 + RETRIES_MAX


def test_a_leaving_member_ends_its_message_and_returns_the_rest_at_once() -> None:
    # Member 0 is alone first, and takes two messages the second time.
    timeline = history(
        [(0, 0, 20), (20, 0, 100), (20, 0, 100)],
        [(50, [(JOIN, 1)]), (70, [(LEAVE, 0)])], members=1, comers=1,
    )  # fmt: skip
    rows = simulated(replace(SMALL, members=1), timeline)
    assert rows == [(0, 0, 0, 20), (1, 0, 20, 120), (2, 1, 70, 170)]


def test_members_beyond_the_queues_have_work_all_the_same() -> None:
    scenario = replace(SMALL, members=5, messages=5)
    game = PopModel(scenario, history([(0, 0, 100)] * 5, members=5))
    game.play()
    assert set(game.attempts(0).member.tolist()) == {0, 1, 2, 3, 4}
    assert (game.idle_us, game.spare_us) == (0, 3 * 60_000 * MICROS_PER_MS)


CHURN = LabScenario(
    name="h", queues=5, members=3, messages=60, duration_ms=60_000, joins=2, leaves=2, kills=2,
    crashes=1, restarts=1, sigma=1.2, load=0.9, brokers=2, slow_members=1,
    times=ScenarioTimes(silent_ms=9_000, invisible_ms=6_000),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**62))
def test_nothing_is_lost_and_no_member_handles_two_messages_at_once(seed: int) -> None:
    timeline = draw_timeline(CHURN, seed)
    game = PopModel(CHURN, timeline)
    game.play()
    attempts = game.attempts(0)
    assert set(attempts.message[attempts.done].tolist()) == set(range(60))
    assert (attempts.begin >= timeline.ready[attempts.message]).all()
    for member in set(attempts.member.tolist()):
        own = attempts.member == member
        order = np.argsort(attempts.begin[own], kind="stable")
        begin, end = attempts.begin[own][order], attempts.end[own][order]
        assert (begin[1:] >= end[:-1]).all()
        came, went = timeline.spans[member]
        assert (begin >= came).all()
        assert (begin <= went).all()
