"""Commit or roll back half messages: EndTransaction calls, many at a time.

Ordered messages of one queue are ended one after the other, each after the reply to the one before.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Any, Final

import msgspec

from roquet.client.connection.routes import Routes
from roquet.model import properties as names
from roquet.model.errors import CallError, CallRefused, ConnectFailed, RecordError, RoquetError
from roquet.model.names import CHECK_MAX_TIME_TOPIC
from roquet.net.clock import Clock
from roquet.net.pool import ChannelPool
from roquet.rules.backoff import backoff_ms
from roquet.rules.replication.acknowledgement import NOT_ENOUGH_REMARK
from roquet.rules.send_retry import NOT_DONE, is_transient
from roquet.rules.transaction import COMMIT, ROLL_BACK
from roquet.spark.sink.delivery import ATTEMPT_TIMEOUT_MS, RETRY_PAUSE_MS, RETRY_PAUSE_MS_MAX
from roquet.wire.calls.query import QueryByKey, ViewMessage
from roquet.wire.calls.send import Send
from roquet.wire.calls.transaction import EndTransaction
from roquet.wire.codes import ResponseCode
from roquet.wire.records.property_text import decode_properties, encode_properties
from roquet.wire.records.record import Record, decode_many

IN_FLIGHT: Final = 256
"""Most calls that wait for a reply."""

TOO_LATE: Final = ResponseCode.ILLEGAL_OPERATION
"""The refusal of an end that came after the half message's check time; the broker still accepts it
as the answer to a check."""

END_NOT_DONE: Final = NOT_DONE | {ResponseCode.SLAVE_NOT_AVAILABLE}
"""Refusals of an end that has certainly changed nothing; SLAVE_NOT_AVAILABLE is a replica's."""

HALF_MESSAGE_PROPERTIES: Final = frozenset(
    {
        names.TRANSACTION_PREPARED, names.PRODUCER_GROUP, names.CHECK_IMMUNITY_TIME,
        names.REAL_TOPIC, names.REAL_QUEUE_ID, names.TRANSACTION_ID, names.CLUSTER,
        names.TRANSACTION_CHECK_TIMES, names.TRANSACTION_PREPARED_QUEUE_OFFSET,
    }
)  # fmt: skip
"""Properties of half messages that the committed message does not have."""

TIME_MAX: Final = 2**63 - 1


class CommitOutcome(Enum):
    """The outcome of the commit of one half message."""

    DONE = auto()
    """The message is stored and visible."""
    REFUSED = auto()
    """The broker has no such half message to end, or has ended it and may lose that: both are
    answered SYSTEM_ERROR. What readers see decides."""
    UNKNOWN = auto()
    """No reply: the commit may be done, now or a moment later."""
    NOT_ASKED = auto()
    """Not sent, since an earlier message of the same ordered queue is not done."""


class HalfMessageRef(msgspec.Struct, frozen=True, gc=False):
    """A reference to one half message."""

    number: int
    """Index in the table of the batch's half messages."""
    topic: str
    broker: str
    queue_id: int
    half_offset: int
    position: int
    unique_key: str
    is_ordered: bool
    is_discarded: bool
    """Whether the broker moved it to TRANS_CHECK_MAX_TIME_TOPIC: its message is then sent again."""


class HalfMessageCommitter:
    """Commits or rolls back half messages; runs on one event loop."""

    def __init__(
        self,
        pool: ChannelPool,
        routes: Routes,
        group: str,
        timeout_ms: int,
        clock: Clock,
        check_lock: Callable[[], object] = lambda: None,
    ) -> None:
        """`check_lock` is called before each commit, and raises when it must not be sent."""
        self._pool = pool
        self._routes = routes
        self._group = group
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._check_lock = check_lock

    async def commit(self, halves: Sequence[HalfMessageRef]) -> dict[int, CommitOutcome]:
        """Commit the half messages; the outcome of each by its number."""
        for topic in {half.topic for half in halves}:
            await self._quietly(self._routes.refresh(topic))  # a failure shows in the calls
        outcomes = {half.number: CommitOutcome.NOT_ASKED for half in halves}
        by_queue: dict[tuple[str, str, int], list[HalfMessageRef]] = {}
        unordered: list[HalfMessageRef] = []
        for half in halves:
            if half.is_ordered:
                by_queue.setdefault((half.topic, half.broker, half.queue_id), []).append(half)
            else:
                unordered.append(half)
        rest = iter(unordered)
        workers = [self._commit_each(rest, outcomes) for _ in range(min(IN_FLIGHT, len(unordered)))]
        in_order = [self._commit_in_order(queue, outcomes) for queue in by_queue.values()]
        await _run_all([*workers, *in_order])
        return outcomes

    async def roll_back(self, halves: Sequence[HalfMessageRef]) -> None:
        """Roll back where brokers answer; the others discard half messages after their checks."""
        for topic in {half.topic for half in halves}:
            await self._quietly(self._routes.refresh(topic))
        rest = iter(halves)

        async def work() -> None:
            for half in rest:
                await self._quietly(self._end(half, ROLL_BACK, after_check=False))

        await asyncio.gather(*(work() for _ in range(min(IN_FLIGHT, len(halves)))))

    async def _commit_each(
        self, rest: Iterator[HalfMessageRef], outcomes: dict[int, CommitOutcome]
    ) -> None:
        for half in rest:
            outcomes[half.number] = await self._commit_one(half)

    async def _commit_in_order(
        self, halves: Sequence[HalfMessageRef], outcomes: dict[int, CommitOutcome]
    ) -> None:
        for half in halves:
            outcomes[half.number] = outcome = await self._commit_one(half)
            if outcome is not CommitOutcome.DONE:
                return  # later ones must not overtake it

    async def _commit_one(self, half: HalfMessageRef) -> CommitOutcome:
        """Commit one half message; retried after failures that certainly changed nothing."""
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        pauses_ms = backoff_ms(RETRY_PAUSE_MS, RETRY_PAUSE_MS_MAX)
        while True:
            self._check_lock()
            try:
                await self._end_or_resend(half)
            except (CallRefused, ConnectFailed) as error:
                if not _is_not_done(error):
                    if half.is_discarded:  # its message was sent plainly: no other way is left
                        raise
                    return CommitOutcome.REFUSED
                if self._clock.monotonic_ms() >= deadline_ms:
                    raise
            except CallError:
                return CommitOutcome.UNKNOWN
            else:
                return CommitOutcome.DONE
            await self._quietly(self._routes.refresh(half.topic))
            await self._clock.sleep(next(pauses_ms))

    async def _end_or_resend(self, half: HalfMessageRef) -> None:
        if half.is_discarded:
            await self._resend(half)
            return
        try:
            await self._end(half, COMMIT, after_check=False)
        except CallRefused as error:
            if error.code != TOO_LATE:
                raise
            self._check_lock()
            await self._end(half, COMMIT, after_check=True)

    async def _end(self, half: HalfMessageRef, what: int, *, after_check: bool) -> None:
        call = EndTransaction(
            topic=half.topic,
            producer_group=self._group,
            half_offset=half.half_offset,
            position=half.position,
            commit_or_rollback=what,
            from_transaction_check=after_check,
            msg_id=half.unique_key,
            transaction_id=half.unique_key,
            broker_name=half.broker,
        )
        await self._pool.call(self._routes.leader(half.broker), call, ATTEMPT_TIMEOUT_MS)

    # -- discarded ---------------------------------------------------------------------------

    async def _resend(self, half: HalfMessageRef) -> None:
        """Send the message itself to the queue that the half message was for."""
        record = await self._read_record(half)
        await self._quietly(self._end(half, ROLL_BACK, after_check=True))
        properties = decode_properties(record.properties)
        kept = {
            name: value for name, value in properties.items() if name not in HALF_MESSAGE_PROPERTIES
        }
        call = Send(
            body=record.body,
            producer_group=self._group,
            topic=half.topic,
            queue_id=half.queue_id,
            sys_flag=0,
            born_timestamp=record.born_ms,
            flag=record.flag,
            properties=encode_properties(kept).decode("utf-8", "surrogatepass"),
        )
        self._check_lock()  # the calls before may have taken longer than the lease
        reply = await self._pool.call(self._routes.leader(half.broker), call, ATTEMPT_TIMEOUT_MS)
        if reply.code != ResponseCode.SUCCESS:  # it may be lost: readers tell whether it is there
            raise CallError(
                f"{half.topic}: a row is stored less durably than its broker promises (code "
                f"{reply.code})",
                definite=False,
            )

    async def _read_record(self, half: HalfMessageRef) -> Record:
        """The record of a half message, from its position or from TRANS_CHECK_MAX_TIME_TOPIC."""
        address = self._routes.leader(half.broker)
        view = ViewMessage(topic=half.topic, offset=half.position)
        query = QueryByKey(
            topic=CHECK_MAX_TIME_TOPIC, key=half.unique_key, max_num=32, begin_timestamp=0,
            end_timestamp=TIME_MAX, unique_key=True,
        )  # fmt: skip
        for call in (view, query):
            body = await self._body(address, call)
            with suppress(RecordError):  # no message begins there
                for record in decode_many(body):
                    properties = decode_properties(record.properties)
                    if properties.get(names.UNIQUE_KEY) == half.unique_key:
                        return record
        if self._may_have_stand_in(half):
            raise ConnectFailed(
                f"the master of {half.broker!r} is away, and the replica that stands in for it has "
                f"no half message at {half.position}: the master may have it"
            )
        raise RecordError(
            f"broker {half.broker!r} no longer has the half message at {half.position}, neither in "
            f"{CHECK_MAX_TIME_TOPIC}: the message {half.unique_key} for {half.topic} is lost"
        )

    def _may_have_stand_in(self, half: HalfMessageRef) -> bool:
        """Whether a replica, which may lack messages, may stand in for a half message's broker.

        Name servers take the permission to write from the route then.
        """
        brokers = self._routes.brokers_of(half.topic)
        writable = {queue.broker_name for queue in self._routes.writable(half.topic) or ()}
        return half.broker not in writable and any(
            data.broker_name == half.broker and data.enable_acting_master for data in brokers
        )

    async def _body(self, address: str, call: ViewMessage | QueryByKey) -> bytes:
        """The body of a broker's reply; empty when it has no such message."""
        try:
            return bytes((await self._pool.call(address, call, ATTEMPT_TIMEOUT_MS)).body)
        except CallRefused as error:
            if is_transient(error, NOT_DONE):
                raise
            return b""

    async def _quietly(self, work: Awaitable[object]) -> None:
        with suppress(RoquetError):
            await work


async def _run_all(coroutines: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all concurrently; the first failure cancels the others."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _is_not_done(error: CallError) -> bool:
    """Whether a call has certainly changed nothing, and may succeed after a pause.

    Of refusals by SYSTEM_ERROR only that of a broker with too few logs in sync: all others leave it
    open, since the half message may have ended before.
    """
    if isinstance(error, CallRefused) and error.remark == NOT_ENOUGH_REMARK:
        return True
    return is_transient(error, END_NOT_DONE)
