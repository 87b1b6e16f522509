"""Direct consumption: a member's handler is called with one stored message for an operator.

The handler runs beside all others. Its result goes to the operator and changes nothing: the message
is neither acknowledged nor sent back.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from roquet.client.config import ConsumerConfig
from roquet.client.connection.threads import run_in_thread
from roquet.client.popping.pop_batch import PoppedMessage
from roquet.client.reading.handler_pool import MessageHandler, is_coroutine_function
from roquet.client.reading.handler_result import HandlerResults
from roquet.client.reading.message import DEAD_LETTER, InboundMessage, ReceivedMessage
from roquet.client.reading.request_reply import ReplySender
from roquet.model import properties as names
from roquet.model.errors import CallRefused, RecordError
from roquet.model.queue import MessageQueue
from roquet.wire.calls.admin.client_forwarding import (
    ConsumeDirectly,
    ConsumeDirectlyResult,
    ConsumeResult,
)
from roquet.wire.codes import ResponseCode
from roquet.wire.records import record

CONCURRENT_MAX: Final = 16
"""Limit of messages that operators may have handled at the same time."""


class ResultRecorder:
    """Owner of one message, which records how it was settled."""

    is_held = True

    def __init__(self, replies: ReplySender, namespace: str | None) -> None:
        self.verdict: ConsumeResult | None = None
        self.remark: str | None = None
        self.namespace = namespace
        self._replies = replies

    def finish(self, message: InboundMessage) -> None:
        """Record a success."""
        del message
        self.verdict = ConsumeResult.CR_SUCCESS

    def retry(self, message: InboundMessage, delay_ms: int | None) -> None:
        """Record a failure."""
        del message
        self.verdict = ConsumeResult.CR_LATER
        if delay_ms == DEAD_LETTER:
            self.remark = "it goes to the dead letters"

    async def reply(
        self, message: InboundMessage, body: bytes, properties: Mapping[str, str]
    ) -> bool:
        """Reply to a request."""
        return await self._replies.reply(message, body, properties)


class DirectPoppedMessage(PoppedMessage):
    """A message for a PopConsumer's handler that was not popped."""

    async def extend(self, invisible_ms: int) -> None:
        """Do nothing: the message has no time limit."""

    @property
    def first_popped_ms(self) -> int:
        """Time of the first pop, else the time of storage."""
        return int(self.properties.get(names.FIRST_POP_TIME, self.stored_ms))


class DirectConsumer:
    """Calls the handler of `run`, while it is running."""

    def __init__(
        self, config: ConsumerConfig, replies: ReplySender, kind: type[ReceivedMessage]
    ) -> None:
        self._config = config
        self._replies = replies
        self._kind = kind
        self._handler: MessageHandler | None = None
        self._count = 0

    def use_handler(self, handler: MessageHandler, run: "asyncio.Future[None]") -> None:
        """Use this handler until `run`, which calls it, has ended."""
        self._handler = handler
        run.add_done_callback(partial(self._leave, handler))

    def _leave(self, handler: MessageHandler, _run: "asyncio.Future[None]") -> None:
        if self._handler is handler:
            self._handler = None

    async def handle(self, call: ConsumeDirectly) -> ConsumeDirectlyResult:
        """Call the handler with one message; return its result."""
        if self._handler is None:
            raise CallRefused(
                ResponseCode.SYSTEM_ERROR,
                f"the consumer of group <{call.consumer_group}> has no handler in `run` now",
            )
        if self._count >= CONCURRENT_MAX:
            raise CallRefused(
                ResponseCode.SYSTEM_BUSY, f"{self._count} messages are being handled directly"
            )
        recorder = ResultRecorder(self._replies, self._config.namespace)
        message = self._message(call, recorder)
        self._count += 1
        try:
            return await self._result(self._handler, message, recorder)
        finally:
            self._count -= 1

    def _message(self, call: ConsumeDirectly, recorder: ResultRecorder) -> ReceivedMessage:
        try:
            stored = record.decode(call.body)
            queue = MessageQueue(stored.topic, call.broker_name or "", stored.queue_id)
            return self._kind(queue, stored, recorder)
        except RecordError as error:
            raise CallRefused(
                ResponseCode.SYSTEM_ERROR, f"the message cannot be read: {error}"
            ) from error

    async def _result(
        self, handler: MessageHandler, message: ReceivedMessage, recorder: ResultRecorder
    ) -> ConsumeDirectlyResult:
        clock = self._config.clock
        began_ms = clock.monotonic_ms()
        try:
            async with asyncio.timeout(self._config.handler_limit_ms / 1000):
                result = await _called(handler, message)
        except Exception as error:
            recorder.verdict = ConsumeResult.CR_THROW_EXCEPTION
            recorder.remark = f"{type(error).__name__}: {error}"
        else:
            if result is None:
                message.settle()
            else:
                HandlerResults().settle(message, result)
        return ConsumeDirectlyResult(
            order=self._config.ordered,
            consume_result=recorder.verdict,
            remark=recorder.remark,
            spent_ms=clock.monotonic_ms() - began_ms,
        )


async def _called(handler: MessageHandler, message: ReceivedMessage) -> object:
    """Call the handler; a plain `def` runs in a thread of its own."""
    call: Callable[[ReceivedMessage], Any] = handler
    if is_coroutine_function(handler):
        return await call(message)
    return await run_in_thread(partial(call, message), "roquet-direct")
