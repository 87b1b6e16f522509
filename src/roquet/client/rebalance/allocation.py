"""Allocation: the queues of a topic that are this member's, computed here or by a broker."""

import asyncio
from collections.abc import Sequence
from typing import Final

from roquet.client.config import ConsumerConfig
from roquet.client.connection.routes import topic_missing
from roquet.client.connection.session import Session
from roquet.log_records import logger
from roquet.model.errors import CallError, CallRefused, ConfigError, UsageError
from roquet.model.names import is_retry
from roquet.model.queue import MessageQueue
from roquet.model.subscription import MessageModel
from roquet.rules.allocate import (
    BROKER_DECIDED,
    STRATEGIES,
    MachineRoomStrategy,
    Strategy,
    average,
    leaves_out,
    name_of,
)
from roquet.rules.balance.rebalance import member_queues
from roquet.wire.calls.bodies import AssignmentQuery, QueueAssignments
from roquet.wire.calls.heartbeat import QueryAssignment
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

log = logger(__name__)

CHECK_ATTEMPTS: Final = 3
CHECK_PAUSE_MS: Final = 500
"""Number of attempts, and pause between them, when a broker cannot answer yet at the start."""

UNSUPPORTED_CODES: Final = frozenset(
    {ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.INVALID_PARAMETER}
)
"""Refusals that mean that the broker does not support the strategy, or the request."""


def check_consumption(config: ConsumerConfig) -> None:
    """Raise ConfigError for combinations that cannot work."""
    if config.message_model is MessageModel.LITE_SELECTIVE:
        raise ConfigError("message_model: only CLUSTERING and BROADCASTING are supported")
    strategy = find_strategy(config.strategy)
    if isinstance(strategy, MachineRoomStrategy) and not strategy.rooms:
        raise ConfigError("strategy: MACHINE_ROOM needs at least one room")


def broker_strategy(strategy: str | Strategy) -> str | None:
    """The strategy's name if only brokers can compute it, else None."""
    return strategy if isinstance(strategy, str) and strategy in BROKER_DECIDED else None


def strategy_name(strategy: str | Strategy) -> str:
    """The strategy's name as operators see it."""
    return strategy if isinstance(strategy, str) else name_of(strategy)


def find_strategy(strategy: str | Strategy) -> Strategy | None:
    """The strategy's function; None when brokers allocate. ConfigError for an unknown name."""
    if not isinstance(strategy, str):
        if not callable(strategy):
            raise ConfigError(f"strategy: a name or a function, not {type(strategy).__name__}")
        return strategy
    if strategy in BROKER_DECIDED:
        return None
    if strategy not in STRATEGIES:
        known = ", ".join([*STRATEGIES, *sorted(BROKER_DECIDED)])
        raise ConfigError(f"strategy: {strategy!r} is unknown; known are {known}")
    return STRATEGIES[strategy]


class QueueAllocator:
    """Allocates each topic's queues to this member."""

    def __init__(self, session: Session, config: ConsumerConfig, group: str) -> None:
        self._session = session
        self._config = config
        self._group = group
        self._strategy = find_strategy(config.strategy)
        self._broker_strategy = broker_strategy(config.strategy)
        self._is_shared = config.message_model is MessageModel.CLUSTERING

    async def queues_of(self, topic: str) -> Sequence[MessageQueue]:
        """This member's queues of a topic; RoquetError when they cannot be determined now."""
        routes = self._session.routes
        queues = await routes.find_readable(topic)
        if routes.readable(topic) is None:
            raise topic_missing(topic)
        if not queues or not self._is_shared:
            return queues
        if self._broker_strategy:
            return await self._broker_allocation(topic)
        members = await self._members(topic)
        allocated = member_queues(self._client_id, queues, members, self._strategy or average)
        if allocated is None:
            raise UsageError("no broker knows this member yet")
        return allocated

    async def check(self, topics: Sequence[str]) -> None:
        """Raise ConfigError when the strategy needs brokers that support it, and these do not.

        Brokers that cannot be reached are skipped: the rebalances that follow will tell.
        """
        self._warn_of_retries(topics)
        if not self._broker_strategy or not self._is_shared:
            return
        routes, membership = self._session.routes, self._session.membership
        known = [topic for topic in topics if not is_retry(topic)]
        routes_found = await asyncio.gather(
            *map(routes.find_readable, known), return_exceptions=True
        )
        if any(queues for queues in routes_found if isinstance(queues, list)):
            await membership.send_heartbeats()
        for topic, queues in zip(known, routes_found, strict=True):
            if isinstance(queues, list) and queues:
                await self._check(topic)

    def _warn_of_retries(self, topics: Sequence[str]) -> None:
        """Warn that a CONFIG list seldom names the retry topic; ordered messages do not need it."""
        if not self._is_shared or self._config.ordered:
            return
        for topic in topics:
            if is_retry(topic) and leaves_out(self._strategy, topic):
                log.warning(
                    "the list of CONFIG has no queue of %s: messages that fail here come again "
                    "only where another member's list names them",
                    topic,
                )

    async def _check(self, topic: str) -> None:
        for _ in range(CHECK_ATTEMPTS):
            try:
                if await self._ask(topic) is not None:
                    return
            except CallError as error:
                log.info("no broker has allocated the queues of %s yet: %s", topic, error)
                return
            await self._config.clock.sleep(CHECK_PAUSE_MS)
        # Apache RocketMQ's brokers return no queues for a strategy that they do not know.
        raise self._unsupported(topic)

    @property
    def _client_id(self) -> str:
        return self._session.identity.client_id

    async def _members(self, topic: str) -> Sequence[str]:
        membership = self._session.membership
        members = await membership.members(self._group, topic)
        if self._client_id not in members:
            # The broker has not got a heartbeat from this client yet; once it has, it notifies all
            # members.
            await membership.send_heartbeats()
            members = await membership.members(self._group, topic)
        return members

    async def _broker_allocation(self, topic: str) -> Sequence[MessageQueue]:
        """The queues that the topic's first broker by name allocates to this member."""
        allocated = await self._ask(topic)
        if not allocated:
            # Either no queue is left for this member, or the broker has got no heartbeat from it.
            await self._session.membership.send_heartbeats()
            allocated = await self._ask(topic)
        if allocated is None:
            raise UsageError(f"broker {self._deciding_broker(topic)} has no allocation yet")
        return [queue for queue in allocated if queue.topic == topic]

    async def _ask(self, topic: str) -> Sequence[MessageQueue] | None:
        query = AssignmentQuery(
            topic=topic,
            consumer_group=self._group,
            client_id=self._client_id,
            strategy_name=self._broker_strategy or "",
            message_model=self._config.message_model,
        )
        call = QueryAssignment(body=codec.dumps(query))
        try:
            reply = await self._session.call(self._deciding_broker(topic), call)
        except CallRefused as error:
            if error.code in UNSUPPORTED_CODES:
                raise self._unsupported(topic) from error
            if error.code == ResponseCode.NOT_LEADER_FOR_QUEUE:
                self._session.routes.invalidate()  # it does not name a new broker yet
            raise
        assignments = codec.loads(reply.body, QueueAssignments).message_queue_assignments
        return (
            None
            if assignments is None
            else [assignment.message_queue for assignment in assignments]
        )

    def _deciding_broker(self, topic: str) -> str:
        names = [broker.broker_name for broker in self._session.routes.brokers_of(topic)]
        if not names:
            raise UsageError(f"no broker of topic {topic} is known")
        return min(names)

    def _unsupported(self, topic: str) -> ConfigError:
        return ConfigError(
            f"strategy: broker {self._deciding_broker(topic)} does not support "
            f"{self._broker_strategy}, which only brokers can compute: "
            "use Roquet's brokers, or another strategy"
        )
