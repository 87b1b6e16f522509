"""Delivery: one parcel to a queue, again and again until a broker has it or the time is up.

A parcel that an order key binds to its queue waits for that queue's broker. All others go around
brokers at fault, to any that takes them. What is not known to be stored is sent again: it may be
there twice then, with the same key.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, repeat
from typing import Final

import msgspec

from roquet.client.connection.routes import Routes
from roquet.log_records import logger
from roquet.model.errors import CallError, CallRefused
from roquet.model.flags import SysFlag
from roquet.model.queue import MessageQueue
from roquet.net.clock import Clock
from roquet.net.pool import ChannelPool
from roquet.rules.latency_penalty import (
    ERROR_LATENCY_MS,
    BrokerFault,
    brokers_to_avoid,
    updated_fault,
)
from roquet.rules.queue_selection import next_queue
from roquet.spark.sink.options import SinkOptions
from roquet.spark.sink.send_requests import SendRequest
from roquet.wire.calls.send import Send, SendBatch, SendReply
from roquet.wire.codes import ResponseCode

log = logger(__name__)

ATTEMPT_TIMEOUT_MS: Final = 10_000
"""For one answer: mebibytes to a cold disk take longer than the usual three seconds."""

RETRY_PAUSES_MS: Final = (20, 50, 100, 200, 500, 1_000)
"""Between one try and the next; the last one again and again."""

AVOID_MS: Final = 2_000
"""For how long others go around a broker that failed."""

NEW_QUEUES: Final = 8
"""Of a topic that its first message makes, if brokers make topics."""

TRANSIENT_CODES: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.GO_AWAY,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)
"""Refusals that may pass, and answers that do not say enough for a transaction."""

BROKER_SPECIFIC_CODES: Final = frozenset({ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST})
"""Refusals that another broker may not share."""


UNKNOWN_QUEUE_TRIES: Final = 12
"""Of a queue that the broker does not know: a topic that is made this moment, or was changed. The
name servers know of it within a moment; here that is eight seconds."""


class DeliveredRequest(msgspec.Struct, frozen=True, gc=False):
    """What became of a parcel."""

    parcel: SendRequest
    broker: str
    reply: SendReply


class RequestDelivery:
    """Sends parcels, for one task."""

    def __init__(
        self, routes: Routes, pool: ChannelPool, options: SinkOptions, clock: Clock, turn: int
    ) -> None:
        """`turn` is where the queues' turns begin: not all tasks with the same."""
        self._routes = routes
        self._pool = pool
        self._options = options
        self._clock = clock
        self._turn = turn
        self._faults: dict[str, BrokerFault] = {}
        self._queues: dict[str, tuple[object, list[MessageQueue]]] = {}

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues of a topic in their order, waited for; ConnectFailed when there are none."""
        found = self._routes.writable(topic)
        if found is None:
            deadline_ms = self._clock.monotonic_ms() + self._options.timeout_ms
            await self._routes.find_writable(topic, NEW_QUEUES, deadline_ms)
            found = self._routes.writable(topic)
            assert found is not None, "or it would have failed"
        return found

    async def send(self, parcel: SendRequest) -> DeliveredRequest:
        """Have a parcel stored."""
        deadline_ms = self._clock.monotonic_ms() + self._options.timeout_ms
        waits, is_first = retry_pauses(), True
        refused: list[str] = []
        failed: str | None = None
        while True:
            queue = parcel.queue or await self._next(parcel.topic, failed)
            try:
                reply = await self._try(parcel, queue, deadline_ms)
            except CallError as error:
                if not self._goes_on(error, parcel, queue, refused, deadline_ms):
                    error.add_note(_failure_note(parcel, queue, error))
                    raise
                log.info("%s: %s; trying again", queue, error)
                await self._look_again(parcel.topic, error)
            else:
                self._faults.pop(queue.broker_name, None)
                return DeliveredRequest(parcel, queue.broker_name, reply)
            failed = queue.broker_name
            if not is_first or parcel.queue is not None:  # another broker is tried at once
                await asyncio.sleep(next(waits) / 1_000)
            is_first = False

    def _goes_on(
        self,
        error: CallError,
        parcel: SendRequest,
        queue: MessageQueue,
        refused: list[str],
        deadline_ms: int,
    ) -> bool:
        """Whether another try may help; the broker that failed is avoided for a while."""
        now_ms = self._clock.monotonic_ms()
        name = queue.broker_name
        self._faults[name] = updated_fault(
            self._faults.get(name), ERROR_LATENCY_MS, AVOID_MS, now_ms
        )
        if now_ms >= deadline_ms:
            return False
        if not isinstance(error, CallRefused) or error.code in TRANSIENT_CODES:
            return True
        refused.append(name)
        if parcel.queue is not None:  # the order of its key would be lost elsewhere
            return False
        if error.code == ResponseCode.INVALID_PARAMETER:
            return len(refused) < UNKNOWN_QUEUE_TRIES
        others = {other.broker_name for other in self._routes.writable(parcel.topic) or ()}
        return error.code in BROKER_SPECIFIC_CODES and not others <= set(refused)

    async def _next(self, topic: str, failed: str | None) -> MessageQueue:
        queues = self._by_turns(topic, await self.queues(topic))
        around = (
            brokers_to_avoid(self._faults, self._clock.monotonic_ms()) if self._faults else None
        )
        queue, self._turn = next_queue(queues, self._turn, avoid=failed, at_fault=around)
        return queue

    def _by_turns(self, topic: str, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        """The same so that neighbours are of different brokers."""
        known = self._queues.get(topic)
        if known is None or known[0] is not queues:
            mixed = sorted(queues, key=lambda queue: (queue.queue_id, queue.broker_name))
            known = self._queues[topic] = (queues, mixed)
        return known[1]

    async def _look_again(self, topic: str, error: CallError) -> None:
        """A broker that is gone may have another address by now."""
        if not isinstance(error, CallRefused) or error.code not in TRANSIENT_CODES:
            with suppress(CallError):
                await self._routes.refresh(topic)

    async def _try(self, parcel: SendRequest, queue: MessageQueue, deadline_ms: int) -> SendReply:
        left_ms = max(deadline_ms - self._clock.monotonic_ms(), 1)
        address = self._routes.leader(queue.broker_name)
        reply = await self._pool.call(
            address, self._call(parcel, queue), min(left_ms, ATTEMPT_TIMEOUT_MS)
        )
        if self._options.transactional and reply.code != ResponseCode.SUCCESS:
            # A half message that a loss of power takes along could not be committed any more.
            raise CallRefused(reply.code, "stored less durably than it should be", definite=False)
        return reply

    def _call(self, parcel: SendRequest, queue: MessageQueue) -> Send:
        now_ms, group = self._clock.now_ms(), self._options.group
        if parcel.properties is None:
            return SendBatch(
                body=parcel.body,
                producer_group=group,
                topic=parcel.topic,
                default_topic_queue_nums=NEW_QUEUES,
                queue_id=queue.queue_id,
                born_timestamp=now_ms,
            )
        return Send(
            body=parcel.body,
            producer_group=group,
            topic=parcel.topic,
            default_topic_queue_nums=NEW_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=int(SysFlag.TRANSACTION_PREPARED) if self._options.transactional else 0,
            born_timestamp=now_ms,
            flag=parcel.flag,
            properties=parcel.properties,
        )


def retry_pauses() -> Iterator[int]:
    """How long to wait before each further try, in ms."""
    return chain(RETRY_PAUSES_MS, repeat(RETRY_PAUSES_MS[-1]))


def _failure_note(parcel: SendRequest, queue: MessageQueue, error: CallError) -> str:
    last = parcel.row + parcel.count - 1
    rows = f"row {last}" if parcel.count == 1 else f"rows from {parcel.row} to about {last}"
    text = f"{rows} of this partition could not be sent to {queue}"
    if isinstance(error, CallRefused) and error.code == ResponseCode.MESSAGE_ILLEGAL:
        return f"{text}; if the broker takes less than usual, say so: maxMessageSize, batchBytes"
    return text
