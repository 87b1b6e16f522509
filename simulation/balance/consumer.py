"""Consumers of the balance workload: members of one group, which note the queues they own."""

from collections.abc import Sequence
from random import Random
from typing import Final

from roquet.client.push import PushConsumer
from roquet.model.queue import MessageQueue
from roquet.testing.clock import VirtualClock
from simulation.balance.history import BalanceHistory
from simulation.balance.scenario import BalanceScenario
from simulation.consumer import SimulatedConsumer, consumer_config
from simulation.servers import NAMESRV

TOPIC: Final = "flights"
GROUP: Final = "billing"

FAILING_TRIES: Final = 2
"""First attempts that fail of a message that fails at all."""


def balance_consumer(
    host: str, scenario: BalanceScenario, history: BalanceHistory, clock: VirtualClock
) -> SimulatedConsumer:
    """A member of the group on a host."""
    config = consumer_config(host, scenario, clock, ordered=scenario.ordered)
    consumer = PushConsumer(NAMESRV, group=GROUP, topic=TOPIC, config=config)
    consumer.on_assigned(lambda queues: history.assign(host, _of_topic(queues)))
    consumer.on_revoked(lambda queues: history.release(host, _of_topic(queues), "revoked"))
    fails = FirstTriesFail(scenario.seed, scenario.failing)
    return SimulatedConsumer(host, consumer, history, scenario, fails)


class FirstTriesFail:
    """Fails the first attempts at a share of the messages, chosen by seed and name."""

    def __init__(self, seed: int, share: float) -> None:
        self._seed = seed
        self._share = share
        self._tries: dict[str, int] = {}

    def __call__(self, name: str) -> bool:
        """Whether this attempt fails."""
        if Random(f"{self._seed} {name}").random() >= self._share:
            return False
        self._tries[name] = self._tries.get(name, 0) + 1
        return self._tries[name] <= FAILING_TRIES


def _of_topic(queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """Queues of the topic; those of the retry topic are shared, too, but not checked."""
    return [queue for queue in queues if queue.topic == TOPIC]
