"""Balance scenario: a seed decides everything beforehand."""

import pytest

from roquet.model.errors import UsageError
from simulation.balance.scenario import (
    ACTION_MS,
    HARSH,
    MILD,
    draw_scenario,
    message_name,
    parse_message_name,
)


def test_a_seed_is_one_scenario() -> None:
    assert draw_scenario(7) == draw_scenario(7)
    assert draw_scenario(7) != draw_scenario(8)


def test_in_a_calm_scenario_consumers_only_join_and_leave_in_good_order() -> None:
    calm = [draw_scenario(seed) for seed in range(100) if draw_scenario(seed).calm]
    assert len(calm) > 25
    assert {event.fault for one in calm for event in one.events} == set(MILD)


def test_harsh_scenarios_hold_every_fault_in_order_of_time() -> None:
    harsh = [draw_scenario(seed) for seed in range(100) if not draw_scenario(seed).calm]
    assert {event.fault for one in harsh for event in one.events} == set(HARSH)
    for one in harsh:
        times = [event.at_ms for event in one.events]
        assert times == sorted(times)
        assert 0 < times[0] <= times[-1] < ACTION_MS


def test_a_broker_that_crashes_is_back_within_twenty_seconds() -> None:
    events = [event for seed in range(100) for event in draw_scenario(seed).events]
    assert max(event.down_ms for event in events) < 20_000


def test_a_name_says_the_order_key_and_the_place() -> None:
    assert parse_message_name(message_name("key3", 12)) == ("key3", 12)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(UsageError, match="from 0 on"):
        draw_scenario(-1)
