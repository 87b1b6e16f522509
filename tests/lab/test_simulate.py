"""A history under a strategy is one row, the same by seed, alone or among others."""

import pytest
from msgspec.structs import replace

from roquet.lab.decisions import NAMES, POP
from roquet.lab.scenario import PRESETS, LabScenario
from roquet.lab.simulate import mode_of, simulate, simulate_many
from roquet.lab.timeline import draw_timeline
from roquet.model.errors import UsageError

CHURN = replace(PRESETS["churn"], messages=80, keys=30, zipf=1.0, slow_members=1, crashes=1)


@pytest.mark.parametrize("name", NAMES)
def test_a_row_is_the_same_alone_and_among_others(name: str) -> None:
    seeds = range(7)
    together = simulate_many(CHURN, name, [draw_timeline(CHURN, seed) for seed in seeds])
    for number, seed in enumerate(seeds):
        alone = simulate_many(CHURN, name, [draw_timeline(CHURN, seed)])
        assert alone == {field: [values[number]] for field, values in together.items()}


def test_a_row_names_its_scenario_and_strategy() -> None:
    row = simulate(CHURN, "sticky", 3)
    assert (row.scenario, row.strategy, row.mode) == ("churn", "STICKY", "queue")
    assert row == simulate(CHURN, "STICKY", 3)
    assert row != simulate(CHURN, "STICKY", 4)
    popped = simulate(CHURN, "pop", 3)
    assert (popped.mode, popped.moved, popped.queues_cv) == (mode_of(POP), 0, None)


def test_every_strategy_meets_the_same_changes() -> None:
    assert {simulate(CHURN, name, 9).changes for name in NAMES} == {
        simulate(CHURN, "AVG", 9).changes
    }


def test_an_unknown_strategy_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'RENDEZVOUS'"):
        simulate(CHURN, "RENDEVOUS", 1)


def test_lag_weighted_reads_the_lag_between_changes() -> None:
    # What a dead member's queues have gathered in two minutes is then shared out anew.
    crash = PRESETS["crash"]
    moved = {
        name: sum(simulate(crash, name, seed).moved for seed in range(4))
        for name in ("LAG_WEIGHTED", "STICKY")
    }
    assert moved["LAG_WEIGHTED"] > moved["STICKY"] == 8


def test_popping_spares_a_heavy_queue_its_tail_and_breaks_its_order() -> None:
    skewed = LabScenario(keys=200, zipf=1.3, messages=600, duration_ms=60_000)
    owned, popped = (simulate(skewed, name, 5) for name in ("AVG", POP))
    assert popped.p99_ms < owned.p99_ms / 2
    assert (owned.disordered, popped.disordered > 0) == (0, True)


def test_a_group_of_one_member_has_nothing_to_share() -> None:
    row = simulate(LabScenario(members=1, queues=1, brokers=1, kills=3, messages=20), "AVG", 1)
    assert (row.changes, row.moved, row.stranded) == (0, 0, 0)
