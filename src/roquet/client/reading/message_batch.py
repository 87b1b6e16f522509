"""MessageBatch: messages of a consumer that one call of a batch handler handles together.

A batch passes through the handler pools as one message does: its handlers have the same threads,
time limits, cancellations and ends.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Generic, Self, TypeAlias

from roquet.client.arguments import TIMEOUT_MS_MAX, check_number
from roquet.client.reading.handler_contexts import adapt_handler
from roquet.client.reading.handler_pool import MessageHandler
from roquet.client.reading.handler_result import fail_message
from roquet.client.reading.inbox import Inbox
from roquet.client.reading.message import InboundMessage, M, ReceivedMessage, retry_later, settle

BATCH_SIZE: Final = 500
"""Default number of messages of one batch."""

BATCH_WAIT_MS: Final = 200
"""Default time that a batch waits for more messages after its first one."""

AsyncBatchHandler: TypeAlias = Callable[[Sequence[M]], Coroutine[Any, Any, object]]
BatchHandler: TypeAlias = Callable[[Sequence[M]], object] | AsyncBatchHandler[M]
"""A user's function of several messages: an `async def`, or a plain `def`, which runs in threads.
A return acknowledges those that are not settled yet, an exception fails them."""


class MessageBatch(ReceivedMessage[Any], Generic[M]):
    """Messages that are settled together, but for those settled by their own methods."""

    def __init__(self, messages: Sequence[M]) -> None:
        self.messages = messages
        """Those that are settled with the batch."""
        self.failed: Sequence[tuple[M, Exception]] = ()
        """Those that the handler does not get, and why: they fail when the batch is settled."""
        self._taken = messages
        self.queue = messages[0].queue
        self.tries = min(message.tries for message in messages)
        self._is_settled = False

    def __repr__(self) -> str:
        return f"<{len(self._taken)} messages, first {self._taken[0]!r}>"

    @property
    def _owner(self) -> Self:  # type: ignore[override]
        """The batch itself.

        An attribute would be a cycle, which keeps all messages until garbage is collected.
        """
        return self

    @property
    def is_held(self) -> bool:
        """Whether any of the messages still belongs to this consumer."""
        return any(message.is_held for message in self.messages)

    def finish(self, _batch: InboundMessage[Any]) -> None:
        """Report the messages as handled."""
        for message in self.messages:
            settle(message)
        self._fail_others()

    def _retry(self, delay_ms: int | None, error: BaseException | None) -> None:
        for message in self.messages:
            retry_later(message, delay_ms, error)
        self._fail_others()

    def leave_out(self, read: Callable[[M], object]) -> Self | None:
        """Leave out the messages for which `read` raises; return None when no other is left."""
        failed: list[tuple[M, Exception]] = []
        for message in self.messages:
            try:
                read(message)
            except Exception as error:
                message.has_failed = True
                failed.append((message, error))
        if failed:
            self.failed, unread = failed, {message for message, _ in failed}
            self.messages = [message for message in self.messages if message not in unread]
        return self if self.messages else None

    def _fail_others(self) -> None:
        for message, error in self.failed:
            fail_message(message, error)


class BatchInbox(Inbox[MessageBatch[M]]):
    """Messages of an inbox, taken as batches."""

    def __init__(self, inbox: Inbox[M], size: int, wait_ms: int) -> None:
        super().__init__()
        check_number(size, "size", 1)
        check_number(wait_ms, "wait_ms", 0, TIMEOUT_MS_MAX)
        self._source = inbox
        self._size = size
        self.wait_ms = wait_ms
        self._turn = asyncio.Lock()
        """One worker at a time collects, so that batches are as full as they can be."""

    def pop(self) -> None:
        """Return None: a batch is always waited for."""

    async def take(self) -> MessageBatch[M] | None:
        """Wait for a message, then for more; None once the inbox is closed."""
        async with self._turn:
            messages = self._source.collected = []
            while await self._collect(messages) and not messages:
                pass  # they went with their queue
            self._source.collected = []
        return MessageBatch(messages) if messages else None

    async def _collect(self, messages: list[M]) -> bool:
        """Add messages until the batch is full or its time is over; False once the inbox is closed.

        Those of a queue that is revoked or paused meanwhile are withdrawn.
        """
        try:
            async with asyncio.timeout(None) as waiting:
                while len(messages) < self._size:
                    message = self._source.pop() or await self._source.take()
                    if message is None:
                        return False
                    messages.append(message)
                    if len(messages) == 1:
                        now_s = asyncio.get_running_loop().time()
                        waiting.reschedule(now_s + self.wait_ms / 1000)
        except TimeoutError:
            pass
        except BaseException:
            self._source.collected = []
            self._source.put_back(messages)
            raise
        return True

    def put_first(self, message: MessageBatch[M]) -> None:
        """Put the messages of a batch back to the front, for another call of the same try."""
        failed = [each for each, _ in message.failed]
        for each in failed:
            each.has_failed = None
        self._source.put_back([*message.messages, *failed])

    def abort(self, error: Exception) -> None:
        """Make reads raise an error."""
        self._source.abort(error)


def handler_of_batch(handler: BatchHandler[M]) -> MessageHandler[MessageBatch[M]]:
    """Make a pool's handler of a user's function, which gets the messages as a list."""
    return adapt_handler(handler, lambda batch: batch.messages)


def handler_of_one(handler: MessageHandler[MessageBatch[M]]) -> MessageHandler[M]:
    """Make a handler of one message, which becomes a batch of its own."""
    return adapt_handler(handler, lambda message: MessageBatch([message]))
