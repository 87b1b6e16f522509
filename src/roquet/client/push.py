"""PushConsumer: queues are assigned by rebalance, and messages go to your function."""

from collections.abc import Callable, Sequence

from roquet.client.arguments import SubscribedTopics, list_of_topics
from roquet.client.config import ConsumerConfig, config_or_default
from roquet.client.consumer import RebalancedConsumer
from roquet.client.reading.pull_request import SubscriptionFilter, check_filters
from roquet.client.reading.retry import (
    FailurePolicy,
    RetryByBroker,
    RetryOrdered,
    RetrySender,
    drop_failed,
)
from roquet.model.message import V_co
from roquet.model.names import retry_topic
from roquet.model.subscription import ALL, ConsumeType
from roquet.rules.consumption.topic_patterns import TopicPattern


class PushConsumer(RebalancedConsumer[V_co]):
    """A member of a group that shares all queues of its topics.

        async with PushConsumer("127.0.0.1:9876", group="billing", topic="orders") as consumer:
            await consumer.run(charge)

    At-least-once: a message that was not acknowledged when its member died, or when its queue moved
    to another member, is handled again there.

    `decode` makes the `value` of each message, before anybody gets it. A message with a body that
    it cannot read goes to the dead letters at once, with the reason.
    """

    _consume_type = ConsumeType.CONSUME_PASSIVELY
    _saves_progress = True

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
        super().__init__(namesrv, group, config, decode)
        if not self._is_broadcast:
            retry = retry_topic(self.group)
            self._filters[retry] = SubscriptionFilter.by_tags(retry, ALL, config.clock.now_ms())
        for each in list_of_topics(topic):
            self.subscribe(each, tags, sql=sql)

    def _find_failures(self) -> FailurePolicy:
        config = self._config
        back = None if self._is_broadcast else RetrySender(self._session, config, self.group)
        if config.ordered:
            return RetryOrdered(config, back)
        return drop_failed if back is None else RetryByBroker(back, self._sent_back)

    def subscribe(
        self, topic: str | TopicPattern, tags: str = ALL, *, sql: str | None = None
    ) -> None:
        """Subscribe to a topic: to all messages, or to those with one of some tags (`A || B`).

        `sql` filters by properties instead: `amount > 5 AND region IN ('eu', 'us')`. Raises
        UsageError with the position of a fault in the expression. A compiled pattern, as
        `re.compile("orders-.*")`, subscribes to the topics that it matches in full, now and later.
        """
        self._check_if_open()
        self._subscribe(topic, tags, sql)

    async def _begin(self) -> None:
        await self._patterns.begin()
        await check_filters(self._session, self.group, self._filters.values())
        self._rebalancing = await self._rebalancer.start()

    async def rebalance(self) -> bool:
        """Rebalance once now; return whether it succeeded."""
        self._session.check()
        return await self._rebalancer.rebalance()

    def _sent_back(self) -> None:
        """Trigger a rebalance after a send-back if the retry topic is not read yet."""
        if self._session.routes.readable(retry_topic(self.group)) is None:
            self._rebalancer.trigger()
