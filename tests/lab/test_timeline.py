"""Timelines are reproducible by seed, follow the rules, and stay within the scenario."""

import msgspec
import numpy as np
import pytest

from roquet.lab.scenario import PRESETS, LabScenario, ScenarioTimes
from roquet.lab.timeline import (
    DIE,
    GONE,
    JOIN,
    LEAVE,
    MICROS_PER_MS,
    NEVER,
    draw_timeline,
    room_of_member,
    seed_of,
    topic_layout,
)
from roquet.rules.queue_selection import by_hash
from roquet.wire.java_hash import hash_code


def test_a_seed_draws_the_same_timeline_each_time_and_another_seed_another() -> None:
    one, again, other = (draw_timeline(PRESETS["churn"], seed) for seed in (5, 5, 6))
    for name in ("events", "names", "spans", "commits", "slow"):
        assert getattr(one, name) == getattr(again, name)
    for name in ("sent", "ready", "queue", "key", "work"):
        assert (getattr(one, name) == getattr(again, name)).all()
    assert (one.sent != other.sent).any()
    assert one.names != other.names


def test_histories_have_seeds_of_their_own() -> None:
    seeds = {seed_of(study, number) for study in range(5) for number in range(1_000)}
    assert len(seeds) == 5_000
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_messages_are_sent_in_order_within_the_history() -> None:
    timeline = draw_timeline(PRESETS["steady"], 1)
    assert (np.diff(timeline.sent) >= 0).all()
    assert timeline.sent[0] >= 0
    assert timeline.sent[-1] <= PRESETS["steady"].duration_ms * MICROS_PER_MS


def test_the_amount_of_work_follows_the_load() -> None:
    scenario = LabScenario(messages=20_000, duration_ms=2_000_000)
    assert draw_timeline(scenario, 1).work.mean() / MICROS_PER_MS == pytest.approx(
        scenario.work_ms, rel=0.02
    )


def test_messages_without_keys_go_to_one_queue_after_the_other() -> None:
    queue = draw_timeline(LabScenario(queues=8, messages=100), 3).queue
    assert (np.diff(queue) % 8 == 1).all()


def test_messages_with_keys_go_to_the_queue_of_their_hash() -> None:
    timeline = draw_timeline(LabScenario(queues=8, keys=50, zipf=1.0, messages=200), 3)
    wanted = [by_hash(hash_code(f"key-{key}"), 8) for key in timeline.key.tolist()]
    assert timeline.queue.tolist() == wanted


def test_the_more_a_zipf_law_leans_the_more_its_first_key_has() -> None:
    shares = []
    for zipf in (0.0, 1.0, 2.0):
        timeline = draw_timeline(LabScenario(keys=100, zipf=zipf, messages=5_000), 2)
        shares.append(np.bincount(timeline.key).max() / 5_000)
    assert shares[0] < 0.03
    assert shares[0] < shares[1] < shares[2]
    assert shares[2] == pytest.approx(0.61, abs=0.03)  # 1 / zeta(2)


def test_a_trace_gives_its_keys_and_its_rhythm() -> None:
    timeline = draw_timeline(LabScenario(key_weights=(9, 1), rhythm=(3.0, 1.0), messages=4_000), 2)
    assert np.bincount(timeline.key).max() / 4_000 == pytest.approx(0.9, abs=0.02)
    half = LabScenario().duration_ms * MICROS_PER_MS // 2
    assert (timeline.sent < half).mean() == pytest.approx(0.75, abs=0.03)


def test_producers_go_around_a_slow_broker_until_its_penalty_is_over() -> None:
    scenario = LabScenario(brokers=4, slow_brokers=1, slow_broker_ms=1_000, messages=2_000)
    timeline, slow = draw_timeline(scenario, 1), np.array(topic_layout(scenario).slow)
    assert slow.sum() == 2
    assert 0 < slow[timeline.queue].mean() < 0.2  # of the queues it has a quarter
    late = timeline.ready - timeline.sent
    assert (late == np.where(slow[timeline.queue], 1_000 * MICROS_PER_MS, 0)).all()


def test_keys_cannot_go_around_a_slow_broker() -> None:
    scenario = LabScenario(brokers=4, slow_brokers=1, keys=1_000, messages=2_000)
    timeline, slow = draw_timeline(scenario, 1), np.array(topic_layout(scenario).slow)
    assert slow[timeline.queue].mean() == pytest.approx(0.25, abs=0.05)


def test_queues_lie_in_order_on_their_brokers_in_two_rooms() -> None:
    of = topic_layout(LabScenario(queues=7, brokers=3))
    assert list(of.queues) == sorted(of.queues)
    assert of.rooms == ("room1", "room2")
    assert len({queue.broker_name for queue in of.queues}) == 3


def kinds(course_of: LabScenario, seed: int = 1) -> list[str]:
    return [kind for _, events in draw_timeline(course_of, seed).events for kind, _ in events]


def test_everything_that_was_ordered_happens() -> None:
    counts = kinds(LabScenario(members=30, joins=3, leaves=4, kills=5, crashes=6))
    assert [counts.count(kind) for kind in (JOIN, LEAVE, DIE, GONE)] == [3, 4, 11, 11]


def test_the_last_member_stays() -> None:
    assert kinds(LabScenario(members=3, leaves=9)).count(LEAVE) == 2


def test_a_silent_machine_is_given_up_later_and_a_killed_process_at_once() -> None:
    times = ScenarioTimes(silent_ms=7_000, killed_ms=0)
    crashed = draw_timeline(LabScenario(crashes=1, times=times), 1).events
    assert [[kind for kind, _ in events] for _, events in crashed] == [[DIE], [GONE]]
    assert crashed[1][0] - crashed[0][0] == 7_000 * MICROS_PER_MS
    killed = draw_timeline(LabScenario(kills=1, times=times), 1).events
    assert [[kind for kind, _ in events] for _, events in killed] == [[DIE, GONE]]


@pytest.mark.parametrize("killed", [False, True])
def test_a_rolling_restart_replaces_each_member_once(killed: bool) -> None:
    scenario = LabScenario(members=4, restarts=4, restarts_killed=killed, slow_members=1)
    timeline = draw_timeline(scenario, 1)
    gone = [m for _, events in timeline.events for kind, m in events if kind in (LEAVE, DIE)]
    assert sorted(gone) == [0, 1, 2, 3]
    assert len(set(timeline.names)) == 8
    assert sum(timeline.slow) == 2  # the one who was slow still is
    assert [end == NEVER for _, end in timeline.spans] == [False] * 4 + [True] * 4


def test_no_member_leaves_before_it_has_joined() -> None:
    scenario = LabScenario(members=3, joins=3, leaves=3, kills=3, restarts=3, restart_ms=90_000)
    for seed in range(50):
        there = set(range(3))
        for _, events in draw_timeline(scenario, seed).events:
            for kind, member in events:
                if kind == JOIN:
                    there.add(member)
                elif kind in (LEAVE, DIE):
                    there.remove(member)
            assert there


def test_the_name_of_a_member_contains_its_machine_room() -> None:
    timeline = draw_timeline(LabScenario(members=4), 1)
    rooms = [room_of_member(name) for name in timeline.names]
    assert rooms == ["room1", "room2", "room1", "room2"]


def test_a_course_is_a_value() -> None:
    with pytest.raises(AttributeError):
        draw_timeline(LabScenario(), 1).seed = 2  # type: ignore[misc]
    assert msgspec.structs.replace(draw_timeline(LabScenario(), 1), seed=2).seed == 2
