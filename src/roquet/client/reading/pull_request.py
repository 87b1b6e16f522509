"""Pull requests: subscription filters, and one pull of one queue."""

from collections.abc import Iterable

import msgspec

from roquet.client.config import ConsumerConfig
from roquet.client.connection.session import Session
from roquet.log_records import logger
from roquet.model.errors import CallRefused, RoquetError, UsageError
from roquet.model.flags import PullFlag
from roquet.model.queue import MessageQueue
from roquet.model.subscription import ALL, SQL92, Subscription
from roquet.rules import sql92
from roquet.rules.tag_filter import parse_tags
from roquet.wire.calls.bodies import CheckClientBody
from roquet.wire.calls.heartbeat import CheckSubscription
from roquet.wire.calls.pull import Pull, PullReply
from roquet.wire.fastjson import codec
from roquet.wire.java_hash import hash_code

log = logger(__name__)


class SubscriptionFilter(msgspec.Struct, frozen=True):
    """The messages of a topic that are subscribed to."""

    subscription: Subscription
    tags: frozenset[str] | None
    """The accepted tags; None when only the broker filters. Brokers compare hashes of tags, clients
    texts."""

    @classmethod
    def by_tags(cls, topic: str, expression: str, version: int) -> "SubscriptionFilter":
        """Filter by a tag expression like `TagA || TagB`; `version` grows with each change."""
        wanted = parse_tags(expression)
        names = sorted(wanted or ())
        subscription = Subscription(
            topic=topic,
            sub_string=expression,
            tags_set=names,
            code_set=[hash_code(name) for name in names],
            sub_version=version,
        )
        return cls(subscription, wanted)

    @classmethod
    def from_user(
        cls, topic: str, expression: str, sql: str | None, config: ConsumerConfig
    ) -> "SubscriptionFilter":
        """Filter by a user's tags or SQL expression; UsageError for both, or an invalid one."""
        version = config.clock.now_ms()
        if not isinstance(expression, str):
            raise UsageError(f"tags are one str, as 'new || paid', not {expression!r:.100}")
        if sql is None:
            return cls.by_tags(topic, expression, version)
        if expression != ALL:
            raise UsageError(f"topic {topic}: choose messages by tags or by sql, not by both")
        sql92.parse(sql, compatible=config.sql_compatibility)
        subscription = Subscription(
            topic=topic, sub_string=sql, sub_version=version, expression_type=SQL92
        )
        return cls(subscription, None)


class Puller:
    """Sends pull requests of one group."""

    def __init__(
        self, session: Session, config: ConsumerConfig, group: str, *, saves_progress: bool
    ) -> None:
        self.config = config
        self.saves_progress = saves_progress
        """Whether pulls commit offsets at the broker."""
        self._session = session
        self._group = group

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        message_filter: SubscriptionFilter,
        *,
        count: int,
        suspend_ms: int = 0,
        progress: int | None = None,
        topic_id: str | None = None,
    ) -> PullReply:
        """Pull messages from an offset on; the broker may wait up to `suspend_ms` for new ones.

        With a `topic_id` the broker refuses if the topic was deleted and created again.
        """
        wanted = message_filter.subscription
        flags = PullFlag.SUBSCRIPTION
        if suspend_ms:
            flags |= PullFlag.SUSPEND
        if progress:
            flags |= PullFlag.COMMIT_OFFSET
        call = Pull(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=flags.value,
            commit_offset=progress or 0,
            suspend_timeout_millis=suspend_ms,
            subscription=wanted.sub_string,
            sub_version=wanted.sub_version,
            expression_type=wanted.expression_type,
            max_msg_bytes=self.config.pull_bytes,
            topic_id=topic_id,
        )
        address = self._session.routes.leader(queue.broker_name)
        return await self._session.pool.call(address, call, self.config.pull_timeout_ms)

    def invalidate(self) -> None:
        """Refresh routes and heartbeats after a failed pull: either may be stale."""
        self._session.routes.invalidate()
        self._session.membership.trigger()


async def check_filters(
    session: Session, group: str, filters: Iterable[SubscriptionFilter]
) -> None:
    """Ask brokers whether they support the SQL filters; CallRefused when one does not.

    Brokers that cannot be reached are skipped. Tags need no check: every broker supports them.
    """
    for message_filter in filters:
        if message_filter.subscription.expression_type != SQL92:
            continue
        try:
            await _check(session, group, message_filter.subscription)
        except CallRefused:
            raise
        except RoquetError as error:
            log.warning(
                "group %s: no broker could be asked whether it supports the filter: %s",
                group,
                error,
            )


async def _check(session: Session, group: str, wanted: Subscription) -> None:
    if not (queues := await session.routes.find_readable(wanted.topic)):
        return
    body = CheckClientBody(
        client_id=session.identity.client_id, group=group, subscription_data=wanted
    )
    address = session.routes.leader(queues[0].broker_name)
    call = CheckSubscription(body=codec.dumps(body))
    await session.pool.call(address, call, session.config.timeout_ms)
