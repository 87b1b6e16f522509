"""World of a day: its cluster lives from burst to burst, and quiet time is passed over.

    burst ─ quiet ─ due ─ quiet ─ due ─ due ─ burst ─ …    in quiet time the clock jumps

A jump is what a machine sees that was suspended: everything that was due meanwhile is done at once.
So nothing may be due in one that has to be in time: the ledger knows when something will be.
"""

import asyncio
from collections import deque
from pathlib import Path
from typing import Final

from roquet.model import names
from roquet.model.topic import READ_WRITE
from roquet.store.store import Store
from roquet.testing.clock import this_loop
from roquet.testing.simulation.hosts import Hosts
from roquet.testing.simulation.servers import SimulatedServers
from roquet.testing.simulation.timed.consumer import TOPIC, TimedConsumer, is_audited
from roquet.testing.simulation.timed.history import AUDIT, BILLING, TimedHistory
from roquet.testing.simulation.timed.scenario import (
    HOUR_MS,
    POISON,
    SendOperation,
    TimedFault,
    TimedFaultEvent,
    TimedScenario,
)
from roquet.testing.simulation.timed.transactional_producer import TransactionalProducer
from roquet.wire.calls.admin.topic import CreateTopic

BEAT_S: Final = 0.25
"""How often the world looks whether there is something to do."""

CALM_MS: Final = 1_000
"""After the last line of the ledger before time may be passed over: answers are under way."""

EARLY_MS: Final = 800
LATE_MS: Final = 1_500
"""So long before and behind something that is due no time is passed over."""

FIRST_JUMP_MS: Final = 45_000
JUMP_MS: Final = 90_000
"""Passed over at one time: shorter than any silence that would be noticed. Everybody has spoken
just behind a jump, but half a minute before the first one."""

SETTLE_MS: Final = 8 * HOUR_MS
"""How long after the last errand messages may wait: a poisoned one is tried for five hours."""

AFTERMATH_S: Final = 90
"""How long it is watched once all is settled: what comes twice comes late."""

DATA: Final = Path("/store")


class TimedWorkload:
    """A cluster, a shop, and those who handle its messages."""

    def __init__(self, day: TimedScenario) -> None:
        loop = this_loop()
        self.day = day
        self.clock = loop.clock
        self.network = loop.network
        self.hosts = Hosts(loop)
        self.history = TimedHistory(loop.clock.now_ms)
        self.start_ms = loop.clock.now_ms()
        count = day.queues
        topic = CreateTopic(
            topic=TOPIC, read_queue_nums=count, write_queue_nums=count, perm=READ_WRITE
        )
        self.machines = SimulatedServers(day.seed, day.brokers, loop, self.hosts, (topic,), DATA)
        self.producer = TransactionalProducer(day, self.hosts, self.history, self.clock)
        self.operations = {operation.name: operation for operation in day.operations}
        self._members: dict[str, TimedConsumer] = {}
        self._lives: list[asyncio.Task[None]] = []
        self._came = 0
        self._jumped_ms = 0
        self.is_settled = False

    @property
    def stores(self) -> dict[str, Store]:
        """What the brokers hold now, by host."""
        return {host: server.broker.log.store for host, server in self.machines.brokers.items()}

    async def run(self) -> None:
        """From the first broker to the last line."""
        self.network.delay(*self.day.network_ms)
        await self.machines.start()
        await asyncio.sleep(1)  # until the name server knows the topic's queues on every broker
        await self.producer.open()
        for _ in range(self.day.members):
            self._join()
        self._join(AUDIT)
        agenda: list[SendOperation | TimedFaultEvent] = [*self.day.operations, *self.day.events]
        await self._live(deque(sorted(agenda, key=lambda item: item.at_ms)))
        self.history.say("settled" if self.is_settled else "not settled")
        await asyncio.sleep(AFTERMATH_S)

    async def _live(self, agenda: deque[SendOperation | TimedFaultEvent]) -> None:
        waits = [operation.at_ms + operation.wait_ms for operation in self.day.operations]
        end_ms = max(agenda[-1].at_ms, *waits) + SETTLE_MS
        while self._passed_ms() < end_ms:
            while agenda and agenda[0].at_ms <= self._passed_ms():
                await self._happen(agenda.popleft())
            if self.producer.is_doomed:
                await self._change_shop()
            await asyncio.sleep(BEAT_S)
            if not self._is_calm():
                continue
            if not agenda and self._all_done():
                self.is_settled = True
                return
            self._pass_over(agenda[0].at_ms if agenda else end_ms)

    def _passed_ms(self) -> int:
        return self.clock.now_ms() - self.start_ms

    # Quiet time.

    def _is_calm(self) -> bool:
        """Whether nobody is at work."""
        history, now_ms = self.history, self.clock.now_ms()
        is_quiet = not (self.producer.is_busy or history.at_work)
        return is_quiet and now_ms - history.last_ms > CALM_MS

    def _pass_over(self, next_ms: int) -> None:
        """Let time pass until something is due."""
        history, now_ms = self.history, self.clock.now_ms()
        history.dues = [due for due in history.dues if due > now_ms - LATE_MS]
        until_ms = min([self.start_ms + next_ms, *history.dues]) - EARLY_MS
        if until_ms > now_ms:
            just_jumped = now_ms - self._jumped_ms < 2_000 * BEAT_S
            self.clock.jump(min(until_ms - now_ms, JUMP_MS if just_jumped else FIRST_JUMP_MS))
            self._jumped_ms = self.clock.now_ms()

    # What is still to come.

    def _all_done(self) -> bool:
        """Whether every message is where it belongs."""
        is_read = self.machines.all_up and not self.waiting()
        return is_read and not self.open_halves() and not self._unread()

    def waiting(self) -> list[tuple[str, str]]:
        """Group and name of acknowledged messages that were not handled with success."""
        handled = self.history.handled
        found = []
        for operation in self.day.operations:
            if not self.history.is_to_come(operation):
                continue
            if operation.failures < POISON and operation.name not in handled[BILLING]:
                found.append((BILLING, operation.name))
            if is_audited(self.day, operation) and operation.name not in handled[AUDIT]:
                found.append((AUDIT, operation.name))
        return found

    def open_halves(self) -> list[tuple[str, int]]:
        """Half messages that are neither committed nor rolled back nor given up."""
        found = []
        for host, server in self.machines.brokers.items():
            transactions = server.broker.delivery.transactions
            _, end = transactions.queue.bounds()
            if (first := transactions.halves.next_open(0)) < end:
                found.append((host, first))
        return found

    def _unread(self) -> bool:
        """Whether a poisoned message is still tried."""
        wanted = sum(
            operation.failures == POISON and self.history.is_to_come(operation)
            for operation in self.day.operations
        )
        dead = names.dlq_topic(BILLING)
        return sum(store.bounds(dead, 0)[1] for store in self.stores.values()) < wanted

    # What happens.

    async def _happen(self, item: SendOperation | TimedFaultEvent) -> None:
        if isinstance(item, SendOperation):
            self.producer.do(item)
            return
        mine = sorted(self._members)
        member = mine[item.who % len(mine)]
        match item.fault:
            case TimedFault.CRASH:
                await self._crash(item)
            case TimedFault.CHANGE:
                await self._change_shop()
            case TimedFault.JOIN:
                self._join()
            case _ if len(mine) > 1:  # somebody stays, or nothing would ever be handled
                self._lose(member, item.fault)

    async def _crash(self, event: TimedFaultEvent) -> None:
        hosts = sorted(self.machines.brokers)
        host = hosts[event.who % len(hosts)]
        if await self.machines.crash(host, event.down_ms, self._returned):
            self.history.say(f"** {host} crashes")
            self.history.dues.append(self.clock.now_ms() + event.down_ms)

    def _returned(self, host: str) -> None:
        self.history.say(f"** {host} is back")
        self.history.dues.append(self.clock.now_ms())

    async def _change_shop(self) -> None:
        await self.producer.die()
        await asyncio.sleep(2)
        await self.producer.open()

    def _join(self, group: str = BILLING) -> None:
        self._came += 1
        host = f"10.0.2.{self._came}"
        consumer = TimedConsumer(host, self.day, self.operations, self.history, self.clock, group)
        if group == BILLING:
            self._members[host] = consumer
        self._lives.append(self.hosts.run(host, consumer.live()))

    def _lose(self, host: str, fault: TimedFault) -> None:
        consumer = self._members.pop(host)
        self.history.say(f"** {host}: {fault.value}")
        if fault is TimedFault.LEAVE:
            consumer.consumer.stop()
            return
        self.history.dead(host)
        self.hosts.kill(host, silently=fault is TimedFault.SILENCE)
