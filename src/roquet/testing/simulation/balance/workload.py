"""World: a name server, brokers, a producer and members, as a scenario lets them live and die."""

import asyncio
from random import Random
from typing import Final

from roquet.client.config import ProducerConfig
from roquet.client.producer import Producer
from roquet.model.errors import CallError
from roquet.model.message import Message
from roquet.model.queue import MessageQueue
from roquet.model.topic import READ_WRITE
from roquet.testing.clock import this_loop
from roquet.testing.simulation.balance.consumer import TOPIC, BalanceConsumer
from roquet.testing.simulation.balance.history import BalanceHistory
from roquet.testing.simulation.balance.scenario import (
    ACTION_MS,
    BalanceFault,
    BalanceFaultEvent,
    BalanceScenario,
)
from roquet.testing.simulation.hosts import Hosts
from roquet.testing.simulation.servers import NAMESRV, SimulatedServers
from roquet.wire.calls.admin.topic import CreateTopic

PRODUCER_HOST: Final = "10.0.3.1"

PROMPT_MS: Final = 5_000
"""Within this time a calm group is balanced again after somebody came or went."""

SETTLE_MS: Final = 420_000
"""How long the dust may take: silence is noticed after 120 s, retries wait for some tens."""

SILENCE_MS: Final = 140_000
"""After it every broker has noticed who fell silent, or was killed while it could not be told:
until then members that ask different brokers see different groups, as in Java."""

AFTERMATH_MS: Final = 30_000
"""How long it is watched once all is settled: what comes twice comes late."""


class BalanceWorkload:
    """A cluster in virtual time."""

    def __init__(self, scenario: BalanceScenario) -> None:
        loop = this_loop()
        self.scenario = scenario
        self.clock = loop.clock
        self.network = loop.network
        self.hosts = Hosts(loop)
        self.history = BalanceHistory(loop.clock.monotonic_ms)
        self.late: list[str] = []
        """When a calm group was not balanced soon after somebody came or went."""
        self.members: dict[str, BalanceConsumer] = {}
        count = scenario.queues
        topic = CreateTopic(
            topic=TOPIC, read_queue_nums=count, write_queue_nums=count, perm=READ_WRITE
        )
        self._machines = SimulatedServers(
            scenario.seed, scenario.brokers, loop, self.hosts, (topic,)
        )
        self._brokers = self._machines.brokers
        self._lives: list[asyncio.Task[None]] = []
        self._came = 0

    async def run(self) -> None:
        """Everything, from the first broker to the last line."""
        self.network.delay(*self.scenario.network_ms)
        await self._machines.start()
        await asyncio.sleep(1)  # until the name server knows the topic's queues on every broker
        for _ in range(self.scenario.members):
            self._join()
        sending = self.hosts.run(PRODUCER_HOST, self._produce())
        times = [event.at_ms for event in self.scenario.events] + [ACTION_MS]
        for event, quiet_until_ms in zip(self.scenario.events, times[1:], strict=True):
            await self._until(event.at_ms)
            await self._happen(event)
            await self._judge_promptness(event, quiet_until_ms)
        await self._until(ACTION_MS)
        await self._happen(BalanceFaultEvent(ACTION_MS, BalanceFault.HEAL, 0, 0))
        await sending
        await self._settle()
        await asyncio.sleep(AFTERMATH_MS / 1000)

    # Who is there.

    @property
    def queues(self) -> set[MessageQueue]:
        """All queues of the topic."""
        names = [broker.config.broker_name for broker in self._brokers.values()]
        return {MessageQueue(TOPIC, n, q) for n in names for q in range(self.scenario.queues)}

    def owners(self) -> dict[MessageQueue, list[str]]:
        """Who holds each queue now."""
        return {
            queue: [m.host for m in self.members.values() if queue in m.consumer.assignment()]
            for queue in sorted(self.queues)
        }

    @property
    def balanced(self) -> bool:
        """Whether each queue has one owner."""
        return not self.members or all(len(who) == 1 for who in self.owners().values())

    def _join(self) -> None:
        self._came += 1
        host = f"10.0.2.{self._came}"
        member = BalanceConsumer(host, NAMESRV, self.scenario, self.history, self.clock)
        self.members[host] = member
        self._lives.append(self.hosts.run(host, member.live()))

    # What happens.

    async def _until(self, at_ms: int) -> None:
        await asyncio.sleep(max(0, at_ms - self.clock.monotonic_ms()) / 1000)

    async def _happen(self, event: BalanceFaultEvent) -> None:
        member = _one(sorted(self.members), event.who)
        broker = _one(sorted(self._brokers), event.other)
        if event.fault is BalanceFault.HEAL:
            self.network.heal()
        elif event.fault is BalanceFault.JOIN:
            self._join()
        elif event.fault is BalanceFault.SLOW:
            self.network.slow(broker, 100, 2_500)
        elif event.fault is BalanceFault.CRASH:
            await self._machines.crash(broker, event.who * 20, self._returned)
        elif event.fault is BalanceFault.PART:
            self.network.partition(member, broker)
        elif len(self.members) > 1:  # somebody stays, or nothing would ever be handled
            self._lose(member, event.fault)
        self.history.disturb(f"{event.fault.name} {member} {broker}")

    def _lose(self, host: str, fault: BalanceFault) -> None:
        member = self.members.pop(host)
        if fault is BalanceFault.LEAVE:
            member.consumer.stop()
            return
        self.history.let_go(host, None, "killed")
        self.hosts.kill(host, silently=fault is BalanceFault.SILENCE)

    def _returned(self, host: str) -> None:
        self.history.disturb(f"{host} is back")

    async def _judge_promptness(self, event: BalanceFaultEvent, quiet_until_ms: int) -> None:
        """In a calm world all is balanced again within a short time."""
        at_ms = event.at_ms + PROMPT_MS
        if self.scenario.calm and at_ms < quiet_until_ms:
            await self._until(at_ms)
            if not self.balanced:
                self.late.append(f"{event}: not balanced {PROMPT_MS} ms later: {self.owners()}")

    async def _settle(self) -> None:
        if not self.scenario.calm:
            await asyncio.sleep(SILENCE_MS / 1000)
        end_ms = self.clock.monotonic_ms() + SETTLE_MS
        while self.clock.monotonic_ms() < end_ms and not self._is_settled():  # noqa: ASYNC110
            await asyncio.sleep(1)
        self.history.say("settled" if self._is_settled() else "not settled")

    def _is_settled(self) -> bool:
        return self.balanced and not self.waiting()

    def waiting(self) -> list[str]:
        """The acknowledged messages that nobody has handled with success."""
        done = {h.name for h in self.history.handlings if h.ended_ms is not None and not h.failed}
        return [sent.name for sent in self.history.sent if sent.name not in done]

    # What is sent.

    async def _produce(self) -> None:
        config = ProducerConfig(
            clock=self.clock,
            rng=Random(f"{self.scenario.seed} producer"),
            client_ip=PRODUCER_HOST,
            instance=PRODUCER_HOST,
        )
        async with Producer(NAMESRV, config=config) as producer:
            each = -(-self.scenario.messages // self.scenario.order_keys)
            await asyncio.gather(
                *(self._send_key(producer, key, each) for key in range(self.scenario.order_keys))
            )

    async def _send_key(self, producer: Producer, key: int, count: int) -> None:
        rng = Random(f"{self.scenario.seed} key {key}")
        pause_ms = ACTION_MS * 0.9 / count
        for number in range(count):
            await asyncio.sleep(rng.uniform(0.2, 1.8) * pause_ms / 1000)
            name = f"key{key}:{number}"
            try:
                receipt = await producer.send(Message(TOPIC, name.encode(), order_key=f"key{key}"))
            except CallError as error:
                self.history.say(f"not acknowledged {name}: {type(error).__name__}")
            else:
                self.history.acknowledge(name, receipt.queue, receipt.queue_offset)


def _one(hosts: list[str], number: int) -> str:
    return hosts[number % len(hosts)]
