"""Send retries: what happens to a batch after an attempt to send it has failed.

    error ──▶ to be retried? ──▶ another queue, unless it is bound to one ──▶ pause ──▶ attempt
                  └──▶ its master may be changing: pause ──▶ fresh route ──▶ queue ──▶ attempt

Another broker is tried at once; a broker that was tried before only after a pause. Attempts at a
broker whose master may be changing are not counted: they go on, each with a fresh route, until the
deadline.
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Final, Protocol

from roquet.client.config import ProducerConfig
from roquet.client.sending.outgoing import OutgoingBatch
from roquet.model.errors import CallError
from roquet.model.queue import MessageQueue
from roquet.model.results import SendReceipt
from roquet.rules.backoff import backoff_ms
from roquet.rules.send_retry import is_retryable

RETRY_PAUSE_MS: Final = 100
"""Pause before the first retry on the same broker; it doubles. Another broker is tried at once."""

RETRY_PAUSE_MS_MAX: Final = 500
"""Longest pause between two attempts: a new master is found within it."""

FAILOVER_PAUSE_MS: Final = 50
"""Pause before the second question who is the master now: an election takes about 100 ms."""


class SendAttempts(Protocol):
    """Single attempts to send a batch, and what is known of brokers."""

    async def attempt(
        self, outgoing: OutgoingBatch, queue: MessageQueue, deadline_ms: int, tries: int
    ) -> Sequence[SendReceipt]:
        """Send once; `tries` is the number of this attempt. Raises CallError."""

    async def refresh_route(self, topic: str, left_ms: int) -> None:
        """Refresh the topic's route, which may name a new master."""

    async def has_stale_queue(
        self, error: CallError, outgoing: OutgoingBatch, queue: MessageQueue
    ) -> bool:
        """Whether a broker refused a queue that a fresh route does not name any more."""

    def is_failover(self, error: CallError, broker_name: str, *, is_known: bool) -> bool:
        """Whether the error is one of a broker that may get a new master.

        With `is_known` the broker is known to have replicas, though the route may lack them now.
        """


class SendRetries:
    """Retries of one batch."""

    def __init__(
        self,
        attempts: SendAttempts,
        config: ProducerConfig,
        outgoing: OutgoingBatch,
        deadline_ms: int,
        another_queue: Callable[[MessageQueue], Awaitable[MessageQueue]],
    ) -> None:
        """`another_queue` chooses the queue after an attempt at one has failed."""
        self._attempts = attempts
        self._clock = config.clock
        self._outgoing = outgoing
        self._deadline_ms = deadline_ms
        self._another_queue = another_queue
        self._left_tries = config.retry_times
        self._in_failover: set[str] = set()
        """Brokers whose master may be changing."""
        self._pauses_ms = backoff_ms(RETRY_PAUSE_MS, RETRY_PAUSE_MS_MAX)
        self._failover_pauses_ms = backoff_ms(FAILOVER_PAUSE_MS, RETRY_PAUSE_MS_MAX)

    async def run(self, queue: MessageQueue, error: CallError) -> Sequence[SendReceipt]:
        """Retry after the first attempt has failed. Raises the last error, a CallError."""
        for tries in count(1):
            name = queue.broker_name
            is_known = name in self._in_failover
            is_failover = self._attempts.is_failover(error, name, is_known=is_known)
            if not await self._may_retry(error, queue, is_failover=is_failover):
                raise with_attempts(error, self._outgoing, queue, tries)
            queue = await self._next_queue(queue, is_failover=is_failover)
            try:
                return await self._attempts.attempt(
                    self._outgoing, queue, self._deadline_ms, tries + 1
                )
            except CallError as next_error:
                error = next_error
        raise AssertionError("the loop ends by a return or an error")

    async def _may_retry(self, error: CallError, queue: MessageQueue, *, is_failover: bool) -> bool:
        if self._left_ms() <= 0 or not (self._left_tries or is_failover):
            return False
        return is_retryable(error) or await self._attempts.has_stale_queue(
            error, self._outgoing, queue
        )

    async def _next_queue(self, failed: MessageQueue, *, is_failover: bool) -> MessageQueue:
        """The queue of the next attempt, once it is time for it."""
        if is_failover:
            pauses_ms, queue, tried = self._failover_pauses_ms, failed, self._in_failover
        else:
            self._left_tries -= 1
            pauses_ms, queue = self._pauses_ms, await self._chosen(failed)
            tried = self._in_failover | {failed.broker_name}
        if queue.broker_name in tried:
            await self._clock.sleep(min(next(pauses_ms), self._left_ms()))
        if is_failover:
            await self._attempts.refresh_route(self._outgoing.topic, self._left_ms())
            self._in_failover.add(failed.broker_name)
            queue = await self._chosen(failed)
        return queue

    async def _chosen(self, failed: MessageQueue) -> MessageQueue:
        return failed if self._outgoing.lead.is_bound else await self._another_queue(failed)

    def _left_ms(self) -> int:
        return max(self._deadline_ms - self._clock.monotonic_ms(), 0)


def with_attempts(
    error: CallError, outgoing: OutgoingBatch, queue: MessageQueue, tries: int
) -> CallError:
    """Add to an error which queue was tried, and how often."""
    text = f"queue {queue}, {tries} {'try' if tries == 1 else 'tries'}"
    if outgoing.lead.is_bound:
        text += "; sent to no other queue, since order or selector bind it to this one"
    if text not in getattr(error, "__notes__", ()):  # errors are shared
        error.add_note(text)
    return error
