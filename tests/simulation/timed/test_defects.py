"""The timed workload earns its trust: each planted bug is found, and without one nothing is."""

from contextlib import nullcontext
from typing import Any

import msgspec
import pytest

from simulation.patching import PlantedDefect
from simulation.scenario import Fault, FaultEvent
from simulation.simulator import simulate
from simulation.timed.defects import DEFECTS
from simulation.timed.scenario import (
    POISON,
    SendKind,
    SendOperation,
    TimedScenario,
    TransactionCourse,
    draw_scenario,
)
from simulation.timed.workload import TimedWorkload

CRASH = FaultEvent(at_ms=12_000, fault=Fault.CRASH, down_ms=60_000)


def scenario(crash: bool = False, **operation: Any) -> TimedScenario:
    """A scenario with one message; whole seeds find it, too: `simulation --defect NAME`."""
    wanted = {"name": "e0", "at_ms": 9_000, "failures": 0, "tag": "a", "weight": 1, **operation}
    return msgspec.structs.replace(
        draw_scenario(0),
        brokers=1,
        queues=1,
        members=1,
        network_ms=(0, 3),
        operations=(SendOperation(**wanted),),
        events=(CRASH,) if crash else (),
    )


SCENARIOS = {
    "early-timer": (scenario(kind=SendKind.TIMER, wait_ms=7_500), "early: e0"),
    "unnoted-commit": (scenario(kind=SendKind.TRANSACTION), "doubled: e0"),
    "skipped-level": (scenario(kind=SendKind.PLAIN, failures=1), "early: e0"),
    "dropped-dead-letter": (
        scenario(kind=SendKind.PLAIN, failures=POISON),
        "missing-dead-letter: e0",
    ),
    "forgotten-overdue": (scenario(True, kind=SendKind.LEVEL, level=4, wait_ms=30_000), "lost: e0"),
    "forgotten-halves": (
        scenario(True, kind=SendKind.TRANSACTION, course=TransactionCourse.COMMIT_WHEN_CHECKED),
        "lost: e0",
    ),
}
"""For each bug a scenario in which it shows, and how a finding begins."""


def findings(scenario: TimedScenario, defect: PlantedDefect) -> tuple[str, ...]:
    return simulate(lambda _: TimedWorkload(scenario), 0, defect).findings


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_bug_is_found(defect: str) -> None:
    scenario, beginning = SCENARIOS[defect]
    found = findings(scenario, DEFECTS[defect])
    assert any(finding.startswith(beginning) for finding in found)


@pytest.mark.parametrize("defect", [name for name in SCENARIOS if name != "dropped-dead-letter"])
def test_without_it_nothing_is_wrong(defect: str) -> None:
    assert findings(SCENARIOS[defect][0], nullcontext) == ()
