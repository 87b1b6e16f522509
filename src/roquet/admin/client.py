"""AdminClient: calls to the name servers and to every broker that they know."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

from roquet.client.arguments import check_timeout
from roquet.client.config import ClientConfig, config_or_default, resolve_name_servers
from roquet.client.connection.routes import NameServers
from roquet.client.connection.security import connection_security
from roquet.model.config_check import check_types
from roquet.model.errors import (
    CallError,
    CallRefused,
    ConfigError,
    ConnectFailed,
    NotFound,
    RoquetError,
    UsageError,
)
from roquet.model.names import check_topic, is_text
from roquet.model.route import BrokerData, ClusterInfo, TopicRoute
from roquet.model.settings import suggest
from roquet.net.pool import ChannelPool
from roquet.wire.call import Call, R, Reply
from roquet.wire.calls.bodies import TopicList
from roquet.wire.calls.route import GetAllTopics, GetClusterInfo, GetRoute
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

CONCURRENT_CALLS_MAX: Final = 64
"""Calls in flight at a time: a cluster may have thousands of groups."""


class AdminClient:
    """A connection to a cluster, for the functions of this package.

    `async with AdminClient(namesrv) as admin:`; without `namesrv` the environment's NAMESRV_ADDR.
    """

    def __init__(
        self, namesrv: str | Sequence[str] | None = None, config: ClientConfig | None = None
    ) -> None:
        config = config_or_default(ClientConfig, config)
        addresses = resolve_name_servers(namesrv, os.environ)
        self.clock = config.clock
        self._timeout_ms = config.timeout_ms
        self._pool = ChannelPool(
            clock=config.clock, security=connection_security(config, os.environ)
        )
        self._servers = NameServers(self._pool, addresses, config)
        self._slots = asyncio.Semaphore(CONCURRENT_CALLS_MAX)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._pool.close()

    async def brokers(self) -> Mapping[str, str]:
        """Addresses by broker name, sorted: the leader's, else that of the lowest broker id.

        For questions; changes go to `leaders`. Raises RoquetError when there is no broker.
        """
        return leader_addresses((await self.cluster()).broker_addr_table.values())

    async def leaders(self) -> Mapping[str, str]:
        """Leader addresses by broker name, without those whose leader is away.

        Raises RoquetError when there is no broker.
        """
        brokers = (await self.cluster()).broker_addr_table.values()
        return {broker.broker_name: broker.leader for broker in brokers if broker.leader}

    async def cluster(self) -> ClusterInfo:
        """All brokers by name and by cluster. Raises RoquetError when there is no broker."""
        reply = await self._servers.ask(GetClusterInfo())
        info = codec.loads(reply.body, ClusterInfo)
        if not info.broker_addr_table:
            raise RoquetError(
                "the name servers know of no broker: start one with their addresses; one that runs"
                " tells them soon, or waits for its controller: see its log"
            )
        return info

    async def route(self, topic: str) -> TopicRoute | None:
        """Brokers and queues of a topic; None when no broker has it."""
        if not is_text(topic):
            raise UsageError(f"the topic name is a text, not {topic!r:.100}")
        try:
            reply = await self._servers.ask(GetRoute(topic=topic, accept_standard_json_only=True))
        except CallRefused as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise
        return codec.loads(reply.body, TopicRoute)

    async def known_route(self, topic: str) -> TopicRoute:
        """Brokers and queues of a topic. Raises NotFound if no broker has it."""
        check_topic(topic)
        if (route := await self.route(topic)) is not None:
            return route
        hint = suggest(topic, await self.topics()) or "; `roquet topic ls` lists all"
        raise NotFound(f"no broker has a topic {topic!r}{hint}")

    async def ask_name_servers(self, call: Call[R]) -> tuple[dict[str, R], dict[str, CallError]]:
        """Call every name server: replies by address, and errors by address."""
        return await self.ask_each({address: address for address in self._servers.addresses}, call)

    async def topics(self) -> Sequence[str]:
        """Names of all topics. Raises RoquetError when there is no broker."""
        reply = await self._servers.ask(GetAllTopics())
        topics = codec.loads(reply.body, TopicList).topic_list
        if not topics:  # every broker has topics of its own, so there is no broker
            await self.cluster()
        return topics

    async def ask(self, address: str, call: Call[R], timeout_ms: int | None = None) -> R:
        """Call one server by address; None is the timeout of the client's settings."""
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        check_timeout(timeout_ms, least=1)
        _check_call(call)
        async with self._slots:
            return await self._pool.call(address, call, timeout_ms)

    async def ask_each(
        self, brokers: Mapping[str, str], call: Call[R]
    ) -> tuple[dict[str, R], dict[str, CallError]]:
        """Call each broker: replies by broker name, and errors by broker name."""
        return await outcomes(brokers, lambda name: self.ask(brokers[name], call))

    async def change_each(self, calls: Mapping[str, Call[Reply]], done: str) -> list[str]:
        """Send each broker's leader its own call, all at once; returns the broker names.

        Followers take no changes: they copy those of their leader. Raises RoquetError when some
        failed: it says where the change was `done` (a participle for the text, as "created"). When
        all failed, raises the first error.
        """
        leaders = await self.leaders()

        async def change(broker: str) -> Reply:
            return await self.ask(known_leader(leaders, broker), calls[broker])

        changed, failed = await outcomes(calls, change)
        return check_done_everywhere(list(changed), failed, f"{done} on")


def _check_call(call: object) -> None:
    """Raise UsageError for a call with a field of a wrong type, before it is encoded."""
    if not isinstance(call, Call):
        raise UsageError(f"a call is a request of roquet.wire.calls, not {call!r:.100}")
    try:
        check_types(call)
    except ConfigError as error:
        raise UsageError(str(error)) from None


async def outcomes(
    keys: Iterable[K], work: Callable[[K], Awaitable[T]]
) -> tuple[dict[K, T], dict[K, CallError]]:
    """Results of work that is done for all keys at once, and the errors of calls that failed."""
    done: dict[K, T] = {}
    failed: dict[K, CallError] = {}

    async def attempt(key: K) -> T | CallError:
        try:
            return await work(key)
        except CallError as error:
            return error

    every = list(keys)
    for key, one in zip(every, await asyncio.gather(*map(attempt, every)), strict=True):
        if isinstance(one, CallError):
            failed[key] = one
        else:
            done[key] = one
    return done, failed


def check_done_everywhere(
    names: list[str], failed: Mapping[str, CallError], done: str
) -> list[str]:
    """The names where a change was made.

    Raises RoquetError, which says where it was `done` (as "created on"), when some failed; the
    first error when all did.
    """
    if failed:
        check_some_replied(dict.fromkeys(names), failed)
        raise RoquetError(f"{done} {', '.join(names)}, but not everywhere: {failures_text(failed)}")
    return names


def leader_addresses(brokers: Iterable[BrokerData]) -> dict[str, str]:
    """Addresses by broker name, sorted: the leader's, else that of the lowest broker id."""
    addresses = {broker.broker_name: broker.any_address for broker in brokers}
    return {name: address for name, address in sorted(addresses.items()) if address}


def known_leader(leaders: Mapping[str, str], broker: str) -> str:
    """The address of a broker's leader. Raises ConnectFailed while the leader is away."""
    if broker not in leaders:
        raise ConnectFailed(f"the master of {broker} is away, and its replicas take no changes")
    return leaders[broker]


def failures_text(failed: Mapping[str, CallError]) -> str:
    """Failed brokers or servers and their errors, in one line."""
    return "; ".join(f"{name}: {error}" for name, error in failed.items())


def fault_lines(failed: Mapping[str, CallError]) -> list[str]:
    """Lines that say whose part of an answer is missing, and why; by name."""
    return [
        f"{name} {'refuses' if isinstance(error, CallRefused) else 'does not answer'}:"
        f" its part is missing here ({error})"
        for name, error in sorted(failed.items())
    ]


def without_answers(failed: Mapping[str, CallError], *codes: ResponseCode) -> dict[str, CallError]:
    """The errors that are no answer: refusals of these codes, as "no such group", are left out."""
    return {
        name: error
        for name, error in failed.items()
        if not (isinstance(error, CallRefused) and error.code in codes)
    }


def check_some_replied(replies: Mapping[str, object], failed: Mapping[str, CallError]) -> None:
    """Raise the first error when nobody replied: then nothing is known."""
    if failed and not replies:
        raise next(iter(failed.values()))
