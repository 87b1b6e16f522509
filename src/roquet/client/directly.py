"""Directly: one stored message is given to a member's handler, because an operator wants to see.

The handler runs beside all others. How it goes is told to the operator and changes nothing: the
message is neither acknowledged nor sent back.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from roquet.client.config import ConsumerConfig
from roquet.client.handling import Handler, is_coroutine_function
from roquet.client.outcome import Results
from roquet.client.popped import PoppedMessage
from roquet.client.received import DEAD, Received, ReceivedMessage
from roquet.client.requests import Replies
from roquet.client.threads import in_thread
from roquet.model import properties as names
from roquet.model.errors import CallRefused, RecordError
from roquet.model.queue import MessageQueue
from roquet.wire import record
from roquet.wire.calls.relay import ConsumeDirectly, DirectResult, Verdict
from roquet.wire.codes import ResponseCode

AT_ONCE_MAX: Final = 16
"""Messages that operators may give a member at one time; its own work goes on beside them."""


class Judge:
    """Holds one message, and hears how it went."""

    is_held = True

    def __init__(self, replies: Replies, namespace: str | None) -> None:
        self.verdict: Verdict | None = None
        self.remark: str | None = None
        self.namespace = namespace
        self._replies = replies

    def finish(self, message: Received) -> None:
        """The message is handled."""
        del message
        self.verdict = Verdict.CR_SUCCESS

    def again(self, message: Received, delay_ms: int | None) -> None:
        """The message failed."""
        del message
        self.verdict = Verdict.CR_LATER
        if delay_ms == DEAD:
            self.remark = "it goes to the dead letters"

    async def reply(self, message: Received, body: bytes, properties: Mapping[str, str]) -> bool:
        """Answer the message, which is a request."""
        return await self._replies.reply(message, body, properties)


class LonePoppedMessage(PoppedMessage):
    """A message as a PopConsumer's handler knows it, which nobody popped."""

    async def extend(self, invisible_ms: int) -> None:
        """There is no time that could pass."""

    @property
    def first_popped_ms(self) -> int:
        """When it was given out for the first time: now, unless it says otherwise."""
        return int(self.properties.get(names.FIRST_POP_TIME, self.stored_ms))


class Direct:
    """Gives messages to the handler of `run`, while there is one."""

    def __init__(
        self, config: ConsumerConfig, replies: Replies, kind: type[ReceivedMessage]
    ) -> None:
        self._config = config
        self._replies = replies
        self._kind = kind
        self._handler: Handler | None = None
        self._count = 0

    def ask(self, handler: Handler, task: "asyncio.Task[None]") -> None:
        """Ask this handler, until the task in which it works has ended."""
        self._handler = handler
        task.add_done_callback(partial(self._leave, handler))

    def _leave(self, handler: Handler, _task: "asyncio.Task[None]") -> None:
        if self._handler is handler:
            self._handler = None

    async def handle(self, call: ConsumeDirectly) -> DirectResult:
        """Give the handler one message; how that went."""
        if self._handler is None:
            raise CallRefused(
                ResponseCode.SYSTEM_ERROR,
                f"the consumer of group <{call.consumer_group}> has no handler that could be asked",
            )
        if self._count >= AT_ONCE_MAX:
            raise CallRefused(
                ResponseCode.SYSTEM_BUSY, f"{self._count} messages are being handled directly"
            )
        judge = Judge(self._replies, self._config.namespace)
        message = self._message(call, judge)
        self._count += 1
        try:
            return await self._judged(self._handler, message, judge)
        finally:
            self._count -= 1

    def _message(self, call: ConsumeDirectly, judge: Judge) -> ReceivedMessage:
        try:
            found = record.decode(call.body)
            queue = MessageQueue(found.topic, call.broker_name or "", found.queue_id)
            return self._kind(queue, found, judge)
        except RecordError as error:
            raise CallRefused(
                ResponseCode.SYSTEM_ERROR, f"the message cannot be read: {error}"
            ) from error

    async def _judged(
        self, handler: Handler, message: ReceivedMessage, judge: Judge
    ) -> DirectResult:
        clock = self._config.clock
        began_ms = clock.monotonic_ms()
        try:
            async with asyncio.timeout(self._config.handler_limit_ms / 1000):
                result = await _called(handler, message)
        except Exception as error:
            judge.verdict = Verdict.CR_THROW_EXCEPTION
            judge.remark = f"{type(error).__name__}: {error}"
        else:
            if result is None:
                message.settle()
            else:
                Results().judge(message, result)
        return DirectResult(
            order=self._config.ordered,
            consume_result=judge.verdict,
            remark=judge.remark,
            spent_ms=clock.monotonic_ms() - began_ms,
        )


async def _called(handler: Handler, message: ReceivedMessage) -> object:
    """What the handler returns; a plain one runs in a thread of its own."""
    call: Callable[[ReceivedMessage], Any] = handler
    if is_coroutine_function(handler):
        return await call(message)
    return await in_thread(partial(call, message), "roquet-direct")
