"""Plans: a seed decides everything of a day beforehand."""

import pytest

from roquet.model.errors import UsageError
from roquet.testing.simulation.timed.scenario import (
    POISON,
    SendKind,
    TimedFault,
    TransactionCourse,
    plan,
)


def test_a_seed_is_one_plan() -> None:
    assert plan(7) == plan(7)
    assert plan(7) != plan(8)


def test_all_that_can_be_sent_and_go_wrong_is_in_some_plan() -> None:
    days = [plan(seed) for seed in range(150)]
    operations = [operation for day in days for operation in day.operations]
    assert {operation.kind for operation in operations} == set(SendKind)
    assert {operation.course for operation in operations} == set(TransactionCourse)
    assert {operation.level for operation in operations} == set(range(19))
    assert any(operation.failures == POISON for operation in operations)
    assert {event.fault for day in days for event in day.events} == set(TimedFault)


def test_in_a_quarter_of_them_nothing_goes_wrong() -> None:
    assert all((not plan(seed).events) == (seed % 4 == 0) for seed in range(40))


def test_names_are_all_different_and_what_happens_is_in_order() -> None:
    for seed in range(40):
        day = plan(seed)
        assert len({operation.name for operation in day.operations}) == len(day.operations)
        times = [event.at_ms for event in day.events]
        assert times == sorted(times)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(UsageError, match="from 0 on"):
        plan(-1)
