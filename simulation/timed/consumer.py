"""Consumers of the timed workload: the billing group handles all, the audit group a selection."""

from typing import Final

from roquet.client.push import PushConsumer
from roquet.testing.clock import VirtualClock
from simulation.consumer import SimulatedConsumer, consumer_config
from simulation.servers import NAMESRV
from simulation.timed.history import TimedHistory
from simulation.timed.scenario import POISON, SendOperation, TimedScenario

TOPIC: Final = "orders"

BILLING: Final = "billing"
"""The group that handles every message, and fails as often as the scenario says."""

AUDIT: Final = "audit"
"""The group that subscribes to some messages, by tag or by expression, and never fails."""

AUDITED_TAG: Final = "a"
AUDITED_WEIGHT: Final = 5
"""The audit's subscription: this tag, or at least this weight."""

SUSPEND_MS: Final = 30_000
PULL_TIMEOUT_MS: Final = 300_000
"""Longer than any jump of the clock, which must not look like a silent broker."""

ROUTE_PERIOD_MS: Final = 300_000
SAVE_PERIOD_MS: Final = 15_000
"""Periodic work is done less often than by default: over a day it adds lines, and nothing new."""


def timed_consumer(
    host: str,
    group: str,
    scenario: TimedScenario,
    history: TimedHistory,
    clock: VirtualClock,
) -> SimulatedConsumer:
    """A member of a group on a host."""
    config = consumer_config(
        host,
        scenario,
        clock,
        suspend_ms=SUSPEND_MS,
        pull_timeout_ms=PULL_TIMEOUT_MS,
        rebalance_period_ms=ROUTE_PERIOD_MS,
        route_period_ms=ROUTE_PERIOD_MS,
        save_period_ms=SAVE_PERIOD_MS,
    )
    consumer = PushConsumer(NAMESRV, group=group, config=config)
    if group == BILLING:
        consumer.subscribe(TOPIC)
    elif filters_by_tag(scenario):
        consumer.subscribe(TOPIC, AUDITED_TAG)
    else:
        consumer.subscribe(TOPIC, sql=f"weight >= {AUDITED_WEIGHT}")
    fails = PlannedFailures(scenario, history) if group == BILLING else lambda _: False
    return SimulatedConsumer(host, consumer, history, scenario, fails)


class PlannedFailures:
    """Fails the first attempts at a message, by any consumer, as often as its operation says."""

    def __init__(self, scenario: TimedScenario, history: TimedHistory) -> None:
        self._failures = {operation.name: operation.failures for operation in scenario.operations}
        self._history = history

    def __call__(self, name: str) -> bool:
        """Whether this attempt fails; a poison message always does."""
        wanted, made = self._failures[name], self._history.failures.get(name, 0)
        if wanted < POISON and made >= wanted:
            return False
        self._history.failures[name] = made + 1
        return True


def filters_by_tag(scenario: TimedScenario) -> bool:
    """Whether the audit subscribes by tag; else by an expression."""
    return scenario.seed % 2 == 0


def is_audited(scenario: TimedScenario, operation: SendOperation) -> bool:
    """Whether the audit's subscription matches a message."""
    if filters_by_tag(scenario):
        return operation.tag == AUDITED_TAG
    return operation.weight >= AUDITED_WEIGHT
