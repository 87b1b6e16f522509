"""Pull requests: subscription filters, and one pull of one queue."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from roquet.client.config import ConsumerConfig
from roquet.client.connection.session import Session
from roquet.log_records import logger
from roquet.model.errors import CallError, CallRefused, ConnectFailed, RoquetError, UsageError
from roquet.model.flags import PullFlag
from roquet.model.queue import MessageQueue
from roquet.model.route import MASTER_ID
from roquet.model.subscription import ALL, SQL92, Subscription
from roquet.rules.replication.read_from import (
    PulledOffsets,
    ReadSource,
    after_answer,
    after_failure,
    has_messages,
    next_broker_id,
    usable_ids,
)
from roquet.rules.tag_filter import parse_tags
from roquet.wire.calls.bodies import CheckClientBody
from roquet.wire.calls.heartbeat import CheckSubscription
from roquet.wire.calls.pull import Pull, PullReply
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.java_hash import hash_code

log = logger(__name__)

REPLICA_PAUSE_MS: Final = 200
"""Pause after a pull that may wait, when a replica had nothing and no master could be asked."""

UNKNOWN: Final = ReadSource()
"""The source of a queue that has not been read yet."""


class SubscriptionFilter(msgspec.Struct, frozen=True):
    """The messages of a topic that are subscribed to."""

    subscription: Subscription
    tags: frozenset[str] | None
    """The accepted tags; None when only the broker filters. Brokers compare hashes of tags, clients
    texts."""

    @property
    def topic(self) -> str:
        """The topic whose messages are subscribed to."""
        return self.subscription.topic

    def for_topic(self, topic: str) -> "SubscriptionFilter":
        """The filter of another topic."""
        return SubscriptionFilter(
            msgspec.structs.replace(self.subscription, topic=topic), self.tags
        )

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
        if not isinstance(sql, str):
            raise UsageError(f"sql is one str, as 'amount > 5', not {sql!r:.100}")
        from roquet.rules import sql92  # here: most consumers choose by tags, or take all

        sql92.parse(sql, compatible=config.sql_compatibility)
        subscription = Subscription(
            topic=topic, sub_string=sql, sub_version=version, expression_type=SQL92
        )
        return cls(subscription, None)


def subscribed_ms(filters: Mapping[str, SubscriptionFilter]) -> Mapping[str, int]:
    """When each topic's filter was made."""
    return {topic: each.subscription.sub_version for topic, each in filters.items()}


class PulledFrom(msgspec.Struct, frozen=True):
    """A reply to a pull, and the broker that gave it."""

    reply: PullReply
    broker_id: int | None
    """None if only replicas answered, and none of them has messages from that offset on."""


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
        self._sources: dict[MessageQueue, ReadSource] = {}

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
    ) -> PulledFrom:
        """Pull messages from an offset on; the broker may wait up to `suspend_ms` for new ones.

        Each broker of the name is asked once, until the master answers or a replica has messages;
        the first failure is raised when none does. With a `topic_id` brokers refuse if the topic
        was deleted and created again.
        """
        call = self._call(queue, offset, message_filter, count, topic_id)
        addresses = self._session.routes.addresses(queue.broker_name)
        left = list(usable_ids(self._source(queue), addresses, self.config.clock.monotonic_ms()))
        failure: CallError | None = None
        lacking: PullReply | None = None
        while (broker_id := self._next_broker_id(queue, left)) is not None:
            left.remove(broker_id)
            wait_ms = 0 if MASTER_ID in left else suspend_ms  # replicas may be behind: do not wait
            saved = progress if broker_id == MASTER_ID else None
            try:
                reply = await self._session.pool.call(
                    addresses[broker_id],
                    _with_options(call, wait_ms, saved),
                    self.config.pull_timeout_ms,
                )
            except CallError as error:
                if broker_id == MASTER_ID and isinstance(error, CallRefused):
                    raise
                failure = failure or error
                self._note_failure(queue, broker_id, error)
                continue
            if broker_id == MASTER_ID or _is_of_use(reply, offset):
                self._sources[queue] = after_answer(
                    self._source(queue), broker_id, reply.suggest_which_broker_id
                )
                return PulledFrom(reply, broker_id)
            lacking = msgspec.structs.replace(
                reply, code=ResponseCode.PULL_NOT_FOUND, next_begin_offset=offset, body=b""
            )
            self._avoid(queue, broker_id)
        if lacking is not None:
            await self.config.clock.sleep(min(suspend_ms, REPLICA_PAUSE_MS))
            return PulledFrom(lacking, None)
        raise failure or ConnectFailed(f"no address of broker {queue.broker_name} is known")

    def _source(self, queue: MessageQueue) -> ReadSource:
        return self._sources.get(queue, UNKNOWN)

    def _next_broker_id(self, queue: MessageQueue, left: Sequence[int]) -> int | None:
        return next_broker_id(self.config.read_from, self._source(queue), left, queue.queue_id)

    def _note_failure(self, queue: MessageQueue, broker_id: int, error: CallError) -> None:
        log.debug("%s at broker id %d: %s", queue, broker_id, error)
        self._avoid(queue, broker_id)
        if not isinstance(error, CallRefused):
            self.invalidate()

    def _avoid(self, queue: MessageQueue, broker_id: int) -> None:
        now_ms = self.config.clock.monotonic_ms()
        self._sources[queue] = after_failure(self._source(queue), broker_id, now_ms)

    def _call(
        self,
        queue: MessageQueue,
        offset: int,
        message_filter: SubscriptionFilter,
        count: int,
        topic_id: str | None,
    ) -> Pull:
        """A pull that commits nothing and does not wait."""
        wanted = message_filter.subscription
        return Pull(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=PullFlag.SUBSCRIPTION.value,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=wanted.sub_string,
            sub_version=wanted.sub_version,
            expression_type=wanted.expression_type,
            max_msg_bytes=self.config.pull_bytes,
            topic_id=topic_id,
        )

    def invalidate(self) -> None:
        """Refresh routes and heartbeats after a failed pull: either may be stale."""
        self._session.routes.invalidate()
        self._session.membership.trigger()


def _with_options(call: Pull, suspend_ms: int, progress: int | None) -> Pull:
    """The call with a time to wait for messages, and an offset to commit."""
    flags = PullFlag(call.sys_flag)
    if suspend_ms:
        flags |= PullFlag.SUSPEND
    if progress:
        flags |= PullFlag.COMMIT_OFFSET
    return msgspec.structs.replace(
        call, sys_flag=flags.value, commit_offset=progress or 0, suspend_timeout_millis=suspend_ms
    )


def _is_of_use(reply: PullReply, offset: int) -> bool:
    """Whether a replica has messages from the offset on."""
    offsets = PulledOffsets(
        asked=offset, next=reply.next_begin_offset, first=reply.min_offset, end=reply.max_offset
    )
    return has_messages(reply.code, offsets)


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
    address = session.routes.any_member(queues[0].broker_name)
    call = CheckSubscription(body=codec.dumps(body))
    await session.pool.call(address, call, session.config.timeout_ms)
