"""Tracer: writes records of what became of each message into the trace topic.

It never fails or delays a user's message: records are collected, sent in batches, and lost when no
broker takes them or when too many wait.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Final

from roquet.client.config import ClientConfig, ProducerConfig
from roquet.client.connection.background import ErrorLogThrottle, Wakeup
from roquet.client.connection.session import Session
from roquet.client.reading.message import ReceivedMessage
from roquet.client.sending.delivery import MessageDelivery
from roquet.client.sending.outgoing import OutgoingBatch
from roquet.client.sending.prepare import MessagePreparer
from roquet.client.tracing.trace_messages import (
    BATCH_MAX,
    SentMessages,
    TracedItem,
    split_batches,
    to_trace_records,
    trace_keys,
)
from roquet.log_records import logger
from roquet.model import properties as names
from roquet.model.message import Message
from roquet.model.results import SendReceipt
from roquet.rules.transaction import COMMIT, ROLL_BACK, UNKNOWN
from roquet.wire.calls.transaction import EndTransaction
from roquet.wire.trace_text import (
    ConsumeEndTrace,
    ConsumeReturnType,
    ConsumeStartTrace,
    RecallTrace,
    Trace,
    TransactionTrace,
    encode,
)

log = logger(__name__)

WAITING_MAX: Final = 8_192
"""Limit of waiting records: some megabytes at most."""

LINGER_MS: Final = 500
"""Time that records are collected: traces are looked up later than that."""

CLOSE_MS: Final = 3_000
"""Time that a close waits for the last records."""

GROUP_PREFIX: Final = "_INNER_TRACE_PRODUCER-"

_STATES: Final = {COMMIT: "COMMIT_MESSAGE", ROLL_BACK: "ROLLBACK_MESSAGE", UNKNOWN: "UNKNOW"}
"""Java's names of the ends of a transaction."""


class Tracer:
    """The trace of one client."""

    def __init__(
        self,
        session: Session,
        config: ClientConfig,
        group: str,
        delivery: MessageDelivery | None = None,
    ) -> None:
        """`delivery` sends the records; None sends them as a producer of this session does."""
        self.lost = 0
        """Records that were lost: too many waited, or no broker took them."""
        self._session = session
        self._config = config
        self._clock = config.clock
        self._group = group
        self._waiting: deque[SentMessages | Trace] = deque()
        self._extra = 0
        """Waiting records beyond one for each entry; changed on the event loop only."""
        self._wakeup = Wakeup()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_woken = False
        """Whether enough records wait for a message, and the wakeup was called."""
        self._writing = asyncio.Lock()
        self._throttle = ErrorLogThrottle(f"trace of {group}")
        self._request = session.identity.keys.make(config.clock.now_ms())
        self._requests = count(1)
        shared = {name: getattr(config, name) for name in ClientConfig.__struct_fields__}
        sending = ProducerConfig(**{**shared, "namespace": None, "metrics": None})
        self._preparer = MessagePreparer(session.identity.keys, sending)
        self._delivery = delivery or MessageDelivery(session, sending, f"{GROUP_PREFIX}{group}")

    def start(self) -> None:
        """Write collected records periodically, for ever."""
        self._loop = asyncio.get_running_loop()
        self._session.background.supervise(self._run, f"trace of {self._group}", self._clock)

    async def close(self) -> None:
        """Write the remaining records, within a time limit."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_MS / 1000):
                await self.flush()
        self.lost += self.waiting_count
        self._waiting.clear()
        self._extra = 0
        if self.lost:
            log.warning("%d trace records of %s were lost", self.lost, self._group)

    # Producers.

    def sent(
        self,
        outgoing: OutgoingBatch,
        receipts: Sequence[SendReceipt],
        address: str,
        region: str | None,
        began_ms: int,
    ) -> None:
        """Record a stored batch; `began_ms` is on the monotonic clock."""
        clock = self._clock
        items = [
            TracedItem(message.topic, message.properties, len(message.body))
            for message in outgoing.items
        ]
        took_ms = clock.monotonic_ms() - began_ms
        sends = SentMessages(items, receipts, address, region or "", clock.now_ms(), took_ms)
        if self._put(sends, len(items)):
            self._extra += len(items) - 1

    # Consumers.

    @contextmanager
    def handling(self, messages: Sequence[ReceivedMessage]) -> Iterator[None]:
        """Trace the call of a handler, which may run in a thread, with one or several messages.

        As in Java each message has two records with the request id of the call, and its share of
        the time.
        """
        request_id = f"{self._request}{next(self._requests):08X}"
        traced = [message for message in messages if self._is_traced(message)]
        self._put_all(self._start_of(message, request_id) for message in traced)
        began_ms, outcome = self._clock.monotonic_ms(), ConsumeReturnType.RAISED
        try:
            yield
            outcome = ConsumeReturnType.SUCCESS
        finally:
            took_ms = (self._clock.monotonic_ms() - began_ms) // len(messages)
            self._put_all(self._end_of(message, request_id, took_ms, outcome) for message in traced)

    def _is_traced(self, message: ReceivedMessage) -> bool:
        is_own = message.topic == self._config.trace_topic
        return not is_own and message.properties.get(names.TRACE_ON) != "false"

    def _start_of(self, message: ReceivedMessage, request_id: str) -> ConsumeStartTrace:
        return ConsumeStartTrace(
            at_ms=self._clock.now_ms(),
            region=message.properties.get(names.MSG_REGION, ""),
            group=self._group,
            request_id=request_id,
            message_id=message.message_id,
            tries=message.tries,
            keys=message.properties.get(names.KEYS, ""),
        )

    def _end_of(
        self, message: ReceivedMessage, request_id: str, took_ms: int, outcome: ConsumeReturnType
    ) -> ConsumeEndTrace:
        """The second record of a message; its handler may have settled it before it raised."""
        if message.has_failed:
            outcome = ConsumeReturnType.FAILED
        elif message.is_settled or message.has_failed is False:
            outcome = ConsumeReturnType.SUCCESS
        return ConsumeEndTrace(
            request_id=request_id,
            message_id=message.message_id,
            took_ms=took_ms,
            success=outcome is ConsumeReturnType.SUCCESS,
            keys=message.properties.get(names.KEYS, ""),
            outcome=outcome,
            at_ms=self._clock.now_ms(),
            group=self._group,
        )

    # Writing.

    def transaction_ended(self, call: EndTransaction, properties: Mapping[str, str]) -> None:
        """Record the end of a transaction; `properties` are those of its message."""
        ended = TransactionTrace(
            at_ms=self._clock.now_ms(),
            group=self._group,
            topic=call.topic or "",
            message_id=call.msg_id or "",
            tag=properties.get(names.TAGS, ""),
            keys=properties.get(names.KEYS, ""),
            transaction_id=call.transaction_id or "",
            state=_STATES[call.commit_or_rollback],
            from_check=call.from_transaction_check,
        )
        self._put(ended, 1)

    def recalled(self, topic: str, message_id: str) -> None:
        """Record the cancellation of a delayed message."""
        at_ms = self._clock.now_ms()
        self._put(
            RecallTrace(at_ms=at_ms, group=self._group, topic=topic, message_id=message_id), 1
        )

    @property
    def waiting_count(self) -> int:
        """Number of waiting records."""
        return len(self._waiting) + self._extra

    def _put_all(self, records: Iterable[Trace]) -> None:
        for record in records:
            self._put(record, 1)

    def _put(self, entry: SentMessages | Trace, size: int) -> bool:
        """Add records; False when too many wait. Also called in handler threads."""
        if self.waiting_count + size > WAITING_MAX:
            self.lost += size
            return False
        self._waiting.append(entry)
        if self.waiting_count + size > BATCH_MAX and not self._is_woken and self._loop is not None:
            self._is_woken = True
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wakeup.set)
        return True

    async def _run(self) -> None:
        while True:
            await self._wakeup.wait(LINGER_MS)
            await self.flush()

    async def flush(self) -> None:
        """Write all collected records now."""
        async with self._writing:
            self._is_woken = False
            left = deque(split_batches(self._take_records()))
            try:
                while left:
                    await self._write(left[0])
                    left.popleft()
            finally:  # may be cancelled
                self.lost += sum(map(len, left))

    def _take_records(self) -> Iterator[Trace]:
        """Take waiting records, and convert sends one by one."""
        while self._waiting:
            entry = self._waiting.popleft()
            if isinstance(entry, SentMessages):
                self._extra -= len(entry.items) - 1
                try:
                    records = list(to_trace_records(entry, self._group))
                except Exception as error:  # do not lose the records behind it
                    self.lost += len(entry.items)
                    self._throttle.report(error)
                else:
                    yield from records
            else:
                yield entry

    async def _write(self, batch: Sequence[Trace]) -> None:
        try:
            text = encode(batch).encode("utf-8", "surrogatepass")
            message = Message(self._config.trace_topic, text, keys=trace_keys(batch))
            prepared = self._preparer.prepare(message, self._clock.now_ms())
            await self._delivery.send(OutgoingBatch((prepared,), prepared))
        except Exception as error:
            self.lost += len(batch)
            self._throttle.report(error)
        else:
            self._throttle.clear()
