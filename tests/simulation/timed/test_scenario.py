"""Timed scenario: a seed decides everything beforehand."""

import pytest

from roquet.model.errors import UsageError
from simulation.timed.scenario import (
    FAULTS,
    POISON,
    SendKind,
    TransactionCourse,
    draw_scenario,
)


def test_a_seed_is_one_scenario() -> None:
    assert draw_scenario(7) == draw_scenario(7)
    assert draw_scenario(7) != draw_scenario(8)


def test_all_that_can_be_sent_and_go_wrong_is_in_some_scenario() -> None:
    days = [draw_scenario(seed) for seed in range(150)]
    operations = [operation for day in days for operation in day.operations]
    assert {operation.kind for operation in operations} == set(SendKind)
    assert {operation.course for operation in operations} == set(TransactionCourse)
    assert {operation.level for operation in operations} == set(range(19))
    assert any(operation.failures == POISON for operation in operations)
    assert {event.fault for day in days for event in day.events} == set(FAULTS)


def test_in_a_quarter_of_them_nothing_goes_wrong() -> None:
    assert all((not draw_scenario(seed).events) == (seed % 4 == 0) for seed in range(40))


def test_names_are_all_different_and_what_happens_is_in_order() -> None:
    for seed in range(40):
        day = draw_scenario(seed)
        assert len({operation.name for operation in day.operations}) == len(day.operations)
        times = [event.at_ms for event in day.events]
        assert times == sorted(times)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(UsageError, match="from 0 on"):
        draw_scenario(-1)
