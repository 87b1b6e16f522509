"""TransactionalProducer: sends the operations, with a local database; replaced when it dies."""

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
from simulation.hosts import Hosts
from simulation.servers import NAMESRV
from simulation.timed.consumer import TOPIC
from simulation.timed.history import DatabaseEntry, DatabaseState, TimedHistory
from simulation.timed.scenario import (
    SendKind,
    SendOperation,
    TimedScenario,
    TransactionCourse,
)

GROUP: Final = "shop"

CRASH_WAIT_MS: Final = 60_000
"""How long an operation that wants its process to die waits for that."""

ROLLING_BACK: Final = frozenset(
    {TransactionCourse.ROLL_BACK, TransactionCourse.ROLL_BACK_WHEN_CHECKED}
)


class TransactionalProducer:
    """A transactional producer, one process after the other; their database is the history's."""

    def __init__(
        self, scenario: TimedScenario, hosts: Hosts, history: TimedHistory, clock: VirtualClock
    ) -> None:
        self._scenario = scenario
        self._hosts = hosts
        self._history = history
        self._clock = clock
        self._operations = {operation.name: operation for operation in scenario.operations}
        self._producer: TransactionProducer
        self._starts = 0
        self._sending: dict[asyncio.Task[None], None] = {}
        self.must_crash = False
        """Whether an operation wants the process to die now."""

    @property
    def host(self) -> str:
        """The host of the present process."""
        return f"10.0.4.{self._starts}"

    @property
    def crashes(self) -> int:
        """How many processes have died."""
        return self._starts - 1

    @property
    def is_busy(self) -> bool:
        """Whether an operation is under way."""
        return bool(self._sending)

    async def start(self) -> None:
        """Start a new process on a new host; the database is the same."""
        self._starts += 1
        self.must_crash = False
        config = ProducerConfig(
            clock=self._clock,
            rng=Random(f"{self._scenario.seed} {self.host} producer"),
            client_ip=self.host,
            instance=self.host,
        )
        check = _asynchronous(partial(self.check, self.host))
        self._producer = TransactionProducer(
            NAMESRV, group=GROUP, check=check, topics=(TOPIC,), config=config
        )
        await self._hosts.run(self.host, self._producer.start())

    async def kill(self) -> None:
        """End the process at once."""
        self._history.say(f"** {self.host} dies")
        self._hosts.kill(self.host)
        await self._hosts.wait_ended(self.host)

    def perform(self, operation: SendOperation) -> None:
        """Begin an operation, in a task of the present process."""
        task = self._hosts.run(self.host, self._perform(operation))
        self._sending[task] = None
        task.add_done_callback(lambda done: self._sending.pop(done, None))

    async def _perform(self, operation: SendOperation) -> None:
        began_ms = self._history.now_ms()
        try:
            if operation.kind is SendKind.TRANSACTION:
                await self._run_transaction(operation, began_ms)
            else:
                await self._producer.send(self.message(operation))
                self._history.acknowledge_operation(operation, began_ms)
        except CallError as error:
            self._history.say(f"no end of {operation.name}: {type(error).__name__}")

    def message(self, operation: SendOperation) -> Message:
        """The message of an operation that begins now."""
        wait: dict[str, Any] = {}
        if operation.kind is SendKind.LEVEL:
            wait = {"delay_level": operation.level}
        elif operation.kind is SendKind.TIMER and operation.by_time:
            deliver_ms = self._clock.now_ms() + operation.wait_ms
            wait = {
                "deliver_at": datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=deliver_ms)
            }
        elif operation.kind is SendKind.TIMER:
            wait = {"delay": timedelta(milliseconds=operation.wait_ms)}
        properties = {"weight": str(operation.weight)}
        body = operation.name.encode()
        return Message(TOPIC, body, tag=operation.tag, properties=properties, **wait)

    async def _run_transaction(self, operation: SendOperation, began_ms: int) -> None:
        history, host, name = self._history, self.host, operation.name
        history.write_database(name, DatabaseState.OPEN, host)
        try:
            async with self._producer.transaction(self.message(operation)) as transaction:
                history.acknowledge_operation(operation, began_ms)
                await asyncio.sleep(operation.work_ms / 1000)
                if operation.course is TransactionCourse.CRASH_BEFORE_DONE:
                    await self._wait_for_crash()
                rolls_back = operation.course in ROLLING_BACK
                state = DatabaseState.ROLLED_BACK if rolls_back else DatabaseState.COMMITTED
                history.write_database(name, state, host)
                if operation.course is TransactionCourse.CRASH_BEFORE_COMMIT:
                    await self._wait_for_crash()
                if operation.course is TransactionCourse.ROLL_BACK:
                    transaction.rollback()
                elif operation.course is not TransactionCourse.COMMIT:
                    transaction.unknown()
            history.say(f"{name} {operation.course.value}")
        finally:
            if history.database[name] == DatabaseEntry(DatabaseState.OPEN, host):
                history.write_database(name, DatabaseState.ROLLED_BACK, host)

    async def _wait_for_crash(self) -> None:
        self.must_crash = True
        await asyncio.sleep(CRASH_WAIT_MS / 1000)

    def check(self, host: str, message: StoredMessage) -> TransactionState:
        """Answer a broker that asks for the state of a transaction."""
        name, history = message.body.decode(), self._history
        operation, count = self._operations[name], history.checks.get(name, 0) + 1
        history.checks[name] = count
        answer = TransactionState.UNKNOWN
        is_told = (
            operation.course is not TransactionCourse.NEVER_DECIDE
            and count > operation.undecided_checks
        )
        if is_told and history.database[name].state is DatabaseState.COMMITTED:
            answer = TransactionState.COMMIT
        elif is_told and history.database[name].state is DatabaseState.ROLLED_BACK:
            answer = TransactionState.ROLLBACK
        history.say(f"{host} is asked of {name}: {answer.name}")
        return answer


def _asynchronous(
    check: Callable[[StoredMessage], TransactionState],
) -> Callable[[StoredMessage], Coroutine[Any, Any, TransactionState]]:
    async def answer(message: StoredMessage) -> TransactionState:
        return check(message)

    return answer
