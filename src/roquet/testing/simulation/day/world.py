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
from roquet.testing.simulation.day.clerk import TOPIC, Clerk, is_audited
from roquet.testing.simulation.day.ledger import AUDIT, BILLING, Ledger
from roquet.testing.simulation.day.plan import HOUR_MS, POISON, Day, Errand, Event, Mishap
from roquet.testing.simulation.day.shop import Shop
from roquet.testing.simulation.hosts import Hosts
from roquet.testing.simulation.machines import Machines
from roquet.wire.calls.topic import CreateTopic

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


class DayWorld:
    """A cluster, a shop, and those who handle its messages."""

    def __init__(self, day: Day) -> None:
        loop = this_loop()
        self.day = day
        self.clock = loop.clock
        self.network = loop.network
        self.hosts = Hosts(loop)
        self.ledger = Ledger(loop.clock.now_ms)
        self.start_ms = loop.clock.now_ms()
        count = day.queues
        topic = CreateTopic(
            topic=TOPIC, read_queue_nums=count, write_queue_nums=count, perm=READ_WRITE
        )
        self.machines = Machines(day.seed, day.brokers, loop, self.hosts, (topic,), DATA)
        self.shop = Shop(day, self.hosts, self.ledger, self.clock)
        self.errands = {errand.name: errand for errand in day.errands}
        self._members: dict[str, Clerk] = {}
        self._lives: list[asyncio.Task[None]] = []
        self._came = 0
        self._jumped_ms = 0
        self.is_settled = False

    @property
    def stores(self) -> dict[str, Store]:
        """What the brokers hold now, by host."""
        return {host: server.broker.store for host, server in self.machines.brokers.items()}

    async def run(self) -> None:
        """From the first broker to the last line."""
        self.network.delay(*self.day.network_ms)
        await self.machines.start()
        await asyncio.sleep(1)  # until the name server knows the topic's queues on every broker
        await self.shop.open()
        for _ in range(self.day.members):
            self._join()
        self._join(AUDIT)
        agenda: list[Errand | Event] = [*self.day.errands, *self.day.events]
        await self._live(deque(sorted(agenda, key=lambda item: item.at_ms)))
        self.ledger.say("settled" if self.is_settled else "not settled")
        await asyncio.sleep(AFTERMATH_S)

    async def _live(self, agenda: deque[Errand | Event]) -> None:
        waits = [errand.at_ms + errand.wait_ms for errand in self.day.errands]
        end_ms = max(agenda[-1].at_ms, *waits) + SETTLE_MS
        while self._passed_ms() < end_ms:
            while agenda and agenda[0].at_ms <= self._passed_ms():
                await self._happen(agenda.popleft())
            if self.shop.is_doomed:
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
        ledger, now_ms = self.ledger, self.clock.now_ms()
        is_quiet = not (self.shop.is_busy or ledger.at_work)
        return is_quiet and now_ms - ledger.last_ms > CALM_MS

    def _pass_over(self, next_ms: int) -> None:
        """Let time pass until something is due."""
        ledger, now_ms = self.ledger, self.clock.now_ms()
        ledger.dues = [due for due in ledger.dues if due > now_ms - LATE_MS]
        until_ms = min([self.start_ms + next_ms, *ledger.dues]) - EARLY_MS
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
        handled = self.ledger.handled
        found = []
        for errand in self.day.errands:
            if not self.ledger.is_to_come(errand):
                continue
            if errand.failures < POISON and errand.name not in handled[BILLING]:
                found.append((BILLING, errand.name))
            if is_audited(self.day, errand) and errand.name not in handled[AUDIT]:
                found.append((AUDIT, errand.name))
        return found

    def open_halves(self) -> list[tuple[str, int]]:
        """Half messages that are neither committed nor rolled back nor given up."""
        found = []
        for host, server in self.machines.brokers.items():
            transactions = server.broker.transactions
            _, end = transactions.queue.bounds()
            if (first := transactions.halves.next_open(0)) < end:
                found.append((host, first))
        return found

    def _unread(self) -> bool:
        """Whether a poisoned message is still tried."""
        wanted = sum(
            errand.failures == POISON and self.ledger.is_to_come(errand)
            for errand in self.day.errands
        )
        dead = names.dlq_topic(BILLING)
        return sum(store.bounds(dead, 0)[1] for store in self.stores.values()) < wanted

    # What happens.

    async def _happen(self, item: Errand | Event) -> None:
        if isinstance(item, Errand):
            self.shop.do(item)
            return
        mine = sorted(self._members)
        member = mine[item.who % len(mine)]
        match item.mishap:
            case Mishap.CRASH:
                await self._crash(item)
            case Mishap.CHANGE:
                await self._change_shop()
            case Mishap.JOIN:
                self._join()
            case _ if len(mine) > 1:  # somebody stays, or nothing would ever be handled
                self._lose(member, item.mishap)

    async def _crash(self, event: Event) -> None:
        hosts = sorted(self.machines.brokers)
        host = hosts[event.who % len(hosts)]
        if await self.machines.crash(host, event.down_ms, self._returned):
            self.ledger.say(f"** {host} crashes")
            self.ledger.dues.append(self.clock.now_ms() + event.down_ms)

    def _returned(self, host: str) -> None:
        self.ledger.say(f"** {host} is back")
        self.ledger.dues.append(self.clock.now_ms())

    async def _change_shop(self) -> None:
        await self.shop.die()
        await asyncio.sleep(2)
        await self.shop.open()

    def _join(self, group: str = BILLING) -> None:
        self._came += 1
        host = f"10.0.2.{self._came}"
        clerk = Clerk(host, self.day, self.errands, self.ledger, self.clock, group)
        if group == BILLING:
            self._members[host] = clerk
        self._lives.append(self.hosts.run(host, clerk.live()))

    def _lose(self, host: str, mishap: Mishap) -> None:
        clerk = self._members.pop(host)
        self.ledger.say(f"** {host}: {mishap.value}")
        if mishap is Mishap.LEAVE:
            clerk.consumer.stop()
            return
        self.ledger.dead(host)
        self.hosts.kill(host, silently=mishap is Mishap.SILENCE)
