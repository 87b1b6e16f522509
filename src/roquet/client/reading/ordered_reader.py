"""OrderedReader: hands out one message of its queue at a time, in the queue's order."""

import asyncio
from collections import deque
from collections.abc import Sequence

from roquet.client.reading.message import InboundMessage, ReceivedMessage
from roquet.client.reading.pull_request import SubscriptionFilter
from roquet.client.reading.queue_reader import QueueReader, ReaderContext
from roquet.model.queue import MessageQueue


class OrderedReader(QueueReader):
    """One queue whose next message waits until the one before it is handled."""

    def __init__(
        self,
        queue: MessageQueue,
        offset: int,
        message_filter: SubscriptionFilter,
        context: ReaderContext,
    ) -> None:
        self._backlog: deque[ReceivedMessage] = deque()
        self._handed_out: int | None = None
        """The offset of the message that is handed out; None when none is."""
        self._is_over = asyncio.Event()
        """Set while no message is handed out."""
        self._is_over.set()
        self._previous: OrderedReader | None = None
        """The queue's former reader, while its last message is handed out."""
        self._waits_for_retry = False
        """Whether the message waits for its next try."""
        super().__init__(queue, offset, message_filter, context)

    def release(self) -> None:
        """Hand out nothing more; the message that is handed out may still be finished."""
        super().release()
        if (
            self._inbox.withdraw(self) or self._parked or self._waits_for_retry
        ):  # its handler has not started
            self._ended()

    @property
    def is_idle(self) -> bool:
        """Whether no message of the queue is handed out."""
        return self._is_over.is_set() and (self._previous is None or self._previous.is_idle)

    async def wait_until_idle(self) -> None:
        """Wait until no message of the queue is handed out."""
        if self._previous is not None:
            await self._previous.wait_until_idle()
        await self._is_over.wait()

    def start_after(self, other: "OrderedReader") -> None:
        """Hand nothing out before the last message of the queue's former reader has ended."""
        # A former reader that still waits itself has handed nothing out, and never will.
        self._previous = other._previous or other
        self._background.start(
            self._start_after(self._previous), f"end of the former reader of {self.queue}"
        )

    async def _start_after(self, previous: "OrderedReader") -> None:
        await previous.wait_until_idle()
        self._previous = None
        self._hand_out()

    def resume(self) -> None:
        """Read and hand out messages again."""
        super().resume()
        self._hand_out()

    def _offer(self, messages: Sequence[ReceivedMessage]) -> None:
        self._backlog.extend(messages)
        self._hand_out()

    def _hand_out(self) -> None:
        if self._handed_out is None and self._backlog and self.is_held and not self.is_paused:
            if self._previous is not None:
                return
            message = self._backlog.popleft()
            self._handed_out = message.queue_offset
            self._is_over.clear()
            self._inbox.put([message])

    def _ended(self) -> None:
        self._handed_out = None
        self._is_over.set()

    # reading.message.MessageOwner

    def finish(self, message: InboundMessage) -> None:
        """Note that the message is handled, and hand out the next one."""
        super().finish(message)
        if message.queue_offset == self._handed_out:
            self._ended()
            self._hand_out()

    async def hand_out_later(self, message: InboundMessage, pause_ms: int) -> None:
        """Hand out a failed message again after a pause, before the messages behind it."""
        self._waits_for_retry = True
        await super().hand_out_later(message, pause_ms)

    def _hand_out_again(self, message: ReceivedMessage) -> None:
        self._waits_for_retry = False
        super()._hand_out_again(message)

    def _abandon(self, message: InboundMessage) -> None:
        if message.queue_offset == self._handed_out:
            self._ended()
