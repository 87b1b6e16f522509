"""Consumer: fetch, next, messages and run, and what else all consumers share."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Final, Generic, Self

from roquet.client.arguments import (
    check_function,
    check_number,
    check_pattern,
    check_time,
    check_timeout,
    is_coroutine_function,
)
from roquet.client.config import ConsumerConfig
from roquet.client.connection import open_consumers
from roquet.client.connection.background import cancel_and_wait
from roquet.client.connection.chosen_pauses import ChosenPauses
from roquet.client.connection.session import Session
from roquet.client.metrics import WAITING, MetricSample
from roquet.client.operator.broker_requests import BrokerRequests, DirectConsumer
from roquet.client.operator.consumer_health import HealthSource, consumer_health
from roquet.client.operator.running_info import ConsumerStatus
from roquet.client.reading.decoding import (
    READ_BODY,
    READ_VALUE,
    BodyDecoder,
    DecodedInbox,
    DecodeFunction,
    read_for_handler,
)
from roquet.client.reading.graceful_stop import GracefulStop
from roquet.client.reading.handler_contexts import in_contexts
from roquet.client.reading.handler_pool import (
    HandlerPool,
    MessageHandler,
    create_pool,
)
from roquet.client.reading.inbox import Inbox
from roquet.client.reading.message import M, MessageContext, ReceivedMessage
from roquet.client.reading.message_batch import (
    BATCH_SIZE,
    BATCH_WAIT_MS,
    BatchHandler,
    BatchInbox,
    handler_of_batch,
    handler_of_one,
)
from roquet.client.reading.offsets import GroupOffsets
from roquet.client.reading.pull_request import Puller, SubscriptionFilter
from roquet.client.reading.queue_reader import QueueReader, ReaderContext
from roquet.client.reading.request_reply import ReplySender
from roquet.client.reading.retry import FailurePolicy, RetryLocally, RetrySender
from roquet.client.reading.topic_patterns import TopicPatterns
from roquet.client.rebalance.allocation import check_consumption, strategy_name
from roquet.client.rebalance.assigned_queues import AssignedQueues
from roquet.client.rebalance.listeners import RebalanceListener
from roquet.client.rebalance.rebalancer import Rebalancer
from roquet.client.tracing import open_tracer
from roquet.client.tracing.observed_handler import observed
from roquet.log_records import logger
from roquet.model.errors import CallRefused, UsageError
from roquet.model.message import V_co
from roquet.model.names import can_users_join, check_group, check_topic, is_retry
from roquet.model.namespaces import unwrap, wrap
from roquet.model.queue import MessageQueue
from roquet.model.subscription import ConsumerData, ConsumeType, HeartbeatData, MessageModel
from roquet.net.clock import every
from roquet.rules.consumption.topic_patterns import TopicPattern
from roquet.rules.health import ConsumerHealth

log = logger(__name__)

FETCH_TIMEOUT_MS: Final = 5_000
"""Default timeout of a fetch, that of Java's poll."""

STUCK_MS: Final = 60_000
"""Time after which a handler at work on one message counts as stuck for `health`."""


class Consumer(Generic[M]):
    """A member of a group that reads queues and hands out their messages.

    `async for` over the consumer iterates without end, `next` returns one message, `fetch` a list,
    `run` calls a function with each, and `run_batch` with many. A message that is not acknowledged
    holds back its queue's offset and comes again. `M` is the class of the messages:
    ReceivedMessage, or PoppedMessage in PopConsumer.
    """

    _consume_type: ConsumeType
    _saves_progress: bool
    _has_dead_letters = True
    """Whether messages that cannot be decoded have a place to go."""
    _message_kind: type[ReceivedMessage[Any]] = ReceivedMessage
    _own_group: str | None = None
    """The system group that this consumer belongs to; other consumers may not use one."""

    def __init__(
        self,
        namesrv: str | Sequence[str] | None,
        group: str,
        config: ConsumerConfig,
        decode: DecodeFunction | None = None,
    ) -> None:
        group = wrap(config.namespace, group)
        if not can_users_join(check_group(group)) and group != self._own_group:
            raise UsageError(f"group {group} is the system's own: choose another name")
        check_consumption(config)
        self.group = group
        self._config = config
        self._decoder = None if decode is None else BodyDecoder(decode)
        self._session = Session(namesrv, config)
        self._session.open_spans(unwrap(config.namespace, group))
        self._is_broadcast = config.message_model is MessageModel.BROADCASTING
        self._offsets = self._find_offsets()
        saves = self._saves_progress and not self._is_broadcast
        self._puller = Puller(self._session, config, group, saves_progress=saves)
        inbox: Inbox[Any] = Inbox()
        self._inbox: Inbox[M] = inbox
        self._failures = self._find_failures()
        replies = ReplySender(self._session, config, group)
        self._messages = MessageContext(
            config.namespace, self._decoder, replies, ChosenPauses(config.backoff)
        )
        context = ReaderContext(
            inbox, self._puller, self._failures, self._session.background,
            spans=self._session.spans, messages=self._messages,
        )  # fmt: skip
        self._assigned_queues = AssignedQueues(context, self._offsets, config)
        self._filters: dict[str, SubscriptionFilter] = {}
        self._patterns = TopicPatterns(
            self._session, self._offsets, group, self._filters, self._use_filter, self._drop_filter
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tracer = open_tracer(self._session, config, group)
        self._graceful_stop = GracefulStop(config, self.stop)
        self._was_read = False
        self._pool: HandlerPool[Any] | None = None
        """Calls the handler of `run`, while that runs."""
        self._rebalancer = Rebalancer(
            self._session, config, group, self._assigned_queues, self._offsets, self._filters,
            commits=self._saves_progress,
        )  # fmt: skip
        self._rebalancer.on_members_changed = self._patterns.wakeup.set
        self._direct_consumer = DirectConsumer(config, self._message_kind, self._messages)
        self._consumer_status = ConsumerStatus(
            self._session, self._assigned_queues, context.rates, self._data
        )
        BrokerRequests(
            self._session, group, self._rebalancer, self._direct_consumer, self._consumer_status
        )

    def _find_offsets(self) -> GroupOffsets:
        commits = self._saves_progress or self._consume_type is ConsumeType.CONSUME_POP
        if not self._is_broadcast:
            return GroupOffsets(self._session, self._config, self.group, commits_starts=commits)
        # Not at the top: few groups broadcast, and what files and locks need takes long to import.
        from roquet.client.reading.local_offsets import LocalOffsets, offsets_folder

        folder = offsets_folder(self._config, os.environ)
        return LocalOffsets(self._session, self._config, self.group, folder, commits_starts=commits)

    @cached_property
    def _reads(self) -> Inbox[M]:
        """The inbox for reads without a handler, which get decoded messages."""
        if self._decoder is None:
            return self._inbox
        has_dead_letters = self._has_dead_letters and not self._is_broadcast
        return DecodedInbox(self._inbox, self._decoder, has_dead_letters=has_dead_letters)

    def _find_failures(self) -> FailurePolicy:
        return RetryLocally(RetrySender(self._session, self._config, self.group))

    @property
    def client_id(self) -> str:
        """The id by which brokers know this member."""
        return self._session.identity.client_id

    @property
    def name_servers(self) -> Sequence[str]:
        """The name servers' addresses."""
        return self._session.addresses

    @property
    def subscriptions(self) -> Mapping[str, str]:
        """The expression of each subscribed topic."""
        return {
            unwrap(self._config.namespace, topic): message_filter.subscription.sub_string
            for topic, message_filter in list(self._filters.items())  # used by other threads, too
            if not is_retry(topic)
        }

    @property
    def undecodable(self) -> int:
        """Number of bodies that `decode` could not read; a message counts at each of its tries."""
        return 0 if self._decoder is None else self._decoder.undecodable

    def _check_if_open(self) -> None:
        """Raise UsageError when an open consumer is used outside of its process or event loop."""
        if self._session.is_open:
            self._session.check_owner()

    def _full_name(self, topic: str) -> str:
        return wrap(self._config.namespace, topic)

    def _filter(self, topic: str, tags: str, sql: str | None) -> SubscriptionFilter:
        """The filter of a user's subscription; UsageError when that cannot be one."""
        topic = check_topic(self._full_name(topic))
        return SubscriptionFilter.from_user(topic, tags, sql, self._config)

    def _subscribe(self, topic: str | TopicPattern, tags: str, sql: str | None) -> None:
        """Subscribe to a topic, or to those that a pattern matches, now and later."""
        if not isinstance(topic, re.Pattern):
            message_filter = self._filter(topic, tags, sql)
            self._patterns.release(message_filter.topic)
            self._use_filter(message_filter)
            return
        pattern = check_pattern(topic)
        self._patterns.add(pattern, SubscriptionFilter.from_user("", tags, sql, self._config))
        if self.is_open:
            self._patterns.follow()

    def unsubscribe(self, topic: str | TopicPattern) -> None:
        """End the subscription to a topic, or to a pattern and its topics."""
        self._check_if_open()
        if isinstance(topic, re.Pattern):
            self._patterns.remove(topic)
            return
        name = check_topic(self._full_name(topic))
        if self._patterns.has_joined(name):
            raise UsageError(f"topic {topic} is subscribed by a pattern: unsubscribe that")
        self._drop_filter(name)

    def _use_filter(self, message_filter: SubscriptionFilter) -> None:
        """Subscribe to one topic, or change its filter."""
        raise NotImplementedError

    def _drop_filter(self, topic: str) -> None:
        """End the subscription to one topic."""
        raise NotImplementedError

    def assignment(self) -> Sequence[MessageQueue]:
        """The queues assigned to this member now, without those of the group's retry topic."""
        held = list(self._assigned_queues.readers)  # one step: used by other threads, too
        return sorted(queue for queue in held if not is_retry(queue.topic))

    def health(self, *, stuck_ms: int = STUCK_MS) -> ConsumerHealth:
        """Whether the consumer is ready, and why not: at once, without asking anybody.

        Handlers count as stuck that have been seen at work on one message for `stuck_ms`.
        """
        check_number(stuck_ms, "stuck_ms")
        return consumer_health(
            self._session,
            self._health_sources(),
            self._pool,
            waiting=len(self._inbox),
            has_queues=self._has_queues(),
            handled_ms=self._progress_ms(),
            stuck_ms=stuck_ms,
        )

    def _samples(self) -> Iterator[MetricSample]:
        yield from self._consumer_status.samples()
        yield MetricSample(WAITING, (self.group,), len(self._inbox))

    def _health_sources(self) -> Sequence[HealthSource]:
        return list(self._assigned_queues.readers.values())

    def _progress_ms(self) -> Sequence[int]:
        """Times at which handling has made progress."""
        readers = list(self._assigned_queues.readers.values())
        return [reader.observe_progress() for reader in readers]

    def _has_queues(self) -> bool:
        return self._rebalancer.has_succeeded

    async def lag(self) -> Mapping[MessageQueue, int]:
        """Unhandled messages of each assigned queue, by the brokers' current offsets."""
        self._session.check()
        return await self._assigned_queues.lag(self.assignment())

    async def start(self) -> None:
        """Join the group; `async with` does this.

        A PushConsumer raises CallRefused when the brokers do not support a filter expression, or
        the name server does not list the topics for a pattern, and ConfigError when the brokers do
        not support the strategy.
        """
        self._session.start(self._data)
        self._loop = asyncio.get_running_loop()
        self._graceful_stop.open()
        self._session.membership.on_denied = self._access_denied
        self._session.background.on_killed = self._task_killed
        try:
            open_consumers.register(self)
            self._offsets.open()
            if self._config.metrics is not None:
                self._config.metrics.watch(self._samples)
            names = ", ".join(self._session.addresses)
            log.info("%s joins group %s, by name servers %s", self.client_id, self.group, names)
            clock, supervise = self._config.clock, self._session.background.supervise
            supervise(self._consumer_status.sample_forever, f"rates of {self.group}", clock)
            if self._tracer is not None:
                self._tracer.start()
            if self._saves_progress:
                supervise(self._keep_saving, f"progress of {self.group}", clock)
            await self._begin()
        except BaseException:
            await self._end()
            raise

    async def _begin(self) -> None:
        """Begin to read what was subscribed before the start."""

    @property
    def is_open(self) -> bool:
        """True from the start until the close, unless all background tasks have ended."""
        return self._session.is_open and not self._session.background.is_idle

    def stop(self) -> None:
        """Stop handing out messages: `run` and `messages` end. A handler may call this."""
        if self._loop is None or _is_running_here(self._loop):
            self._inbox.close()
        else:  # a plain `def` handler, in its thread
            with suppress(RuntimeError):  # the loop is closed: nothing is left to stop
                self._loop.call_soon_threadsafe(self._inbox.close)

    def _finish(self) -> None:
        """Stop, and give handlers `close_timeout_ms` to end; called on the event loop's thread."""
        self._graceful_stop.finish()

    async def close(self) -> None:
        """Leave the group in good order.

        No new handler starts, running handlers may end, offsets are committed, and the brokers are
        told: other members continue at the committed offsets. A PopConsumer gives messages whose
        handlers have not started to others at once.
        """
        if not self._session.is_open:
            return
        self._session.check_owner()
        self._graceful_stop.is_closing = True
        await self._patterns.stop()
        await self._stop_assigning()
        self.stop()
        try:
            await self._graceful_stop.finish_running()
            await self._settle()
            assigned = list(self._assigned_queues.readers)
            await self._assigned_queues.release(assigned, save=self._saves_progress)
            await self._rebalancer.release_all(assigned)
            if self._tracer is not None:
                await self._tracer.close()
            await self._session.membership.leave(consumer=self.group)
            log.info("%s has left group %s", self.client_id, self.group)
        finally:
            await self._end()

    async def _stop_assigning(self) -> None:
        """End the rebalance, before a close releases the queues."""

    async def _settle(self) -> None:
        """Settle the messages whose handlers have ended."""
        await self._assigned_queues.settled(self._config.close_timeout_ms)

    def _access_denied(self, error: CallRefused) -> None:
        log.error("group %s: no broker grants access: %s", self.group, error)
        self._fail_reads(error)

    def _task_killed(self, name: str) -> None:
        if not self._graceful_stop.is_closing:
            error = UsageError(
                f"a task of this consumer ({name}) was cancelled by other code, as by a framework "
                "that cancels all tasks: it reads nothing more, make a new one"
            )
            if all(task.cancelling() for task in asyncio.all_tasks()):
                error = UsageError("asyncio.run ended before close(): use `async with`")
            log.error("group %s: %s", self.group, error)
            self._fail_reads(error)

    def _fail_reads(self, error: Exception) -> None:
        """Make all reads raise, and stop all background tasks."""
        self._session.fault = error
        self._inbox.fail(error)
        self._session.background.cancel()

    async def _end(self) -> None:
        open_consumers.unregister(self)
        if self._config.metrics is not None:
            self._config.metrics.unwatch(self._samples)
        self._offsets.close()
        await self._session.close()
        self._graceful_stop.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def next(self, timeout_ms: int | None = None) -> M | None:
        """Return the next message; None after the timeout, or when the consumer is closed."""
        if (message := await self._next(timeout_ms)) is None:
            self._graceful_stop.signals.note_empty_read()
        return message

    def _begin_reading(self) -> None:
        """Check that messages may be read here; warn at the first read when none can come."""
        self._session.check()
        self._graceful_stop.signals.note_reader()
        if self._was_read:
            return
        self._was_read = True
        if not self.subscriptions and not self._patterns:
            log.warning(
                "group %s: no topic is subscribed, so no message comes: give `topic=`, or call"
                " `subscribe` (a PullConsumer may `assign` queues)", self.group,
            )  # fmt: skip

    async def _next(self, timeout_ms: int | None) -> M | None:
        check_timeout(timeout_ms)
        self._begin_reading()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                return await self._reads.take()
        except TimeoutError:
            return None

    async def fetch(self, count: int, timeout_ms: int = FETCH_TIMEOUT_MS) -> Sequence[M]:
        """Return up to `count` messages; fewer after the timeout."""
        self._session.check()
        check_number(count, "count")
        check_timeout(timeout_ms)
        clock = self._config.clock
        deadline_ms = clock.monotonic_ms() + timeout_ms
        messages: list[M] = []
        try:
            while len(messages) < count:
                left_ms = max(deadline_ms - clock.monotonic_ms(), 0)
                message = self._reads.pop() or await self._next(left_ms)
                if message is None:
                    break
                messages.append(message)
        except BaseException:
            self._inbox.put_back(messages)
            raise
        if not messages:
            self._graceful_stop.signals.note_empty_read()
        return messages

    def __aiter__(self) -> AsyncIterator[M]:
        """Iterate as `messages` does."""
        return self.messages()

    async def messages(self) -> AsyncIterator[M]:
        """Iterate over messages until `stop`, `close`, SIGTERM or Ctrl-C."""
        self._begin_reading()
        while (message := self._reads.pop() or await self._reads.take()) is not None:
            yield message
        self._graceful_stop.signals.raise_if_interrupted()

    async def run(self, handler: MessageHandler[M]) -> None:
        """Call a function with every message until `stop`, `close`, SIGTERM or Ctrl-C.

        When the function returns, the message is acknowledged; when it raises, the message comes
        again after a pause. An `async def` runs on the event loop, a plain `def` in threads.
        Running handlers end before `run` returns, within `close_timeout_ms` after a signal. After
        Ctrl-C it raises KeyboardInterrupt.
        """
        check_function(handler, "a handler", "the message")
        await self._run(in_contexts(handler, self._config.around))

    async def run_batch(
        self, handler: BatchHandler[M], *, size: int = BATCH_SIZE, wait_ms: int = BATCH_WAIT_MS
    ) -> None:
        """Call a function with up to `size` messages at a time until `stop`, as `run` does.

        A batch that is not full is handled `wait_ms` after its first message came. A return
        acknowledges its messages, an exception fails them all, but for those that the function has
        settled itself: `await message.nack()` tells one apart. `concurrency` batches are handled at
        the same time. Raises UsageError with `ordered`, which hands out single messages.
        """
        check_function(handler, "a batch handler", "the messages")
        within = in_contexts(handler, self._config.around)
        batches = partial(BatchInbox[M], size=size, wait_ms=wait_ms)
        await self._run(handler_of_batch(within), batches)

    async def _run(
        self,
        handler: MessageHandler[Any],
        batches: Callable[[Inbox[M]], BatchInbox[M]] | None = None,
    ) -> None:
        """Call a handler with messages, or with the batches of them, until a stop."""
        self._begin_reading()
        is_async, config = is_coroutine_function(handler), self._config
        inbox: Inbox[Any] = self._inbox
        direct = handler
        if batches is not None:
            inbox, direct = (taken := batches(inbox)), handler_of_one(handler)
            self._check_batches(taken.wait_ms)
        if self._decoder is not None or batches is not None:
            read = READ_BODY if self._decoder is None else READ_VALUE
            handler, direct = read_for_handler(handler, read), read_for_handler(direct, read)
        handler = observed(handler, self._tracer, self._session.spans)
        if config.metrics is not None:
            from roquet.client.reading.handler_times import timed  # few programs need it

            handler = timed(handler, config.metrics, self.group, config.clock)
        self._pool = pool = create_pool(handler, inbox, config, is_async=is_async)
        task = asyncio.create_task(pool.run(), name=f"handlers of {self.group}")
        self._direct_consumer.use_handler(direct, task)
        try:
            await self._graceful_stop.wait_for(task)
        finally:
            self._pool = None

    def _check_batches(self, wait_ms: int) -> None:
        """Raise UsageError unless messages can wait so long for others of their batch."""
        del wait_ms  # only popped messages have a limit
        if self._config.ordered:
            raise UsageError("an ordered consumer hands out one message at a time: use `run`")

    # Assigned queues.

    def pause(self, *queues: MessageQueue) -> None:
        """Stop handing out messages of some queues, or of all, until `resume`."""
        for reader in self._readers_of(queues):
            reader.pause()

    def resume(self, *queues: MessageQueue) -> None:
        """Hand out messages of some queues again, or of all."""
        for reader in self._readers_of(queues):
            reader.resume()

    def paused(self) -> Sequence[MessageQueue]:
        """The paused queues."""
        return sorted(q for q, reader in self._assigned_queues.readers.items() if reader.is_paused)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Read an assigned queue from an offset on."""
        self._session.check()
        check_number(offset, "offset")
        reader = self._assigned_queues.reader(queue)
        if (message_filter := self._filters.get(queue.topic)) is None:
            raise UsageError(
                f"topic {queue.topic} is not subscribed any more: {queue} is being released"
            )
        self._assigned_queues.seek(reader.queue, offset, message_filter)

    async def seek_to_time(self, queue: MessageQueue, stored: int | datetime) -> None:
        """Read an assigned queue from the first message stored at or after a time.

        The time is a datetime with a time zone, or ms since 1970.
        """
        self._assigned_queues.reader(queue)
        self.seek(queue, await self._offsets.by_time(queue, check_time(stored, "stored")))

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Read an assigned queue from the oldest message that the broker still has."""
        self._assigned_queues.reader(queue)
        self.seek(queue, await self._offsets.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Read an assigned queue from its end: only messages stored from now on."""
        self._assigned_queues.reader(queue)
        self.seek(queue, await self._offsets.max_offset(queue))

    def _readers_of(self, queues: Sequence[MessageQueue]) -> Sequence[QueueReader]:
        self._session.check()
        if not queues:
            return list(self._assigned_queues.readers.values())
        return [self._assigned_queues.reader(queue) for queue in queues]

    async def _keep_saving(self) -> None:
        step = self._assigned_queues.save
        await every(self._config.save_period_ms, lambda _: step(), self._config.clock)

    def _strategy_name(self) -> str | None:
        """The allocation strategy to tell operators; None when queues are not shared."""
        return None

    def _data(self) -> HeartbeatData:
        subscriptions = [message_filter.subscription for message_filter in self._filters.values()]
        data = ConsumerData(
            group_name=self.group,
            consume_type=self._consume_type,
            message_model=self._config.message_model,
            consume_from_where=self._config.consume_from.wire_value,
            subscription_data_set=subscriptions,
            strategy=self._strategy_name(),
        )
        return HeartbeatData(client_id=self.client_id, consumer_data_set=[data])


class RebalancedConsumer(Consumer[ReceivedMessage[V_co]], Generic[V_co]):
    """A consumer whose queues are allocated by its group's rebalance."""

    _is_sharing = True
    """Whether the group shares its queues: not before the first subscription of a PullConsumer."""
    _rebalancing: asyncio.Task[None] | None = None

    def _use_filter(self, message_filter: SubscriptionFilter) -> None:
        self._filters[message_filter.topic] = message_filter
        self._assigned_queues.change(message_filter)
        self._subscriptions_changed()

    def _drop_filter(self, topic: str) -> None:
        self._filters.pop(topic, None)
        self._subscriptions_changed()

    def _subscriptions_changed(self) -> None:
        if self._session.is_open and self._is_sharing:
            self._session.membership.trigger()
            self._rebalancer.trigger()

    async def _stop_assigning(self) -> None:
        if self._rebalancing is not None:
            await cancel_and_wait(self._rebalancing)

    def _strategy_name(self) -> str | None:
        is_shared = self._is_sharing and not self._is_broadcast
        return strategy_name(self._config.strategy) if is_shared else None

    def on_assigned(self, listener: RebalanceListener) -> None:
        """Call a function with newly assigned queues, before they are read."""
        self._rebalancer.listeners.assigned.append(
            check_function(listener, "a listener", "the queues")
        )

    def on_revoked(self, listener: RebalanceListener) -> None:
        """Call a function with queues that go to another member, after their offsets are committed.

        A close calls it as well, with the queues held to the end.
        """
        self._rebalancer.listeners.revoked.append(
            check_function(listener, "a listener", "the queues")
        )

    def on_lost(self, listener: RebalanceListener) -> None:
        """Call a function with lost queues, which another member may read already.

        Only ordered queues are lost, when their lock could not be renewed.
        """
        self._rebalancer.listeners.lost.append(check_function(listener, "a listener", "the queues"))


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
