"""Scenarios: a seed decides everything beforehand."""

import pytest

from roquet.model.errors import UsageError
from roquet.testing.simulation.scenario import ACTION_MS, MILD, Fault, scenario


def test_a_seed_is_one_scenario() -> None:
    assert scenario(7) == scenario(7)
    assert scenario(7) != scenario(8)


def test_in_a_calm_scenario_members_only_come_and_go_in_good_order() -> None:
    calm = [scenario(seed) for seed in range(100) if scenario(seed).calm]
    assert len(calm) > 25
    assert {event.fault for one in calm for event in one.events} == set(MILD)


def test_harsh_scenarios_hold_every_fault_and_what_happens_is_in_order() -> None:
    harsh = [scenario(seed) for seed in range(100) if not scenario(seed).calm]
    assert {event.fault for one in harsh for event in one.events} == set(Fault)
    for one in harsh:
        times = [event.at_ms for event in one.events]
        assert times == sorted(times)
        assert 0 < times[0] <= times[-1] < ACTION_MS


def test_an_event_can_be_read() -> None:
    assert str(scenario(1).events[0]).split(": ")[0].endswith(" ms")


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(UsageError, match="from 0 on"):
        scenario(-1)
