"""Member: one consumer of the simulated group, with a handler that takes its time and may fail."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any, Final

from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.push import PushConsumer
from roquet.client.reading.message import ReceivedMessage
from roquet.model.queue import MessageQueue
from roquet.testing.clock import VirtualClock
from roquet.testing.simulation.balance.history import BalanceHistory, HandlingAttempt
from roquet.testing.simulation.balance.scenario import BalanceScenario

TOPIC: Final = "flights"
GROUP: Final = "billing"


class BalanceConsumer:
    """A consumer on a host of its own."""

    def __init__(
        self,
        host: str,
        namesrv: str,
        scenario: BalanceScenario,
        history: BalanceHistory,
        clock: VirtualClock,
    ) -> None:
        self.host = host
        self._scenario = scenario
        self._history = history
        self._rng = Random(f"{scenario.seed} {host}")
        self._tries: dict[str, int] = {}
        self.consumer = PushConsumer(namesrv, group=GROUP, topic=TOPIC, config=self._config(clock))
        self.consumer.on_assigned(lambda queues: history.hold(host, _ours(queues)))
        self.consumer.on_revoked(lambda queues: history.let_go(host, _ours(queues), "revoked"))

    def __str__(self) -> str:
        return self.host

    def _config(self, clock: VirtualClock) -> ConsumerConfig:
        settings: dict[str, Any] = {
            "clock": clock,
            "rng": Random(f"{self._scenario.seed} {self.host} client"),
            "client_ip": self.host,
            "instance": self.host,
            "consume_from": ConsumeFrom.FIRST,
            "concurrency": 4,
            **(
                {"ordered": True}
                if self._scenario.ordered and "ordered" in ConsumerConfig.__struct_fields__
                else {}
            ),
        }
        return ConsumerConfig(**settings)

    async def live(self) -> None:
        """Join, handle messages, and leave in good order once `consumer.stop` was called."""
        async with self.consumer:
            await self.consumer.run(self._handle)
        self._history.let_go(self.host, None, "left")

    async def _handle(self, message: ReceivedMessage) -> None:
        name = message.body.decode()
        order_key, _, number = name.partition(":")
        handling = self._history.begin(
            HandlingAttempt(
                self.host,
                name,
                order_key,
                int(number),
                message.queue,
                message.queue_offset,
                self._history.now_ms(),
            )
        )
        await asyncio.sleep(self._rng.randint(*self._scenario.handling_ms) / 1000)
        failing = self.fails(name)
        self._history.end(handling, failed=failing)
        if failing:
            raise HandlerFailed(name)

    def fails(self, name: str) -> bool:
        """Whether this try fails: of some messages the first two do."""
        if Random(f"{self._scenario.seed} {name}").random() >= self._scenario.failing:
            return False
        self._tries[name] = self._tries.get(name, 0) + 1
        return self._tries[name] <= 2


class HandlerFailed(Exception):
    """What a handler raises as the scenario wants it."""


def _ours(queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """Those of the topic: retry topics are shared out like any other, and judged by nobody."""
    return [queue for queue in queues if queue.topic == TOPIC]
