"""Clients of a replicated group's deliveries: delay levels, times, transactions and pops.

    DeferringProducer ── level, time, half + end ──▶ master ── once it is time ──▶ `later`
    PopConsumer       ◀── pop ── master ◀── orders; some are never acknowledged, and come again

What a master has promised of these has to be kept by whoever leads once it is due.
"""

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum
from random import Random
from typing import Final

from msgspec.structs import replace

from roquet.model import properties as props
from roquet.model.errors import CallError, CallRefused
from roquet.model.flags import SysFlag
from roquet.rules.delay.delay_levels import DEFAULT_LEVELS
from roquet.rules.transaction import COMMIT, ROLL_BACK
from roquet.testing.clock import VirtualClock
from roquet.wire.calls.pop import Ack, Pop, PopReply
from roquet.wire.calls.send import Send, SendReply
from roquet.wire.calls.transaction import EndTransaction
from roquet.wire.codes import ResponseCode
from roquet.wire.receipt_handle import (
    ReceiptHandle,
    decode_receipt_handle,
    parse_starts,
    retry_kind,
    stored_topic,
)
from roquet.wire.records.message_id import parse_offset_message_id
from roquet.wire.records.property_text import decode_properties, encode_properties
from roquet.wire.records.record import Record, decode_many
from simulation.replicated.clients import (
    QUEUES,
    SEND_MS,
    TOPIC,
    MasterCaller,
    send_on,
)
from simulation.replicated.controllers import GROUP as BROKER_NAME
from simulation.replicated.history import DeferredMessage, ReplicatedHistory

LATER: Final = "later"
"""The topic of deferred messages."""

PRODUCERS: Final = "deferring"
POPPERS: Final = "poppers"
"""Groups of the clients here."""

LEVELS: Final = (1, 1, 1, 2)
"""Delay levels of messages, one of which is drawn: the first is a second, the next five."""

DELAYS_MAX_MS: Final = (400, 1_500, 1_500, 6_000)
"""Longest times until a timed message is due, of which one is drawn for each: many are due while a
master that was parted still has its lease."""

POP_COUNT: Final = 8
POP_MS: Final = 1_500
INVISIBLE_MS: Final = (1_000, 3_000)
"""Invisible times of popped messages, of which one is drawn for each pop."""

ERROR_MAX_MS: Final = 1_000
"""Errors of a broker's clock that a delay bears."""

FORGOTTEN: Final = 0.15
"""Share of popped messages that their consumer never acknowledges."""

IDLE_POP_MS: Final = 400
"""Pause after a pop that found nothing."""


class Course(Enum):
    """The way of a deferred message; the value is its text in lines."""

    LEVEL = "at a delay level"
    DELAY = "after a time"
    TIME = "at a time"
    COMMIT = "once it is committed"
    ROLL_BACK = "never, it is rolled back"


IN_TRANSACTIONS: Final = (Course.COMMIT, Course.COMMIT, Course.ROLL_BACK)


class DeferringProducer:
    """Sends messages that are delivered later, one after the other."""

    def __init__(  # noqa: PLR0913, PLR0917 - all that a producer is told
        self,
        name: str,
        loyal: str | None,
        history: ReplicatedHistory,
        clock: VirtualClock,
        pause_ms: Callable[[], int],
        rng: Random,
        clock_error_ms: Callable[[str], int],
        courses: Sequence[Course] = tuple(Course),
    ) -> None:
        """Make a producer; `loyal` is the broker that it always sends to.

        `clock_error_ms` is how wrong a broker's idea of the time is.
        """
        self._name = name
        self._history = history
        self._clock = clock
        self._pause_ms = pause_ms
        self._rng = rng
        self._clock_error_ms = clock_error_ms
        self._courses = courses
        self._caller = MasterCaller(clock, loyal)
        self._count = 0

    async def live(self) -> None:
        """Send, forever."""
        await send_on(lambda: self.send(self._rng.choice(self._courses)), self._pause_ms)

    async def send(self, course: Course) -> bool:
        """Send one message; True if the broker has promised what becomes of it."""
        self._count += 1
        body, host = f"{self._name}.{self._count}", self._caller.host
        try:
            is_promised = await self._send(body, course)
        except CallError as error:
            self._history.say(f"{body} at {host}, {course.value}: {type(error).__name__}")
            return False
        if not is_promised:
            self._history.say(f"{body} at {host}, {course.value}: not stored everywhere")
        return is_promised

    async def _send(self, body: str, course: Course) -> bool:
        if course in {Course.COMMIT, Course.ROLL_BACK}:
            return await self._send_half(body, course)
        began_ms, host = self._history.now_ms(), self._caller.host
        error_ms = self._clock_error_ms(host)
        properties, wait_ms = self._draw(course)
        reply = await self._call(body, properties)
        if reply.code != ResponseCode.SUCCESS:
            return False
        error_ms = max(error_ms, self._clock_error_ms(host))
        if course is not Course.TIME and error_ms > ERROR_MAX_MS:
            # A delay ends by the clock by which it began, perhaps hours later.
            self._history.say(f"{body} waits by the wrong clock of {host}")
        else:
            self._promised(body, host, began_ms, began_ms + wait_ms)
        return True

    def _draw(self, course: Course) -> tuple[dict[str, str], int]:
        """Properties of a message, and the time until it is due in ms."""
        if course is Course.LEVEL:
            level = self._rng.choice(LEVELS)
            return {props.DELAY: str(level)}, DEFAULT_LEVELS[level - 1]
        wait_ms = self._rng.randrange(1, self._rng.choice(DELAYS_MAX_MS))
        if course is Course.DELAY:
            return {props.TIMER_DELAY_MS: str(wait_ms)}, wait_ms
        return {props.TIMER_DELIVER_MS: str(self._clock.now_ms() + wait_ms)}, wait_ms

    async def _send_half(self, body: str, course: Course) -> bool:
        """Send a half message and end it, perhaps at another master."""
        properties = {props.TRANSACTION_PREPARED: "true", props.PRODUCER_GROUP: PRODUCERS}
        reply = await self._call(body, properties, SysFlag.TRANSACTION_PREPARED)
        if reply.code != ResponseCode.SUCCESS:
            return False
        await asyncio.sleep(self._rng.randrange(self._rng.choice((20, 2_000))) / 1_000)
        began_ms, host = self._history.now_ms(), self._caller.host
        end = EndTransaction(
            topic=LATER,
            producer_group=PRODUCERS,
            half_offset=reply.queue_offset,
            position=parse_offset_message_id(reply.msg_id)[1],
            commit_or_rollback=COMMIT if course is Course.COMMIT else ROLL_BACK,
        )
        await self._caller.call(end, SEND_MS)
        if course is Course.COMMIT:
            self._promised(body, host, began_ms, began_ms)
        else:
            self._history.rolled_back_at(body, host)
        return True

    async def _call(self, body: str, properties: dict[str, str], flag: int = 0) -> SendReply:
        call = Send(
            producer_group=PRODUCERS,
            topic=LATER,
            default_topic_queue_nums=QUEUES,
            queue_id=self._count % QUEUES,
            sys_flag=int(flag),
            born_timestamp=self._clock.now_ms(),
            properties=encode_properties(properties).decode(),
            body=body.encode(),
        )
        return await self._caller.call(call, SEND_MS)

    def _promised(self, body: str, host: str, began_ms: int, due_ms: int) -> None:
        now_ms = self._history.now_ms()
        message = DeferredMessage(body=body, due_ms=due_ms, host=host, at_ms=now_ms)
        self._history.deferred_at(message, began_ms)


class PopConsumer:
    """Pops the orders, and acknowledges most of them."""

    def __init__(self, history: ReplicatedHistory, clock: VirtualClock, rng: Random) -> None:
        self._history = history
        self._clock = clock
        self._rng = rng
        self._caller = MasterCaller(clock)

    async def live(self) -> None:
        """Pop, forever."""
        while True:
            try:
                count = await self._pop()
            except CallError:
                count = 0
            await asyncio.sleep(self._rng.randrange(1, 100 if count else IDLE_POP_MS) / 1_000)

    async def _pop(self) -> int:
        """Pop some messages and settle them; returns how many."""
        call = Pop(
            consumer_group=POPPERS,
            topic=TOPIC,
            queue_id=-1,
            max_msg_nums=POP_COUNT,
            invisible_time=self._rng.choice(INVISIBLE_MS),
            born_time=self._clock.now_ms(),
        )
        reply = await self._caller.call(call, POP_MS)
        if reply.code != ResponseCode.SUCCESS:
            return 0
        records = [*decode_many(reply.body)]
        for record in records:
            if self._rng.random() >= FORGOTTEN:
                await self._settle(record.body.decode(), _handle(reply, record))
        return len(records)

    async def _settle(self, body: str, handle: ReceiptHandle) -> None:
        """Acknowledge a message."""
        host = self._caller.host
        call = Ack(
            consumer_group=POPPERS,
            topic=stored_topic(TOPIC, POPPERS, handle.retry),
            queue_id=handle.queue_id,
            extra_info=handle.text(),
            offset=handle.offset,
        )
        self._history.settled_at(body, host)  # whether or not the answer arrives
        try:
            await self._caller.call(call, POP_MS)
        except CallRefused as error:
            self._history.say(f"{host} does not take {body} as handled: {error.code}")


def _handle(reply: PopReply, record: Record) -> ReceiptHandle:
    """The receipt of a popped message; one that comes again carries its own."""
    if text := decode_properties(record.properties).get(props.POP_CK):
        return replace(decode_receipt_handle(text), offset=record.queue_offset)
    kind = retry_kind(record.topic)
    starts = parse_starts(reply.start_offset_info or "")
    return ReceiptHandle(
        start=starts[f"{kind}@{record.queue_id}"],
        pop_ms=reply.pop_time,
        invisible_ms=reply.invisible_time,
        revive_queue=reply.revive_qid,
        retry=kind,
        broker=BROKER_NAME,
        queue_id=record.queue_id,
        offset=record.queue_offset,
    )
