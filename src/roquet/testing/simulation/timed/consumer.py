"""Clerk: one consumer of the day, whose handler takes its time and fails where the plan says so."""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Final

from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.push import PushConsumer
from roquet.client.reading.message import ReceivedMessage
from roquet.rules.delay.delay_levels import DEFAULT_LEVELS, retry_level
from roquet.testing.clock import VirtualClock
from roquet.testing.simulation.balance.consumer import HandlerFailed
from roquet.testing.simulation.servers import NAMESRV
from roquet.testing.simulation.timed.history import AUDIT, BILLING, TimedAttempt, TimedHistory
from roquet.testing.simulation.timed.scenario import POISON, RETRIES, SendOperation, TimedScenario

TOPIC: Final = "orders"

SUSPEND_MS: Final = 30_000
PULL_TIMEOUT_MS: Final = 300_000
"""Time that is passed over must not seem to be a broker's silence."""

LOOK_MS: Final = 300_000
SAVE_MS: Final = 15_000
"""What would be done again and again in a day, and tells nothing new: it is done less often."""

WANTED: Final = ("a", 5)
"""What the audit listens to: a tag, or as an expression a weight and more."""


class TimedConsumer:
    """A consumer on a host of its own."""

    def __init__(
        self,
        host: str,
        day: TimedScenario,
        operations: Mapping[str, SendOperation],
        history: TimedHistory,
        clock: VirtualClock,
        group: str = BILLING,
    ) -> None:
        self.host = host
        self._group = group
        self._operations = operations
        self._history = history
        self._handling_ms = day.handling_ms
        self._rng = Random(f"{day.seed} {host}")
        config = ConsumerConfig(
            clock=clock,
            rng=Random(f"{day.seed} {host} client"),
            client_ip=host,
            instance=host,
            consume_from=ConsumeFrom.FIRST,
            concurrency=4,
            suspend_ms=SUSPEND_MS,
            pull_timeout_ms=PULL_TIMEOUT_MS,
            rebalance_period_ms=LOOK_MS,
            route_period_ms=LOOK_MS,
            save_period_ms=SAVE_MS,
        )
        self.consumer = PushConsumer(NAMESRV, group=group, config=config)
        if group == BILLING:
            self.consumer.subscribe(TOPIC)
        elif by_tag(day):
            self.consumer.subscribe(TOPIC, WANTED[0])
        else:
            self.consumer.subscribe(TOPIC, sql=f"weight >= {WANTED[1]}")

    async def live(self) -> None:
        """Join, handle messages, and leave in good order once `consumer.stop` was called."""
        async with self.consumer:
            await self.consumer.run(self._handle)
        self._history.say(f"{self.host} has left")

    async def _handle(self, message: ReceivedMessage) -> None:
        name, history = message.body.decode(), self._history
        handling = history.begin(
            TimedAttempt(self.host, self._group, name, message.tries, history.now_ms())
        )
        await asyncio.sleep(self._rng.randint(*self._handling_ms) / 1000)
        failing = self._fails(name)
        history.end(handling, failed=failing)
        if failing:
            if message.tries < RETRIES:
                wait_ms = DEFAULT_LEVELS[retry_level(message.tries) - 1]
                history.dues.append(history.now_ms() + wait_ms)
            raise HandlerFailed(name)

    def _fails(self, name: str) -> bool:
        """Whether this try fails; a poisoned one always does."""
        failures, known = self._operations[name].failures, self._history.failures
        if self._group == AUDIT or (failures < POISON and known.get(name, 0) >= failures):
            return False
        known[name] = known.get(name, 0) + 1
        return True


def by_tag(day: TimedScenario) -> bool:
    """Whether the audit chooses by tag: else by an expression."""
    return day.seed % 2 == 0


def is_audited(day: TimedScenario, operation: SendOperation) -> bool:
    """Whether the audit wants a message."""
    return operation.tag == WANTED[0] if by_tag(day) else operation.weight >= WANTED[1]
