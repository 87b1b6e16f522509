"""PopConsumer: members share single messages, and no member owns a queue."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic

from roquet.client.arguments import SubscribedTopics, list_of_topics
from roquet.client.config import ConsumeFrom, ConsumerConfig, config_or_default
from roquet.client.connection.background import ErrorLogThrottle, Wakeup
from roquet.client.connection.routes import topic_missing
from roquet.client.consumer import Consumer
from roquet.client.operator.broker_requests import DirectPoppedMessage
from roquet.client.operator.consumer_health import HealthSource
from roquet.client.popping.acks import PopAcks
from roquet.client.popping.pop_batch import PoppedMessage, PopTarget
from roquet.client.popping.pop_loop import ANY_QUEUE, PopLoop
from roquet.client.popping.prefetch_buffer import PrefetchBuffer
from roquet.client.reading.pull_request import SubscriptionFilter, check_filters, subscribed_ms
from roquet.model.errors import ConfigError, RoquetError, UsageError
from roquet.model.message import V_co
from roquet.model.queue import MessageQueue
from roquet.model.subscription import ALL, ConsumeType, MessageModel
from roquet.net.clock import boottime
from roquet.rules.consumption.pop import COUNT_MAX
from roquet.rules.consumption.topic_patterns import TopicPattern
from roquet.wire.calls.admin.client_forwarding import PopInfo

SEARCH_MS: Final = 1_000
"""Pause between two searches for an unknown topic."""


class PopConsumer(Consumer[PoppedMessage[V_co]], Generic[V_co]):
    """A member of a group that takes messages from any queue, as many as it can handle.

        async with PopConsumer("127.0.0.1:9876", group="billing", topic="orders") as consumer:
            async for message in consumer:
                await charge(message.body)
                await message.ack()

    A slow member delays no other: what it does not take, others take. A message that is not
    acknowledged within `invisible_ms` comes again, to any member; `extend` adds time. Delivery is
    at least once, in no order; after its last retry a message is a dead letter. `decode` is as in
    PushConsumer.
    """

    _consume_type = ConsumeType.CONSUME_POP
    _saves_progress = False
    _message_kind = DirectPoppedMessage

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        topic: SubscribedTopics | None = None,
        tags: str = ALL,
        sql: str | None = None,
        config: ConsumerConfig | None = None,
        decode: Callable[[bytes], V_co] | None = None,
    ) -> None:
        config = config_or_default(ConsumerConfig, config)
        _check(config)
        super().__init__(namesrv, group, config, decode)
        self._buffer = PrefetchBuffer(config.clock, config.pop_count)
        self._inbox = self._buffer
        self._acks = PopAcks(self._session, config, self.group)
        self._pop_loops: dict[tuple[str, str], PopLoop] = {}
        """By topic and broker."""
        self._changed = Wakeup()
        """Set when a subscription or a route has changed."""
        self._throttle = ErrorLogThrottle(f"brokers of {self.group}")
        self._consumer_status.popped = self._popped
        for each in list_of_topics(topic):
            self.subscribe(each, tags, sql=sql)

    def subscribe(
        self, topic: str | TopicPattern, tags: str = ALL, *, sql: str | None = None
    ) -> None:
        """Subscribe to a topic: to all messages, or to those with one of some tags (`A || B`).

        `sql` filters by properties instead, and a compiled pattern subscribes to the topics that it
        matches in full, both as in PushConsumer.
        """
        self._check_if_open()
        self._subscribe(topic, tags, sql)

    def _use_filter(self, message_filter: SubscriptionFilter) -> None:
        self._filters[message_filter.topic] = message_filter
        self._stop_popping(message_filter.topic)
        if self.is_open:
            self._session.membership.trigger()
            self._changed.set()

    def _drop_filter(self, topic: str) -> None:
        self._filters.pop(topic, None)
        self._stop_popping(topic)
        if self.is_open:
            self._session.membership.trigger()

    def _check_batches(self, wait_ms: int) -> None:
        if wait_ms >= (invisible_ms := self._config.invisible_ms):
            raise UsageError(
                f"wait_ms: {wait_ms} is not less than invisible_ms, {invisible_ms}: messages would "
                "come again while they wait"
            )

    def assignment(self) -> Sequence[MessageQueue]:
        """The brokers that are popped, each as queue id -1: no member owns a queue."""
        return [MessageQueue(topic, broker, ANY_QUEUE) for topic, broker in sorted(self._pop_loops)]

    async def lag(self) -> Mapping[MessageQueue, int]:
        """Messages of each queue that the group has not taken, by the brokers' current offsets."""
        self._session.check()
        queues = [q for t in self._filters for q in self._session.routes.readable(t) or ()]
        return dict(zip(queues, await asyncio.gather(*map(self._lag, queues)), strict=True))

    def _health_sources(self) -> Sequence[HealthSource]:
        return list(self._pop_loops.values())

    def _progress_ms(self) -> Sequence[int]:
        return [] if self._acks.acked_ms is None else [self._acks.acked_ms]

    def _has_queues(self) -> bool:
        return bool(self._pop_loops)

    def _popped(self) -> Mapping[MessageQueue, PopInfo]:
        """The number of prefetched messages, reported to operators for each popped broker."""
        info = PopInfo(wait_ack_count=len(self._buffer))
        return dict.fromkeys(self.assignment(), info)

    async def _lag(self, queue: MessageQueue) -> int:
        begin = await self._offsets.committed(queue)
        if begin is None:
            begin = await self._offsets.min_offset(queue)
        return max(await self._offsets.max_offset(queue) - begin, 0)

    def pause(self, *queues: MessageQueue) -> None:
        """Stop taking messages until `resume`; prefetched ones are still handed out."""
        _check_all(queues)
        self._check_if_open()
        self._buffer.pause()

    def resume(self, *queues: MessageQueue) -> None:
        """Take messages again."""
        _check_all(queues)
        self._check_if_open()
        self._buffer.resume()

    async def _begin(self) -> None:
        await self._patterns.begin()
        await check_filters(self._session, self.group, self._filters.values())
        await self._take_start_offsets(is_start=True)
        self._session.routes.on_change(lambda _: self._changed.set())
        name = f"brokers of {self.group}"
        self._session.background.supervise(self._find_topics, name, self._config.clock)

    async def _settle(self) -> None:
        await self._acks.close(self._config.timeout_ms)

    async def _end(self) -> None:
        # Pops under way are awaited to the last moment: their messages are released.
        await self._acks.close(self._config.timeout_ms)
        await super()._end()

    async def _take_start_offsets(self, *, is_start: bool = False) -> None:
        await self._offsets.take_start_offsets(subscribed_ms(self._filters), is_start=is_start)

    async def _find_topics(self) -> None:
        """Pop topics as they are found, from where the group starts, for ever."""
        routes = self._session.routes
        while True:
            await self._take_start_offsets()
            self._update_pop_loops()
            unknown = [topic for topic in self._filters if routes.readable(topic) is None]
            for topic in unknown:
                try:
                    await routes.find_readable(topic)
                    if routes.readable(topic) is None:
                        self._throttle.report(topic_missing(topic))
                except RoquetError as error:
                    self._throttle.report(error)
            if unknown and all(routes.readable(topic) is None for topic in unknown):
                await self._config.clock.sleep(SEARCH_MS)
            elif not unknown:
                self._throttle.clear()
                await self._changed.wait(self._config.route_period_ms)

    def _update_pop_loops(self) -> None:
        """Start and stop pop loops, so that there is one for each topic and broker."""
        wanted = {
            (topic, queue.broker_name)
            for topic in self._filters
            for queue in self._session.routes.readable(topic) or ()
        }
        for key in [key for key in self._pop_loops if key not in wanted]:
            self._pop_loops.pop(key).leave()
        for topic, broker in wanted - self._pop_loops.keys():
            elapsed_ms = boottime(self._config.clock)
            target = PopTarget(broker, topic, self.group, self._acks, elapsed_ms, self._messages)
            pop_loop = PopLoop(
                target, self._filters[topic], self._buffer, self._session, self._config, self._acks,
                starts_first=self._offsets.is_new_first(topic),
            )  # fmt: skip
            pop_loop.start(self._session.background)
            self._pop_loops[topic, broker] = pop_loop

    def _stop_popping(self, topic: str) -> None:
        for key in [key for key in self._pop_loops if key[0] == topic]:
            self._pop_loops.pop(key).leave()


def _check(config: ConsumerConfig) -> None:
    if config.ordered:
        raise ConfigError("ordered: a PopConsumer shares messages in no order; use a PushConsumer")
    if config.message_model is MessageModel.BROADCASTING:
        raise ConfigError("message_model: a PopConsumer shares messages, it does not broadcast")
    if config.consume_from is ConsumeFrom.TIMESTAMP:
        raise ConfigError("consume_from: a PopConsumer starts at FIRST or LAST, not at a TIMESTAMP")
    if config.invisible_ms < 1:
        raise ConfigError(f"invisible_ms: {config.invisible_ms} is not greater than 0")
    if not 1 <= config.pop_count <= COUNT_MAX:
        raise ConfigError(f"pop_count: {config.pop_count}, 1 to {COUNT_MAX} are allowed")


def _check_all(queues: Sequence[MessageQueue]) -> None:
    if queues:
        raise UsageError("a PopConsumer owns no queues: pause() and resume() take all or nothing")
