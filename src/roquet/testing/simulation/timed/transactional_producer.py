"""Shop: the producer of the day, with a database of its own, and the next one when it dies."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any, Final

from roquet.client.config import ProducerConfig
from roquet.client.transaction import TransactionProducer
from roquet.client.transaction_check import TransactionState
from roquet.model.errors import CallError
from roquet.model.message import Message, StoredMessage
from roquet.testing.clock import VirtualClock
from roquet.testing.simulation.hosts import Hosts
from roquet.testing.simulation.servers import NAMESRV
from roquet.testing.simulation.timed.consumer import TOPIC
from roquet.testing.simulation.timed.history import DatabaseState, TimedHistory
from roquet.testing.simulation.timed.scenario import (
    SendKind,
    SendOperation,
    TimedScenario,
    TransactionCourse,
)

GROUP: Final = "shop"

DOOMED_MS: Final = 60_000
"""Who is to die waits for it so long."""


class TransactionalProducer:
    """Does the day's errands."""

    def __init__(
        self, day: TimedScenario, hosts: Hosts, history: TimedHistory, clock: VirtualClock
    ) -> None:
        self._day = day
        self._hosts = hosts
        self._history = history
        self._clock = clock
        self._operations = {operation.name: operation for operation in day.operations}
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
        self._history.say(f"** {self.host} dies")
        self._hosts.kill(self.host)
        await self._hosts.wait_ended(self.host)

    def do(self, operation: SendOperation) -> None:
        """Begin with an errand."""
        task = self._hosts.run(self.host, self._do(operation))
        self._working[task] = None
        task.add_done_callback(lambda done: self._working.pop(done, None))

    async def _do(self, operation: SendOperation) -> None:
        began_ms = self._history.now_ms()
        try:
            if operation.kind is SendKind.TRANSACTION:
                await self._transact(operation, began_ms)
            else:
                await self._producer.send(self._message(operation, began_ms))
                self._history.acknowledge(operation, began_ms)
        except CallError as error:
            self._history.say(f"no end of {operation.name}: {type(error).__name__}")

    def _message(self, operation: SendOperation, now_ms: int) -> Message:
        wait: dict[str, Any] = {}
        if operation.kind is SendKind.LEVEL:
            wait = {"delay_level": operation.level}
        elif operation.kind is SendKind.TIMER and operation.by_time:
            at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=now_ms + operation.wait_ms)
            wait = {"deliver_at": at}
        elif operation.kind is SendKind.TIMER:
            wait = {"delay": timedelta(milliseconds=operation.wait_ms)}
        properties = {"weight": str(operation.weight)}
        return Message(
            TOPIC, operation.name.encode(), tag=operation.tag, properties=properties, **wait
        )

    async def _transact(self, operation: SendOperation, began_ms: int) -> None:
        history, host = self._history, self.host
        history.decide(operation.name, DatabaseState.OPEN, host)
        try:
            async with self._producer.transaction(self._message(operation, began_ms)) as tx:
                history.acknowledge(operation, began_ms)
                await asyncio.sleep(operation.work_ms / 1000)
                if operation.course is TransactionCourse.DIES_EARLY:
                    await self._doomed()
                rolls_back = operation.course in {
                    TransactionCourse.ROLL_BACK,
                    TransactionCourse.NOT_LATER,
                }
                history.decide(
                    operation.name,
                    DatabaseState.DROPPED if rolls_back else DatabaseState.KEPT,
                    host,
                )
                if operation.course is TransactionCourse.DIES:
                    await self._doomed()
                if operation.course is TransactionCourse.ROLL_BACK:
                    tx.rollback()
                elif operation.course is not TransactionCourse.COMMIT:
                    tx.unknown()
            history.say(f"{operation.name} {operation.course.value}")
        finally:
            if history.fates[operation.name] == (DatabaseState.OPEN, host):
                history.decide(operation.name, DatabaseState.DROPPED, host)

    async def _doomed(self) -> None:
        self.is_doomed = True
        await asyncio.sleep(DOOMED_MS / 1000)

    def _check(self, host: str, message: StoredMessage) -> TransactionState:
        """A broker asks what has become of a transaction."""
        name, history = message.body.decode(), self._history
        operation, times = self._operations[name], history.asked.get(name, 0) + 1
        history.asked[name] = times
        fate = history.fates[name][0]
        state = TransactionState.UNKNOWN
        if (
            fate is not DatabaseState.OPEN
            and operation.course is not TransactionCourse.NEVER
            and times > operation.unsure
        ):
            is_kept = fate is DatabaseState.KEPT
            state = TransactionState.COMMIT if is_kept else TransactionState.ROLLBACK
        history.say(f"{host} is asked of {name}: {state.name}")
        return state


def _asynchronous(
    check: Callable[[StoredMessage], TransactionState],
) -> Callable[[StoredMessage], Coroutine[Any, Any, TransactionState]]:
    async def answer(message: StoredMessage) -> TransactionState:
        return check(message)

    return answer
