"""PopLoop: pops one topic of one broker whenever the prefetch buffer runs low."""

import asyncio
from collections.abc import Container, Sequence
from typing import Final

from roquet.client.config import ConsumerConfig
from roquet.client.connection.background import BackgroundTasks, ErrorLogThrottle
from roquet.client.connection.session import Session
from roquet.client.metrics import RECEIVED
from roquet.client.popping.acks import PopAcks
from roquet.client.popping.pop_batch import PoppedMessage, PopReplyParser, PopTarget
from roquet.client.popping.prefetch_buffer import PrefetchBuffer
from roquet.client.reading.message import give_up, read_records, release, settle
from roquet.client.reading.pull_request import SubscriptionFilter
from roquet.client.spans.message_attributes import MessageRequest
from roquet.log_records import logger
from roquet.model.errors import RecordError
from roquet.wire.calls.pop import Pop, PopReply
from roquet.wire.codes import ResponseCode
from roquet.wire.records.record import Record

log = logger(__name__)

ANY_QUEUE: Final = -1

POP_PAUSE_MS: Final = 1_000
"""Pause after a failed pop: the broker may be restarting."""

IDLE_PAUSE_MS: Final = 20
"""Pause after an empty reply that came at once: some brokers do not hold pops."""

FROM_MAX: Final = 1
FROM_MIN: Final = 0
"""Where a new group starts, as a field of the pop request."""


class PopLoop:
    """Pops one topic of one broker, until stopped."""

    def __init__(
        self,
        target: PopTarget,
        message_filter: SubscriptionFilter,
        buffer: PrefetchBuffer,
        session: Session,
        config: ConsumerConfig,
        acks: PopAcks,
        *,
        starts_first: bool,
    ) -> None:
        self._target = target
        self._message_filter = message_filter
        self._buffer = buffer
        self._session = session
        self._config = config
        self._acks = acks
        self._starts_first = starts_first
        """Whether a group without an offset starts at a queue's first message."""
        self._throttle = ErrorLogThrottle(f"pop of {target.topic} at {target.broker}")
        self._task: asyncio.Task[None] | None = None
        self._is_asking = False
        self._is_left = False
        self._asked_ms = 0
        self.answered_ms: int | None = None
        """Time of the last answer to a pop; None before the first one."""
        self._waiting_ms = config.clock.monotonic_ms()
        self._request = MessageRequest(target.topic, target.broker)

    lag = None
    """Replies do not say what the group has not taken."""

    def silence_ms(self, now_ms: int) -> int:
        """How long no pop has been answered, while messages are wanted."""
        is_due = self._is_asking or self.failure is not None
        return now_ms - self._waiting_ms if is_due else 0

    @property
    def failure(self) -> str | None:
        """The error while pops fail."""
        return self._throttle.failure

    def start(self, background: BackgroundTasks) -> None:
        """Start popping."""
        name = f"pop of {self._target.topic} at {self._target.broker}"
        self._task = background.start(self._run(), name)

    def leave(self) -> None:
        """Stop popping, and release the messages of the pop under way at once.

        That pop waits at the broker. If nobody read its reply, its messages would be lost to all
        members for their invisible time.
        """
        self._is_left = True
        if self._task is not None and not self._is_asking:
            self._task.cancel()

    async def _run(self) -> None:
        clock = self._config.clock
        while not self._is_left:
            count = await self._buffer.wait_for_demand()
            before_ms = clock.monotonic_ms()
            if self.failure is None:
                self._waiting_ms = before_ms
            is_more_expected = await self._ask(count)
            if is_more_expected is None:
                await clock.sleep(POP_PAUSE_MS)
            elif not is_more_expected and clock.monotonic_ms() - before_ms < IDLE_PAUSE_MS:
                await clock.sleep(IDLE_PAUSE_MS)

    async def _ask(self, count: int) -> bool | None:
        """Pop once; whether to pop again at once, or None when it failed."""
        self._is_asking = True
        self._asked_ms = self._config.clock.monotonic_ms()
        try:
            is_more_expected = await self._take(await self._pop(count))
            self._throttle.clear()
        except Exception as error:
            self._throttle.report(error)
            if (spans := self._session.spans) is not None:
                spans.receive_failed(self._request, error, self._took_ms())
            self._session.routes.invalidate()
            self._session.membership.trigger()
            return None
        finally:
            self._is_asking = False
        return is_more_expected

    def _took_ms(self) -> int:
        return self._config.clock.monotonic_ms() - self._asked_ms

    async def _pop(self, count: int) -> PopReply:
        config, wanted = self._config, self._message_filter.subscription
        call = Pop(
            consumer_group=self._target.group,
            topic=self._target.topic,
            queue_id=ANY_QUEUE,
            max_msg_nums=count,
            invisible_time=config.invisible_ms,
            poll_time=config.suspend_ms,
            born_time=config.clock.now_ms(),
            init_mode=FROM_MIN if self._starts_first else FROM_MAX,
            exp_type=wanted.expression_type,
            exp=wanted.sub_string,
        )
        return await self._session.call(self._target.broker, call, config.pull_timeout_ms)

    async def _take(self, reply: PopReply) -> bool:
        """Put the reply's messages into the buffer; whether to pop again at once."""
        self.answered_ms = self._config.clock.monotonic_ms()
        if reply.code != ResponseCode.SUCCESS:
            return False
        messages = self._messages(reply)
        if (spans := self._session.spans) is not None:
            spans.received(self._request, messages, self._took_ms())
        if (metrics := self._config.metrics) is not None:
            metrics.add(RECEIVED, len(messages), self._target.topic, self._target.group)
        if any(message.tries for message in messages):
            messages = await self._within_limit(messages)
        if self._is_left or self._buffer.is_closed:
            for message in messages:
                release(message)
            return True
        tags = self._message_filter.tags
        if tags is not None:  # brokers compare hashes of tags, clients texts
            messages = [message for message in messages if self._is_wanted(message, tags)]
        self._buffer.put(messages)
        return True

    def _messages(self, reply: PopReply) -> Sequence[PoppedMessage]:
        records = list(read_records(reply.body, self._damaged))
        parser = PopReplyParser(self._target, reply)
        try:
            return parser.messages(records)
        except RecordError:  # one handle is unreadable: decode the others one by one
            return [message for record in records for message in self._readable(parser, record)]

    def _readable(self, parser: PopReplyParser, record: Record) -> Sequence[PoppedMessage]:
        """Build the message of a record; without a handle it is left out, and comes again."""
        try:
            return parser.messages([record])
        except RecordError as error:
            self._damaged(record.queue_offset, error)
            return ()

    def _is_wanted(self, message: PoppedMessage, tags: Container[str | None]) -> bool:
        """Whether its tag is accepted; otherwise acknowledge the message unseen."""
        if message.tag in tags:
            return True
        settle(message)
        return False

    async def _within_limit(self, messages: Sequence[PoppedMessage]) -> list[PoppedMessage]:
        """Give up messages over the retry limit: brokers without a limit return them as well."""
        limit = await self._acks.limit(self._target.broker)
        retryable = []
        for message in messages:
            if message.reconsume_times > limit:
                give_up(message)
            else:
                retryable.append(message)
        return retryable

    def _damaged(self, offset: int, error: RecordError) -> None:
        log.error(
            "%s at %s, offset %d cannot be read: %s",
            self._target.topic, self._target.broker, offset, error,
        )  # fmt: skip
