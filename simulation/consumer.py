"""SimulatedConsumer: a push consumer on its own host; its handler takes time and may fail."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.push import PushConsumer
from roquet.client.reading.message import ReceivedMessage
from roquet.testing.clock import VirtualClock
from simulation.history import HandlingAttempt, History
from simulation.scenario import ClusterScenario


class SimulatedConsumer:
    """Consumes until it is stopped or killed, and notes each attempt in the history."""

    def __init__(
        self,
        host: str,
        consumer: PushConsumer,
        history: History,
        scenario: ClusterScenario,
        fails: Callable[[str], bool],
    ) -> None:
        self.host = host
        self.consumer = consumer
        self.fails = fails
        """Whether this attempt at a message, given by name, fails; counts attempts."""
        self._history = history
        self._handling_ms = scenario.handling_ms
        self._rng = Random(f"{scenario.seed} {host}")

    async def live(self) -> None:
        """Join, handle messages, and leave in good order once `consumer.stop` was called."""
        async with self.consumer:
            await self.consumer.run(self._handle)
        self._history.consumer_left(self.host)

    async def _handle(self, message: ReceivedMessage) -> None:
        name = message.body.decode()
        attempt = self._history.begin(
            HandlingAttempt(
                consumer=self.host,
                group=self.consumer.group,
                name=name,
                queue=message.queue,
                offset=message.queue_offset,
                tries=message.tries,
                began_ms=self._history.now_ms(),
            )
        )
        await asyncio.sleep(self._rng.randint(*self._handling_ms) / 1000)
        failed = self.fails(name)
        self._history.end(attempt, failed=failed)
        if failed:
            raise HandlerFailed(name)


class HandlerFailed(Exception):
    """Raised by a handler because the scenario asks for it."""


def consumer_config(
    host: str, scenario: ClusterScenario, clock: VirtualClock, **settings: Any
) -> ConsumerConfig:
    """The configuration of a consumer on a host; `settings` are more fields of it."""
    return ConsumerConfig(
        clock=clock,
        rng=Random(f"{scenario.seed} {host} client"),
        client_ip=host,
        instance=host,
        consume_from=ConsumeFrom.FIRST,
        concurrency=4,
        **settings,
    )
