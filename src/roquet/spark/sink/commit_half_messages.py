"""Ending: the ends of half messages told to their brokers, many at a time.

Of what is ordered, one of a queue at a time: the next one once the broker has answered.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Iterator, Sequence
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
from roquet.rules.transaction import COMMIT, ROLL_BACK
from roquet.spark.sink.delivery import ATTEMPT_TIMEOUT_MS, retry_pauses
from roquet.wire.calls.query import QueryByKey, ViewMessage
from roquet.wire.calls.send import Send
from roquet.wire.calls.transaction import EndTransaction
from roquet.wire.codes import ResponseCode
from roquet.wire.records.property_text import decode_properties, encode_properties
from roquet.wire.records.record import Record, decode_many

IN_FLIGHT: Final = 256
"""Ends that wait for an answer."""

TOO_LATE: Final = ResponseCode.ILLEGAL_OPERATION
"""The half message's own time is over; as an answer to a check an end is taken all the same."""

BUSY_CODES: Final = frozenset(
    {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.GO_AWAY}
)
"""Refusals that pass, and of which nothing was done."""

HALF_MESSAGE_PROPERTIES: Final = frozenset(
    {
        names.TRANSACTION_PREPARED, names.PRODUCER_GROUP, names.CHECK_IMMUNITY_TIME,
        names.REAL_TOPIC, names.REAL_QUEUE_ID, names.TRANSACTION_ID, names.CLUSTER,
        names.TRANSACTION_CHECK_TIMES, names.TRANSACTION_PREPARED_QUEUE_OFFSET,
    }
)  # fmt: skip
"""Properties that a message loses when it is no half one any more."""

TIME_MAX: Final = 2**63 - 1


class CommitOutcome(Enum):
    """What is known of a half message after its end was told."""

    DONE = auto()
    """Its message is stored where all can see it."""
    REFUSED = auto()
    """The broker knows no half message that could be ended there."""
    UNKNOWN = auto()
    """No answer came: it may be done, or be done in a moment."""
    NOT_ASKED = auto()


class HalfMessageRef(msgspec.Struct, frozen=True, gc=False):
    """One half message."""

    number: int
    """Its place among those of the batch."""
    topic: str
    broker: str
    queue_id: int
    half_offset: int
    position: int
    unique_key: str
    ordered: bool
    given_up: bool
    """Whether the broker has laid it where operators find it: its message is sent anew."""


class HalfMessageCommitter:
    """Ends half messages, on one event loop."""

    def __init__(
        self, pool: ChannelPool, routes: Routes, group: str, timeout_ms: int, clock: Clock
    ) -> None:
        self._pool = pool
        self._routes = routes
        self._group = group
        self._timeout_ms = timeout_ms
        self._clock = clock

    async def all(self, halves: Sequence[HalfMessageRef]) -> dict[int, CommitOutcome]:
        """Commit them; what became of each, by its number."""
        for topic in {half.topic for half in halves}:
            await self._quietly(self._routes.refresh(topic))  # each asks again, if it has to
        found = {half.number: CommitOutcome.NOT_ASKED for half in halves}
        lanes: dict[tuple[str, str, int], list[HalfMessageRef]] = {}
        free: list[HalfMessageRef] = []
        for half in halves:
            if half.ordered:
                lanes.setdefault((half.topic, half.broker, half.queue_id), []).append(half)
            else:
                free.append(half)
        rest = iter(free)
        workers = [self._work(rest, found) for _ in range(min(IN_FLIGHT, len(free)))]
        await _run_all([*workers, *(self._lane(lane, found) for lane in lanes.values())])
        return found

    async def abandon(self, halves: Sequence[HalfMessageRef]) -> None:
        """Roll them back, as far as brokers listen: who does not hear it gives them up later."""
        for topic in {half.topic for half in halves}:
            await self._quietly(self._routes.refresh(topic))
        rest = iter(halves)

        async def work() -> None:
            for half in rest:
                await self._quietly(self._tell(half, ROLL_BACK, asked=False))

        await asyncio.gather(*(work() for _ in range(min(IN_FLIGHT, len(halves)))))

    async def _work(self, rest: Iterator[HalfMessageRef], found: dict[int, CommitOutcome]) -> None:
        for half in rest:
            found[half.number] = await self._one(half)

    async def _lane(self, lane: Sequence[HalfMessageRef], found: dict[int, CommitOutcome]) -> None:
        for half in lane:
            found[half.number] = outcome = await self._one(half)
            if outcome is not CommitOutcome.DONE:
                return  # what comes behind it must not overtake it

    async def _one(self, half: HalfMessageRef) -> CommitOutcome:
        """Commit one, with patience for refusals of which it is certain that nothing was done."""
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        waits = retry_pauses()
        while True:
            try:
                await self._commit(half)
            except (CallRefused, ConnectFailed) as error:
                if isinstance(error, CallRefused) and error.code not in BUSY_CODES:
                    if half.given_up:  # a plain message, then: nothing is left to try
                        raise
                    return CommitOutcome.REFUSED
                if self._clock.monotonic_ms() >= deadline_ms:
                    raise
            except CallError:
                return CommitOutcome.UNKNOWN
            else:
                return CommitOutcome.DONE
            await self._quietly(self._routes.refresh(half.topic))
            await asyncio.sleep(next(waits) / 1_000)

    async def _commit(self, half: HalfMessageRef) -> None:
        if half.given_up:
            await self._send_anew(half)
            return
        try:
            await self._tell(half, COMMIT, asked=False)
        except CallRefused as error:
            if error.code != TOO_LATE:
                raise
            await self._tell(half, COMMIT, asked=True)

    async def _tell(self, half: HalfMessageRef, what: int, *, asked: bool) -> None:
        call = EndTransaction(
            topic=half.topic,
            producer_group=self._group,
            half_offset=half.half_offset,
            position=half.position,
            commit_or_rollback=what,
            from_transaction_check=asked,
            msg_id=half.unique_key,
            transaction_id=half.unique_key,
            broker_name=half.broker,
        )
        await self._pool.call(self._routes.leader(half.broker), call, ATTEMPT_TIMEOUT_MS)

    # -- given up ----------------------------------------------------------------------------

    async def _send_anew(self, half: HalfMessageRef) -> None:
        """Store the message itself where the half message was meant to be."""
        record = await self._found(half)
        await self._quietly(self._tell(half, ROLL_BACK, asked=True))
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
        await self._pool.call(self._routes.leader(half.broker), call, ATTEMPT_TIMEOUT_MS)

    async def _found(self, half: HalfMessageRef) -> Record:
        """The record of a half message: where it was stored, or where it was laid."""
        address = self._routes.leader(half.broker)
        view = ViewMessage(topic=half.topic, offset=half.position)
        query = QueryByKey(
            topic=CHECK_MAX_TIME_TOPIC, key=half.unique_key, max_num=32, begin_timestamp=0,
            end_timestamp=TIME_MAX, unique_key=True,
        )  # fmt: skip
        for call in (view, query):
            for record in _records(await self._body(address, call)):
                if _is_of(record, half):
                    return record
        raise RecordError(
            f"broker {half.broker!r} has no half message at {half.position} any more, and none in "
            f"{CHECK_MAX_TIME_TOPIC}: the message {half.unique_key} for {half.topic} is lost"
        )

    async def _body(self, address: str, call: ViewMessage | QueryByKey) -> bytes:
        """What a broker has; nothing when it says that there is nothing."""
        try:
            return bytes((await self._pool.call(address, call, ATTEMPT_TIMEOUT_MS)).body)
        except CallRefused as error:
            if error.code in BUSY_CODES:
                raise
            return b""

    async def _quietly(self, work: Awaitable[object]) -> None:
        with suppress(RoquetError):
            await work


async def _run_all(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Do all at one time; the first that fails ends the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _records(body: bytes) -> Iterator[Record]:
    with suppress(RecordError):  # no message begins there
        yield from decode_many(body)


def _is_of(record: Record, half: HalfMessageRef) -> bool:
    return decode_properties(record.properties).get(names.UNIQUE_KEY) == half.unique_key
