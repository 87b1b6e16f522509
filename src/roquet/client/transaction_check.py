"""Transaction checks: a broker asks about a half message, and the user's function answers."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

from roquet.client.arguments import check_function, is_coroutine_function
from roquet.client.connection.background import ErrorLogThrottle
from roquet.client.connection.threads import run_in_thread
from roquet.log_records import logger
from roquet.model import properties as names
from roquet.model.message import StoredMessage
from roquet.net.router import Peer
from roquet.rules.transaction import COMMIT, ROLL_BACK, UNKNOWN
from roquet.wire.calls.transaction import CheckTransactionState, EndTransaction
from roquet.wire.records.record import decode, to_message

if TYPE_CHECKING:
    from roquet.client.spans.client_spans import ClientSpans
    from roquet.client.tracing.tracer import Tracer

log = logger(__name__)

CONCURRENT_CHECKS_MAX: Final = 20
"""Checks that run at the same time."""

CHECKS_MAX: Final = 2_000
"""Checks that may wait, as in Java. Further ones are dropped; the broker repeats its question."""

CHECK_LIMIT_MS: Final = 60_000
"""Time limit of one check, after which the broker repeats its question."""

THREADS_MAX: Final = CONCURRENT_CHECKS_MAX + 64
"""Limit of threads that run checks. Most of so many hang; each costs memory, and the next would
hang as well."""

T = TypeVar("T")


class TransactionState(Enum):
    """Final state of a transaction."""

    COMMIT = COMMIT
    ROLLBACK = ROLL_BACK
    UNKNOWN = UNKNOWN
    """Not known yet: the broker asks again."""


TransactionCheck: TypeAlias = Callable[
    [StoredMessage], Awaitable[TransactionState] | TransactionState
]
"""Returns the state of a message's transaction. A plain `def` is called in a thread."""


class TransactionChecker:
    """Runs one producer's checks and answers the brokers."""

    def __init__(self, check: TransactionCheck, group: str) -> None:
        self._check = check_function(check, "a check", "the message")
        self._function = check if is_coroutine_function(check) else self._call_counted
        self._group = group
        self.tracer: Tracer | None = None
        self.spans: ClientSpans | None = None
        self._slots = asyncio.Semaphore(CONCURRENT_CHECKS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_threads: set[object] = set()
        """One object for each thread with a running check, including abandoned ones."""
        self._overload = ErrorLogThrottle("transaction checks are dropped")

    async def answer(self, call: CheckTransactionState, peer: Peer) -> None:
        """Handle a broker's question about a half message."""
        at_work = len(self._in_threads)
        if len(self._tasks) >= CHECKS_MAX or at_work >= THREADS_MAX:
            self._overload.report(f"{len(self._tasks)} wait, {at_work} threads are at work")
            return
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        self._tasks.add(task)
        try:
            async with self._slots:
                await self._answer_one(call, peer)
        finally:
            self._tasks.discard(task)
            if not self._tasks:
                self._overload.clear()

    def close(self) -> None:
        """Cancel all checks: resources that they use may be closed next."""
        for task in self._tasks:
            task.cancel()

    async def _answer_one(self, call: CheckTransactionState, peer: Peer) -> None:
        message = to_message(decode(call.body), broker=call.broker_name or "")
        if message.properties.get(names.PRODUCER_GROUP, self._group) != self._group:
            log.warning("a broker asks for another group about message %s", message.message_id)
            return
        state = await self._check_result(message)
        end = EndTransaction(
            topic=message.topic,
            producer_group=self._group,
            half_offset=call.half_offset,
            position=call.position,
            commit_or_rollback=state.value,
            from_transaction_check=True,
            msg_id=message.message_id,
            transaction_id=call.transaction_id,
            broker_name=call.broker_name,
        )
        peer.oneway(end)
        if self.tracer is not None:
            self.tracer.transaction_ended(end, message.properties)

    def _call_counted(self, message: StoredMessage) -> object:
        """Run a plain check in its thread, and count the thread."""
        mark = object()
        self._in_threads.add(mark)
        try:
            return self._check(message)
        finally:
            self._in_threads.discard(mark)

    async def _check_result(self, message: StoredMessage) -> TransactionState:
        """The check's result; UNKNOWN when it raises, takes too long or returns anything else."""
        limit = asyncio.timeout(CHECK_LIMIT_MS / 1000)
        span = nullcontext() if self.spans is None else self.spans.check(message)
        try:
            with span:
                async with limit:
                    result = await call_user_function(self._function, message)
        except Exception:
            why = f"took more than {CHECK_LIMIT_MS} ms" if limit.expired() else "raised"
            log.exception("the check of message %s %s: asked again later", message.message_id, why)
            return TransactionState.UNKNOWN
        return to_transaction_state(result, message.message_id)


def to_transaction_state(result: object, message_id: str) -> TransactionState:
    """Convert the user's return value; anything but a TransactionState is UNKNOWN."""
    if isinstance(result, TransactionState):
        return result
    if result is not None:
        log.error(
            "%r is no TransactionState, message %s is asked about again later", result, message_id
        )
    return TransactionState.UNKNOWN


async def call_user_function(function: Callable[[T], object], argument: T) -> object:
    """Call a user's function, a plain `def` in a thread so that it may block; return its result."""
    if is_coroutine_function(function):
        return await cast("Awaitable[object]", function(argument))
    result = await run_in_thread(partial(function, argument), "roquet-check")
    return await result if inspect.isawaitable(result) else result
