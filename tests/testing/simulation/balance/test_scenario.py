"""Scenarios: a seed decides everything beforehand."""

import pytest

from roquet.model.errors import UsageError
from roquet.testing.simulation.balance.scenario import ACTION_MS, MILD, BalanceFault, draw_scenario


def test_a_seed_is_one_scenario() -> None:
    assert draw_scenario(7) == draw_scenario(7)
    assert draw_scenario(7) != draw_scenario(8)


def test_in_a_calm_scenario_members_only_come_and_go_in_good_order() -> None:
    calm = [draw_scenario(seed) for seed in range(100) if draw_scenario(seed).calm]
    assert len(calm) > 25
    assert {event.fault for one in calm for event in one.events} == set(MILD)


def test_harsh_scenarios_hold_every_fault_and_what_happens_is_in_order() -> None:
    harsh = [draw_scenario(seed) for seed in range(100) if not draw_scenario(seed).calm]
    assert {event.fault for one in harsh for event in one.events} == set(BalanceFault)
    for one in harsh:
        times = [event.at_ms for event in one.events]
        assert times == sorted(times)
        assert 0 < times[0] <= times[-1] < ACTION_MS


def test_an_event_can_be_read() -> None:
    assert str(draw_scenario(1).events[0]).split(": ")[0].endswith(" ms")


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(UsageError, match="from 0 on"):
        draw_scenario(-1)
