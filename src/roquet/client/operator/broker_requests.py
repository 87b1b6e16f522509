"""Broker requests: what brokers ask of a group's member on behalf of operators."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from roquet.client.arguments import is_coroutine_function
from roquet.client.config import ConsumerConfig
from roquet.client.connection.session import Session
from roquet.client.connection.threads import run_in_thread
from roquet.client.operator.running_info import ConsumerStatus
from roquet.client.popping.pop_batch import PoppedMessage
from roquet.client.reading.handler_pool import MessageHandler
from roquet.client.reading.handler_result import ALREADY_SETTLED, HandlerResults
from roquet.client.reading.message import (
    DEAD_LETTER,
    InboundMessage,
    MessageContext,
    ReceivedMessage,
    settle,
)
from roquet.client.rebalance.rebalancer import Rebalancer
from roquet.model import properties as names
from roquet.model.errors import CallRefused, FieldError, RecordError
from roquet.model.message import V_co
from roquet.model.queue import MessageQueue
from roquet.net.router import HandlerReply, Peer
from roquet.observe.stacks import dump_stacks
from roquet.wire.call import Reply
from roquet.wire.calls.admin.client_forwarding import (
    ConsumeDirectly,
    ConsumeDirectlyResult,
    ConsumeResult,
    GetRunningInfo,
)
from roquet.wire.calls.admin.offset_reset import GetClientStatus, ResetClientOffset
from roquet.wire.calls.bodies import ClientStatus, ResetOffsetBody, ResetOffsetList
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.records import record

CONCURRENT_MAX: Final = 16
"""Limit of messages that operators may have handled at the same time."""


class ResultRecorder:
    """Owner of one message for an operator, which records how it was settled."""

    is_held = True

    def __init__(self, context: MessageContext) -> None:
        self.verdict: ConsumeResult | None = None
        self.remark: str | None = None
        self.context = context

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


class DirectPoppedMessage(PoppedMessage[V_co]):
    """A message for a PopConsumer's handler that was not popped."""

    async def extend(self, invisible_ms: int) -> None:
        """Do nothing: the message has no time limit."""

    async def suspend(self, delay_ms: int) -> None:
        """Do nothing: the message is not popped."""

    @property
    def first_popped_ms(self) -> int:
        """Time of the first pop, else the time of storage."""
        return int(self.properties.get(names.FIRST_POP_TIME, self.stored_ms))


class DirectConsumer:
    """Calls the handler of `run` with one stored message for an operator, while `run` is running.

    That call runs beside all others. Its result goes to the operator and changes nothing: the
    message is neither acknowledged nor sent back.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        kind: type[ReceivedMessage[Any]],
        context: MessageContext,
    ) -> None:
        self._config = config
        self._context = replace(context, pauses=None)  # as the message does not come again
        self._kind = kind
        self._handler: MessageHandler[Any] | None = None
        self._count = 0

    def use_handler(self, handler: MessageHandler[Any], run: "asyncio.Future[None]") -> None:
        """Use this handler until `run`, which calls it, has ended."""
        self._handler = handler
        run.add_done_callback(partial(self._leave, handler))

    def _leave(self, handler: MessageHandler[Any], _run: "asyncio.Future[None]") -> None:
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
        recorder = ResultRecorder(self._context)
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
        self, handler: MessageHandler[Any], message: ReceivedMessage, recorder: ResultRecorder
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
            if result is None or result is ALREADY_SETTLED:
                settle(message)
            else:
                HandlerResults().settle(message, result)
        return ConsumeDirectlyResult(
            order=self._config.ordered,
            consume_result=recorder.verdict,
            remark=recorder.remark,
            spent_ms=clock.monotonic_ms() - began_ms,
        )


async def _called(handler: MessageHandler[Any], message: ReceivedMessage) -> object:
    """Call the handler; a plain `def` runs in a thread of its own."""
    call: Callable[[ReceivedMessage], Any] = handler
    if is_coroutine_function(handler):
        return await call(message)
    return await run_in_thread(partial(call, message), "roquet-direct")


class BrokerRequests:
    """Handlers of one consumer's requests."""

    def __init__(
        self,
        session: Session,
        group: str,
        rebalancer: Rebalancer,
        direct_consumer: DirectConsumer,
        status: ConsumerStatus,
    ) -> None:
        self._session = session
        self._group = group
        self._rebalancer = rebalancer
        self._direct_consumer = direct_consumer
        self._consumer_status = status
        self._wanted: dict[MessageQueue, int] = {}
        """Offsets that an operator has set, and that are not applied yet."""
        session.router.add(ResetClientOffset, self._reset)
        session.router.add(GetClientStatus, self._status)
        session.router.add(GetRunningInfo, self._running_info)
        session.router.add(ConsumeDirectly, self._consume)

    def _reset(self, call: ResetClientOffset, _peer: Peer) -> HandlerReply:
        if call.group != self._group:
            return None
        is_first = not self._wanted
        self._wanted.update(decode_reset_offsets(call.body))
        if is_first and self._wanted:
            self._session.background.start(self._apply_resets(), f"reset of {self._group}")
        return None

    async def _apply_resets(self) -> None:
        while self._wanted:
            wanted, self._wanted = self._wanted, {}
            await self._rebalancer.reset(wanted)

    def _status(self, call: GetClientStatus, _peer: Peer) -> Reply:
        table = self._consumer_status.progress(call.topic) if call.group == self._group else {}
        return Reply(body=codec.dumps(ClientStatus(message_queue_table=table)))

    def _running_info(self, call: GetRunningInfo, _peer: Peer) -> Reply:
        self._check(call.consumer_group)
        return Reply(
            body=codec.dumps(
                self._consumer_status.info(dump_stacks() if call.jstack_enable else None)
            )
        )

    async def _consume(self, call: ConsumeDirectly, _peer: Peer) -> Reply:
        self._check(call.consumer_group)
        return Reply(body=codec.dumps(await self._direct_consumer.handle(call)))

    def _check(self, group: str) -> None:
        if group != self._group:
            raise CallRefused(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer Group <{group}> not exist in this consumer",
            )


def decode_reset_offsets(body: bytes) -> Mapping[MessageQueue, int]:
    """Decode queues and their new offsets, in either of the formats that brokers send."""
    try:
        return codec.loads(body, ResetOffsetBody).offset_table
    except FieldError:
        lines = codec.loads(body, ResetOffsetList).offset_table
    return {
        MessageQueue(line.topic, line.broker_name, line.queue_id): line.offset for line in lines
    }
