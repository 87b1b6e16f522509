"""ProxiedCluster: the brokers behind the proxy, and the settings of their topics and groups."""

from collections.abc import Collection, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import Final, Generic, TypeVar

import msgspec

from roquet.client.config import ProducerConfig
from roquet.client.connection.session import Session
from roquet.client.sending.delivery import MessageDelivery
from roquet.model.errors import CallRefused, RoquetError
from roquet.model.names import PROXY_GROUP
from roquet.model.properties import REAL_TOPIC
from roquet.model.queue import MessageQueue
from roquet.model.route import BrokerData, ClusterInfo
from roquet.model.subscription import HeartbeatData, ProducerData
from roquet.model.topic import SubscriptionGroup, TopicConfig
from roquet.net.clock import Clock
from roquet.net.pool import LocalServer
from roquet.proxy.config import ProxyConfig
from roquet.proxy.topic_creation import TopicCreation
from roquet.rules.proxy.status import ProxyRefusal, StatusCode
from roquet.rules.topic_attributes import MESSAGE_TYPE
from roquet.wire.call import Call, R, Reply
from roquet.wire.calls.admin.topic import GetGroup, GetTopic
from roquet.wire.calls.query import ViewMessage
from roquet.wire.calls.route import GetClusterInfo
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.records.record import decode, to_message

MARGIN_MS: Final = 2_000
"""Time that a broker has for its answer beyond the wait for messages."""

FRESH_MS: Final = 20_000
"""Age up to which remembered settings of a topic or a group are used."""

ENTRIES_MAX: Final = 10_000
"""Topics or groups whose settings are remembered: clients may make up names of groups."""

NO_ANSWERS: Final = (ResponseCode.SYSTEM_BUSY, ResponseCode.NO_PERMISSION)
"""Refusals that do not say that there is no such topic or group."""

NEVER: Final = 2**31 - 1
"""Size from which bodies are compressed: they are sent as their clients made them."""

NO_SERVERS: Final[Mapping[str, LocalServer]] = MappingProxyType({})

T = TypeVar("T")


class SettingsCache(Generic[T]):
    """Settings of topics or groups as brokers gave them, asked for again when they are old."""

    def __init__(
        self, session: Session, kind: type[T], clock: Clock, entries_max: int = ENTRIES_MAX
    ) -> None:
        self._session = session
        self._kind = kind
        self._clock = clock
        self._entries_max = entries_max
        self._known: dict[str, tuple[T | None, int]] = {}
        """Settings by name, and when they were asked for, on the monotonic clock; oldest first."""

    def __len__(self) -> int:
        """Number of names whose settings are remembered."""
        return len(self._known)

    async def get(self, name: str, topic: str, call: Call[Reply]) -> T | None:
        """Settings by a broker of a topic, or of any where it has none; None if brokers have none.

        While no broker answers the known ones count; raises a RoquetError if none are known.
        """
        now_ms = self._clock.monotonic_ms()
        known = self._known.get(name)
        if known is not None and now_ms - known[1] <= FRESH_MS:
            return known[0]
        routes = self._session.routes
        if not (brokers := routes.brokers_of(topic) or routes.brokers):
            return known[0] if known is not None else None
        try:
            settings = await self._ask(brokers, call)
        except RoquetError:
            if known is None:
                raise
            settings = None
        if settings is None and known is not None:
            settings = known[0]
        self._known.pop(name, None)
        self._known[name] = settings, now_ms
        if len(self._known) > self._entries_max:
            del self._known[next(iter(self._known))]
        return settings

    async def _ask(self, brokers: Sequence[BrokerData], call: Call[Reply]) -> T | None:
        failure: RoquetError | None = None
        is_refused = False
        for broker in brokers:
            try:
                reply = await self._session.call(broker.broker_name, call)
                return codec.loads(reply.body, self._kind)
            except CallRefused as error:
                is_refused = is_refused or error.code not in NO_ANSWERS
                failure = error
            except RoquetError as error:  # the next broker may answer
                failure = error
        if failure is not None and not is_refused:
            raise failure
        return None


class ProxiedCluster:
    """Routes, settings and calls of one cluster, and its heartbeats.

    By them brokers know whom to ask about transactions and about members of groups.
    """

    def __init__(self, namesrv: str | Sequence[str] | None, config: ProxyConfig) -> None:
        rng = Random()
        producing = ProducerConfig(
            clock=config.clock,
            rng=rng,
            timeout_ms=config.call_timeout_ms,
            compress_from=NEVER,
            # Its own: in containers all proxies of a host may have one address and process id.
            instance=f"{PROXY_GROUP}#{rng.getrandbits(32):08x}",
            access_key=config.access_key,
            secret_key=config.secret_key,
            tls=config.calls,
        )
        self.session = Session(namesrv, producing)
        self.delivery = MessageDelivery(self.session, producing, PROXY_GROUP)
        self._without_retries = MessageDelivery(
            self.session, msgspec.structs.replace(producing, retry_times=0), PROXY_GROUP
        )
        self._topics = SettingsCache(self.session, TopicConfig, config.clock)
        self._groups = SettingsCache(self.session, SubscriptionGroup, config.clock)
        self.creation = TopicCreation(self.session, config)
        self.checks_types = config.check_message_types
        self._checks_access = config.checks_access
        self.transactional: set[str] = set()
        """Topics of which brokers may ask this proxy about transactions."""

    def start(self, local: Mapping[str, LocalServer] = NO_SERVERS) -> None:
        """Open for work; no server needs to be reachable yet. `local` is that of the pool."""
        self.session.start(self._heartbeat)
        self.session.pool.local = local
        self.session.membership.is_awaited = lambda: True

    async def close(self) -> None:
        """Close all connections."""
        await self.session.close()

    async def call(self, broker: str, call: Call[R], timeout_ms: int | None = None) -> R:
        """Call a broker's master. Raises ProxyRefusal for a broker that is not known."""
        if not self.session.routes.addresses(broker):
            raise ProxyRefusal(StatusCode.BAD_REQUEST, f"no broker {broker!r:.100} is known")
        return await self.session.call(broker, call, timeout_ms)

    async def check_stored(self, broker: str, position: int, topic: str) -> None:
        """With access control, check that a client names the topic of the message it means.

        Positions come from clients, and brokers do as the proxy's own user asks. Raises
        ProxyRefusal for a message of another topic, RoquetError where there is none.
        """
        if not self._checks_access:
            return
        reply = await self.call(broker, ViewMessage(offset=position))
        stored = to_message(decode(reply.body), decompress=False)
        if topic not in (stored.topic, stored.properties.get(REAL_TOPIC)):
            raise ProxyRefusal(StatusCode.FORBIDDEN, f"the message is none of topic {topic}")

    async def call_held(self, broker: str, call: Call[R], wait_ms: int) -> R:
        """Call a broker's master with a request that it may hold so long for messages."""
        return await self.call(broker, call, wait_ms + MARGIN_MS)

    async def why_unready(self) -> str:
        """Why nothing can be sent or received now; empty if a broker is known."""
        try:
            await self.all_brokers()
        except RoquetError as error:
            return str(error)
        return ""

    async def all_brokers(self) -> Collection[BrokerData]:
        """All brokers of the cluster. Raises RoquetError without any."""
        reply = await self.session.routes.servers.ask(GetClusterInfo())
        info = codec.loads(reply.body, ClusterInfo)
        if not info.broker_addr_table:
            raise RoquetError("the name servers know of no broker")
        return info.broker_addr_table.values()

    async def find_route(self, topic: str) -> None:
        """Make sure that a topic's route is known; raises ProxyRefusal for an unknown topic."""
        routes = self.session.routes
        if not routes.brokers_of(topic) and await routes.refresh(topic) is None:
            raise ProxyRefusal(
                StatusCode.TOPIC_NOT_FOUND,
                f"topic {topic} does not exist: `roquet topic create {topic}` makes it",
            )

    async def readable(self, topic: str) -> Sequence[MessageQueue]:
        """The queues of a topic to read from; raises ProxyRefusal for an unknown topic."""
        await self.find_route(topic)
        return self.session.routes.readable(topic) or ()

    async def writable(self, topic: str) -> Sequence[MessageQueue]:
        """The queues of a topic to write to; raises ProxyRefusal for an unknown topic."""
        await self.find_route(topic)
        return self.session.routes.writable(topic) or ()

    async def check_writable(self, topic: str) -> None:
        """Raise ProxyRefusal for an unknown topic, or one whose masters let nobody write.

        A topic without a queue because a master is away is not refused: another one may follow.
        """
        await self.find_route(topic)
        routes = self.session.routes
        if routes.writable(topic):
            return
        await routes.refresh(topic)
        has_masters = all(broker.leader is not None for broker in routes.brokers_of(topic))
        if has_masters and not routes.writable(topic):
            text = f"topic {topic} has no queue that may be written to: see its permission"
            raise ProxyRefusal(StatusCode.FORBIDDEN, text)

    def sender(self, *, transactional: bool) -> MessageDelivery:
        """Sends messages; a half message once, since a second one would be asked about as well."""
        return self._without_retries if transactional else self.delivery

    async def topic_type(self, topic: str) -> str | None:
        """The type of messages that a topic takes; None without the attribute."""
        if await self.creation.is_wanted(topic):
            return None  # not remembered: it has a type soon
        return (await self.topic_attributes(topic)).get(MESSAGE_TYPE)

    async def topic_attributes(self, topic: str) -> Mapping[str, str]:
        """The attributes of a topic, by one of its brokers; none of an unknown topic."""
        config = await self._topics.get(topic, topic, GetTopic(topic=topic))
        return config.attributes if config is not None else {}

    async def group(self, group: str, topic: str) -> SubscriptionGroup:
        """A group's settings, by a broker of a topic; those of a new group where it has none."""
        found = await self._groups.get(group, topic, GetGroup(group=group))
        return found if found is not None else SubscriptionGroup(group_name=group)

    def ask_about(self, topic: str) -> None:
        """Let brokers ask this proxy about transactions of a topic."""
        if topic not in self.transactional:
            self.transactional.add(topic)
            self.session.membership.trigger()

    def _heartbeat(self) -> HeartbeatData:
        groups = [PROXY_GROUP, *sorted(self.transactional)]
        return HeartbeatData(
            client_id=self.session.identity.client_id,
            producer_data_set=[ProducerData(group_name=name) for name in groups],
        )
