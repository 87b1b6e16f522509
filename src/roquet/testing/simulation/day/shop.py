"""Shop: the producer of the day, with a database of its own, and the next one when it dies."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any, Final

from roquet.client.checking import TransactionState
from roquet.client.config import ProducerConfig
from roquet.client.transaction import TransactionProducer
from roquet.model.errors import CallError
from roquet.model.message import Message, StoredMessage
from roquet.testing.clock import VirtualClock
from roquet.testing.simulation.day.clerk import TOPIC
from roquet.testing.simulation.day.ledger import Fate, Ledger
from roquet.testing.simulation.day.plan import Course, Day, Errand, Kind
from roquet.testing.simulation.hosts import Hosts
from roquet.testing.simulation.machines import NAMESRV

GROUP: Final = "shop"

DOOMED_MS: Final = 60_000
"""Who is to die waits for it so long."""


class Shop:
    """Does the day's errands."""

    def __init__(self, day: Day, hosts: Hosts, ledger: Ledger, clock: VirtualClock) -> None:
        self._day = day
        self._hosts = hosts
        self._ledger = ledger
        self._clock = clock
        self._errands = {errand.name: errand for errand in day.errands}
        self._producer: TransactionProducer
        self._opened = 0
        self._working: dict[asyncio.Task[None], None] = {}
        self.is_doomed = False
        """Whether its process is to die now: an errand says so."""

    @property
    def host(self) -> str:
        """Where it works now."""
        return f"10.0.4.{self._opened}"

    @property
    def changes(self) -> int:
        """How often its process died."""
        return self._opened - 1

    @property
    def is_busy(self) -> bool:
        """Whether an errand is under way."""
        return bool(self._working)

    async def open(self) -> None:
        """A new process on another machine; the database is the same."""
        self._opened += 1
        self.is_doomed = False
        config = ProducerConfig(
            clock=self._clock,
            rng=Random(f"{self._day.seed} {self.host} producer"),
            client_ip=self.host,
            instance=self.host,
        )
        check = partial(self._check, self.host)
        self._producer = TransactionProducer(
            NAMESRV, group=GROUP, check=_asynchronous(check), topics=(TOPIC,), config=config
        )
        await self._hosts.run(self.host, self._producer.start())

    async def die(self) -> None:
        """Its process ends at once."""
        self._ledger.say(f"** {self.host} dies")
        self._hosts.kill(self.host)
        await self._hosts.bury(self.host)

    def do(self, errand: Errand) -> None:
        """Begin with an errand."""
        task = self._hosts.run(self.host, self._do(errand))
        self._working[task] = None
        task.add_done_callback(lambda done: self._working.pop(done, None))

    async def _do(self, errand: Errand) -> None:
        began_ms = self._ledger.now_ms()
        try:
            if errand.kind is Kind.TRANSACTION:
                await self._transact(errand, began_ms)
            else:
                await self._producer.send(self._message(errand, began_ms))
                self._ledger.acknowledge(errand, began_ms)
        except CallError as error:
            self._ledger.say(f"no end of {errand.name}: {type(error).__name__}")

    def _message(self, errand: Errand, now_ms: int) -> Message:
        wait: dict[str, Any] = {}
        if errand.kind is Kind.LEVEL:
            wait = {"delay_level": errand.level}
        elif errand.kind is Kind.TIMER and errand.by_time:
            at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=now_ms + errand.wait_ms)
            wait = {"deliver_at": at}
        elif errand.kind is Kind.TIMER:
            wait = {"delay": timedelta(milliseconds=errand.wait_ms)}
        properties = {"weight": str(errand.weight)}
        return Message(TOPIC, errand.name.encode(), tag=errand.tag, properties=properties, **wait)

    async def _transact(self, errand: Errand, began_ms: int) -> None:
        ledger, host = self._ledger, self.host
        ledger.decide(errand.name, Fate.OPEN, host)
        try:
            async with self._producer.transaction(self._message(errand, began_ms)) as tx:
                ledger.acknowledge(errand, began_ms)
                await asyncio.sleep(errand.work_ms / 1000)
                if errand.course is Course.DIES_EARLY:
                    await self._doomed()
                rolls_back = errand.course in {Course.ROLL_BACK, Course.NOT_LATER}
                ledger.decide(errand.name, Fate.DROPPED if rolls_back else Fate.KEPT, host)
                if errand.course is Course.DIES:
                    await self._doomed()
                if errand.course is Course.ROLL_BACK:
                    tx.rollback()
                elif errand.course is not Course.COMMIT:
                    tx.unknown()
            ledger.say(f"{errand.name} {errand.course.value}")
        finally:
            if ledger.fates[errand.name] == (Fate.OPEN, host):
                ledger.decide(errand.name, Fate.DROPPED, host)

    async def _doomed(self) -> None:
        self.is_doomed = True
        await asyncio.sleep(DOOMED_MS / 1000)

    def _check(self, host: str, message: StoredMessage) -> TransactionState:
        """A broker asks what has become of a transaction."""
        name, ledger = message.body.decode(), self._ledger
        errand, times = self._errands[name], ledger.asked.get(name, 0) + 1
        ledger.asked[name] = times
        fate = ledger.fates[name][0]
        state = TransactionState.UNKNOWN
        if fate is not Fate.OPEN and errand.course is not Course.NEVER and times > errand.unsure:
            is_kept = fate is Fate.KEPT
            state = TransactionState.COMMIT if is_kept else TransactionState.ROLLBACK
        ledger.say(f"{host} is asked of {name}: {state.name}")
        return state


def _asynchronous(
    check: Callable[[StoredMessage], TransactionState],
) -> Callable[[StoredMessage], Coroutine[Any, Any, TransactionState]]:
    async def answer(message: StoredMessage) -> TransactionState:
        return check(message)

    return answer
