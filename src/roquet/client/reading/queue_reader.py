"""QueueReader: pulls one queue within the limits of flow control, and tracks its offset."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, cast

import msgspec

from roquet.client.config import flow_limits
from roquet.client.connection.background import BackgroundTasks, ErrorLogThrottle, Wakeup
from roquet.client.reading.consume_rates import ConsumeRates
from roquet.client.reading.inbox import Inbox
from roquet.client.reading.message import (
    RELEASE_MS,
    RELEASED,
    UNREADABLE,
    UNREADABLE_PAUSE_MS,
    InboundMessage,
    MessageContext,
    ReceivedMessage,
    next_try,
    read_records,
)
from roquet.client.reading.pull_request import Puller, SubscriptionFilter
from roquet.client.reading.retry import FailurePolicy
from roquet.client.spans.message_attributes import MessageRequest
from roquet.log_records import logger
from roquet.model.errors import CallRefused, RecordError, RoquetError
from roquet.model.queue import MessageQueue
from roquet.model.route import MASTER_ID
from roquet.rules.consumption.pull import ConsumeWindow
from roquet.wire.calls.pull import PullReply
from roquet.wire.codes import ResponseCode

if TYPE_CHECKING:
    from roquet.client.spans.client_spans import ClientSpans

log = logger(__name__)

PULL_PAUSE_MS: Final = 1_000
"""Pause after a failed pull: the broker may be restarting."""

IDLE_PAUSE_MS: Final = 20
"""Pause after an empty reply that came at once: some brokers do not hold pulls."""


class ReaderContext(msgspec.Struct, frozen=True):
    """Objects that all readers of a consumer share."""

    inbox: Inbox[ReceivedMessage]
    puller: Puller
    failures: FailurePolicy
    background: BackgroundTasks
    rates: ConsumeRates = msgspec.field(default_factory=ConsumeRates)
    spans: "ClientSpans | None" = None
    """None where no spans are made."""
    messages: MessageContext = MessageContext()


class QueueReader:
    """One queue that a consumer reads, until it is released."""

    answered_ms: int | None = None
    """Time of the last answer to a pull; None before the first one."""
    _max_offset: int | None = None
    """The queue's end by that answer."""

    def __init__(
        self,
        queue: MessageQueue,
        offset: int,
        message_filter: SubscriptionFilter,
        context: ReaderContext,
    ) -> None:
        self.queue = queue
        self.window = ConsumeWindow(offset)
        self.saved: int | None = None
        """The offset that was last committed at the broker."""
        self.is_held = True
        self.topic_id: str | None = None
        """The topic id of the messages that are read; None while unknown."""
        self.on_recreated: Callable[[QueueReader], Awaitable[bool]] | None = None
        """Called when the broker does not know the topic: whether another reader has taken the
        queue over."""
        self.settling: set[asyncio.Task[None]] = set()
        """Tasks that settle failed messages."""
        self.message_filter = message_filter
        self._inbox = context.inbox
        self._puller = context.puller
        self._failures = context.failures
        self._background = context.background
        self.context = context.messages
        self._spans = context.spans
        self._request = MessageRequest(queue.topic, queue.broker_name)
        self._config = context.puller.config
        self._limits = flow_limits(self._config)
        self._tally = context.rates.of(queue.topic)
        self._room = Wakeup()
        self._is_waiting = False
        self._parked: list[ReceivedMessage] | None = None
        """Messages held back while the queue is paused; None otherwise."""
        self._abandoned = 0
        """Messages that failed after the release."""
        self._throttle = ErrorLogThrottle(f"pull of {queue}")
        self._clock = self._config.clock
        self.last_pull_ms = self.last_progress_ms = self._clock.monotonic_ms()
        """Time of the last pull, or of the last wait for room; silence since then is a fault."""
        self._waiting_ms = self.last_pull_ms
        """Since when an answer is due: the last one, or the last wait for room."""
        self._seen_offset = offset
        self._task = self._start()

    def release(self) -> None:
        """Stop reading: the queue is revoked, and messages in flight do not count from now on."""
        if self.is_held:
            self._tally.gone += self.window.count
        self.is_held = False
        self._task.cancel()

    async def wait_for_handlers(self, timeout_ms: int) -> None:
        """After a release: wait until running handlers have ended, up to a timeout."""
        idle = len(self._inbox.withdraw(self)) + len(self._parked or ())
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while self.window.count > idle + self._abandoned:
            if (left_ms := deadline_ms - self._clock.monotonic_ms()) <= 0:
                return
            self._is_waiting = True
            await self._room.wait(left_ms)

    def change(self, message_filter: SubscriptionFilter) -> None:
        """Use another filter: a pull under way, with the old one, is cancelled."""
        self.message_filter = message_filter
        if self.is_held and not self.is_paused:
            self._task.cancel()
            self._task = self._start()

    def observe_progress(self) -> int:
        """When handling last made progress, as observed here: at this call and at each commit."""
        handled_offset = self.window.next_offset - self.window.count
        if handled_offset != self._seen_offset:
            self._seen_offset, self.last_progress_ms = handled_offset, self._clock.monotonic_ms()
        return self.last_progress_ms

    @property
    def is_paused(self) -> bool:
        """Whether the queue is paused."""
        return self._parked is not None

    def pause(self) -> None:
        """Pull and hand out nothing more until `resume`."""
        if self._parked is None:
            self._parked = self._inbox.withdraw(self)
            self._task.cancel()

    def resume(self) -> None:
        """Pull and hand out messages again."""
        parked, self._parked = self._parked, None
        if parked is not None and self.is_held:
            self._inbox.put(parked)
            self._task = self._start()

    def silence_ms(self, now_ms: int) -> int:
        """How long no pull has been answered, while the queue is neither paused nor full."""
        return 0 if self.is_paused else now_ms - self._waiting_ms

    @property
    def lag(self) -> int | None:
        """Unhandled messages by the last answer; None before that."""
        if self._max_offset is None:
            return None
        return max(self._max_offset - self.window.committable, 0)

    @property
    def failure(self) -> str | None:
        """The error while pulls fail."""
        return self._throttle.failure

    def is_silent(self, now_ms: int, limit_ms: int) -> bool:
        """Whether the last pull is too long ago, although the queue is not paused."""
        return not self.is_paused and now_ms - self.last_pull_ms > limit_ms

    def _start(self) -> asyncio.Task[None]:
        self.last_pull_ms = self._waiting_ms = self._clock.monotonic_ms()
        return self._background.start(self._run(), f"reader of {self.queue}")

    async def _run(self) -> None:
        clock = self._clock
        while True:
            await self._wait_for_room()
            self.last_pull_ms = before_ms = clock.monotonic_ms()
            try:
                is_more_expected = self._take(await self._pull())
                self._throttle.clear()
            except Exception as error:
                if await self._is_recreated(error):
                    return
                self._throttle.report(error)
                if self._spans is not None:
                    took_ms = clock.monotonic_ms() - before_ms
                    self._spans.receive_failed(self._request, error, took_ms)
                self._puller.invalidate()
                await clock.sleep(PULL_PAUSE_MS)
                continue
            if not is_more_expected and clock.monotonic_ms() - before_ms < IDLE_PAUSE_MS:
                await clock.sleep(IDLE_PAUSE_MS)

    async def _is_recreated(self, error: Exception) -> bool:
        """Whether the topic was created again, and another reader has begun to read it."""
        is_unknown = isinstance(error, CallRefused) and error.code == ResponseCode.TOPIC_NOT_EXIST
        if not is_unknown or self.topic_id is None or self.on_recreated is None:
            return False
        try:
            return await self.on_recreated(self)
        except RoquetError:
            return False

    async def _wait_for_room(self) -> None:
        window, limits = self.window, self._limits
        while limits.are_reached(window.count, window.size, window.span):
            self._is_waiting = True
            self.last_pull_ms = self._waiting_ms = self._clock.monotonic_ms()
            await self._room.wait(self._config.suspend_ms)

    async def _pull(self) -> PullReply:
        window = self.window
        progress = window.committable if self._puller.saves_progress else None
        pulled = await self._puller.pull(
            self.queue,
            window.next_offset,
            self.message_filter,
            count=min(self._config.pull_count, self._config.in_flight_max - window.count),
            suspend_ms=self._config.suspend_ms,
            progress=progress,
            topic_id=self.topic_id,
        )
        if progress and pulled.broker_id == MASTER_ID:
            self.saved = progress
        return pulled.reply

    def _take(self, reply: PullReply) -> bool:
        """Put the reply's messages into the inbox; whether to pull again at once."""
        window = self.window
        self._max_offset = reply.max_offset
        self.answered_ms = self._waiting_ms = self._clock.monotonic_ms()
        next_offset = reply.next_begin_offset
        match reply.code:
            case ResponseCode.SUCCESS:
                messages = self._wanted(reply.body)
                took_ms = self._clock.monotonic_ms() - self.last_pull_ms
                self._tally.count_pull(len(messages), took_ms)
                if self._spans is not None:
                    self._spans.received(self._request, messages, took_ms)
                window.take([(m.queue_offset, m.size) for m in messages], next_offset)
                self._offer(messages)
                return True
            case ResponseCode.PULL_OFFSET_MOVED:
                log.warning(
                    "%s does not hold offset %d (it holds %d to %d): going on at %d",
                    self.queue, window.next_offset, reply.min_offset, reply.max_offset, next_offset,
                )  # fmt: skip
                window.move(next_offset)
                return False
            case _:
                window.move(next_offset)
                return reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY

    def _wanted(self, body: bytes) -> Sequence[ReceivedMessage]:
        begin, tags = self.window.next_offset, self.message_filter.tags
        messages = [
            ReceivedMessage(self.queue, record, self)
            for record in read_records(body, self._damaged)
            if record.queue_offset >= begin  # a stored batch comes whole
        ]
        return messages if tags is None else [m for m in messages if m.tag in tags]

    def _damaged(self, offset: int, error: RecordError) -> None:
        log.error("%s offset %d is unreadable and skipped: %s", self.queue, offset, error)

    def _offer(self, messages: Sequence[ReceivedMessage]) -> None:
        self._inbox.put(messages)

    # reading.message.MessageOwner

    def finish(self, message: InboundMessage) -> None:
        """Note that the message is handled."""
        self.window.finish(message.queue_offset)
        if self._is_waiting:
            self._is_waiting = False
            self._room.set()

    def retry(self, message: InboundMessage, delay_ms: int | None) -> None:
        """Settle a failed message by the retry policy."""
        if not self.is_held:
            self._abandon(message)
            return
        task = self._background.start(self._fail(message, delay_ms), f"failure of {message}")
        self.settling.add(task)
        task.add_done_callback(self.settling.discard)

    async def _fail(self, message: InboundMessage, delay_ms: int | None) -> None:
        if delay_ms == UNREADABLE:
            pause_ms: int | None = UNREADABLE_PAUSE_MS
        elif delay_ms == RELEASED:
            pause_ms = RELEASE_MS
        else:
            pause_ms = await self._failures(message, delay_ms)
        self._tally.failed += 1
        if pause_ms is None:
            self._tally.gone += 1
            self.finish(message)
        else:
            self._background.start(self.hand_out_later(message, pause_ms), f"next try of {message}")

    async def hand_out_later(self, message: InboundMessage, pause_ms: int) -> None:
        """Hand out a failed message again after a pause; abandon it if the queue is revoked."""
        if self.is_held:
            await self._clock.sleep(pause_ms)
        if self.is_held:
            self._hand_out_again(next_try(cast("ReceivedMessage", message)))
        else:
            self._abandon(message)

    def _hand_out_again(self, message: ReceivedMessage) -> None:
        if self._parked is None:
            self._inbox.put_first(message)
        else:
            self._parked.insert(0, message)

    def _abandon(self, message: InboundMessage) -> None:
        """Drop a failed message of a revoked queue: the queue's new owner gets it."""
        del message
        self._abandoned += 1
        self._room.set()
