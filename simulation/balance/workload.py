"""Balance workload: consumers join, leave and die while messages of some order keys are sent."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from random import Random
from typing import ClassVar, Final, Self

from roquet.client.config import ProducerConfig
from roquet.client.producer import Producer
from roquet.model.errors import CallError
from roquet.model.message import Message
from roquet.model.queue import MessageQueue
from roquet.testing.clock import this_loop
from simulation.balance import checks
from simulation.balance.consumer import GROUP, TOPIC, balance_consumer
from simulation.balance.history import BalanceHistory
from simulation.balance.scenario import (
    ACTION_MS,
    BalanceScenario,
    draw_scenario,
    message_name,
)
from simulation.cluster import SimulatedCluster
from simulation.consumer import SimulatedConsumer
from simulation.history import short_name
from simulation.scenario import Fault, FaultEvent
from simulation.servers import NAMESRV
from simulation.simulator import AgendaItem

PRODUCER_HOST: Final = "10.0.3.1"

PROMPT_MS: Final = 5_000
"""Within this time a calm group is balanced again after a consumer joined or left."""

SETTLE_MS: Final = 420_000
"""How long settling may take: silence is noticed after 120 s, retries wait for some tens."""

SILENCE_MS: Final = 140_000
"""After it every broker has noticed consumers that fell silent, or were killed while it could not
be told: until then members that ask different brokers see different groups, as in Java."""

LOCKS_FORGOTTEN_MS: Final = 60_000
"""Locks are not stored: after a broker's crash two members may hold one until they look again."""


class BalanceWorkload:
    """One scenario on one cluster."""

    name: ClassVar[str] = "balance"
    aftermath_ms: ClassVar[int] = 30_000

    def __init__(self, scenario: BalanceScenario) -> None:
        self.scenario = scenario
        self.clock = this_loop().clock
        self.history = BalanceHistory(self.clock.monotonic_ms)
        self.cluster = SimulatedCluster(scenario, self.history, TOPIC, self._new_consumer)
        self.late: list[str] = []
        """Findings: a calm group was not balanced soon after a consumer joined or left."""
        self._sending: asyncio.Task[None]

    @classmethod
    def of_seed(cls, seed: int) -> Self:
        """The workload of a seed."""
        return cls(draw_scenario(seed))

    def observed(self) -> AbstractContextManager[None]:
        """Observe nothing: the checks read what clients and servers tell."""
        return nullcontext()

    async def start(self) -> None:
        """Let the first consumers join, and begin to send."""
        for _ in range(self.scenario.members):
            self.cluster.join()
        self._sending = self.cluster.hosts.run(PRODUCER_HOST, self._produce())

    def agenda(self) -> Sequence[AgendaItem]:
        """Faults, in a calm scenario a check soon after each, and at last the end of all faults."""
        heal = FaultEvent(at_ms=ACTION_MS, fault=Fault.HEAL)
        events = [*self.scenario.events, heal]
        items: list[AgendaItem] = []
        for event, following in zip(events, [*events[1:], heal], strict=True):
            items.append(AgendaItem(event.at_ms, partial(self.cluster.inject, event)))
            at_ms = event.at_ms + PROMPT_MS
            if self.scenario.calm and at_ms < following.at_ms:
                check = AgendaItem(at_ms, partial(self._check_promptness, event))
                items.append(check)
        return items

    async def wait_until(self, at_ms: int) -> None:
        """Sleep until then."""
        await asyncio.sleep(max(0, at_ms - self.clock.monotonic_ms()) / 1000)

    async def settle(self) -> bool:
        """Wait until each queue has one owner and every acknowledged message is handled."""
        await self._sending
        if not self.scenario.calm:
            await asyncio.sleep(SILENCE_MS / 1000)
        end_ms = self.clock.monotonic_ms() + SETTLE_MS
        while self.clock.monotonic_ms() < end_ms and not self._is_settled():  # noqa: ASYNC110
            await asyncio.sleep(1)
        return self._is_settled()

    def findings(self) -> Sequence[str]:
        """Broken promises, see `checks`."""
        history, scenario = self.history, self.scenario
        findings = [*checks.lost(self.unhandled()), *checks.owners(self.owners()), *self.late]
        findings += checks.doubled(history, calm=scenario.calm)
        if scenario.ordered:
            crashes = history.times_of(Fault.CRASH)
            findings += checks.together(history, [(at, at + LOCKS_FORGOTTEN_MS) for at in crashes])
            if not crashes:
                findings += checks.order(history)
        return findings

    # The group.

    @property
    def queues(self) -> set[MessageQueue]:
        """All queues of the topic."""
        brokers = self.cluster.servers.brokers.values()
        names = [broker.config.broker_name for broker in brokers]
        return {MessageQueue(TOPIC, n, q) for n in names for q in range(self.scenario.queues)}

    def owners(self) -> dict[MessageQueue, list[str]]:
        """Each queue, and the hosts of the living consumers that own it now."""
        consumers = self.cluster.consumers.values()
        return {
            queue: [c.host for c in consumers if queue in c.consumer.assignment()]
            for queue in sorted(self.queues)
        }

    @property
    def is_balanced(self) -> bool:
        """Whether each queue has exactly one owner."""
        return not self.cluster.consumers or all(len(who) == 1 for who in self.owners().values())

    def unhandled(self) -> list[str]:
        """Names of acknowledged messages that no consumer has handled with success."""
        handled = self.history.handled(GROUP)
        return [name for name in self.history.acknowledged if name not in handled]

    def _is_settled(self) -> bool:
        return self.is_balanced and not self.unhandled()

    def _new_consumer(self, host: str) -> SimulatedConsumer:
        return balance_consumer(host, self.scenario, self.history, self.clock)

    async def _check_promptness(self, event: FaultEvent) -> None:
        if not self.is_balanced:
            self.late.append(f"{event}: not balanced {PROMPT_MS} ms later: {self.owners()}")

    # Messages.

    async def _produce(self) -> None:
        config = ProducerConfig(
            clock=self.clock,
            rng=Random(f"{self.scenario.seed} producer"),
            client_ip=PRODUCER_HOST,
            instance=PRODUCER_HOST,
        )
        async with Producer(NAMESRV, config=config) as producer:
            count = -(-self.scenario.messages // self.scenario.order_keys)
            keys = range(self.scenario.order_keys)
            await asyncio.gather(*(self._send_key(producer, key, count) for key in keys))

    async def _send_key(self, producer: Producer, key: int, count: int) -> None:
        rng = Random(f"{self.scenario.seed} key {key}")
        pause_ms = ACTION_MS * 0.9 / count
        order_key = f"key{key}"
        for number in range(count):
            await asyncio.sleep(rng.uniform(0.2, 1.8) * pause_ms / 1000)
            name, began_ms = message_name(order_key, number), self.history.now_ms()
            try:
                receipt = await producer.send(Message(TOPIC, name.encode(), order_key=order_key))
            except CallError as error:
                self.history.say(f"not acknowledged {name}: {type(error).__name__}")
            else:
                text = f"{short_name(receipt.queue)} {receipt.queue_offset}"
                self.history.acknowledge(name, began_ms, text)
