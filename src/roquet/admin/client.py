"""Reach: every broker of the clusters that some name servers know."""

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from roquet.client.config import ClientConfig, config_or_default, resolve_name_servers
from roquet.client.connection.routes import NameServers
from roquet.client.connection.security import connection_security
from roquet.model.errors import CallError, CallRefused, RoquetError, UsageError
from roquet.model.names import check_topic
from roquet.model.route import BrokerData, ClusterInfo, TopicRoute
from roquet.model.settings import suggest
from roquet.net.pool import ChannelPool
from roquet.wire.call import Call, R, Reply
from roquet.wire.calls.bodies import TopicList
from roquet.wire.calls.route import GetAllTopics, GetClusterInfo, GetRoute
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

CONCURRENT_CALLS_MAX: Final = 64
"""Questions in flight: a cluster may have thousands of groups."""

_DEFAULTS: Final = ClientConfig()


class AdminClient:
    """`async with Reach(namesrv) as reach:` what functions of this room ask."""

    def __init__(
        self, namesrv: str | Sequence[str] | None = None, config: ClientConfig | None = None
    ) -> None:
        config = config_or_default(_DEFAULTS, config)
        addresses = resolve_name_servers(namesrv, os.environ)
        self.clock = config.clock
        self._timeout_ms = config.timeout_ms
        self._pool = ChannelPool(
            clock=config.clock, security=connection_security(config, os.environ)
        )
        self._servers = NameServers(self._pool, addresses, config)
        self._room = asyncio.Semaphore(CONCURRENT_CALLS_MAX)

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
        """Each broker's name, and its leader's address; sorted. RoquetError when there is none."""
        return leader_addresses((await self.cluster()).broker_addr_table.values())

    async def cluster(self) -> ClusterInfo:
        """All brokers, and the clusters that they belong to. RoquetError when there is none."""
        found = codec.loads((await self._servers.ask(GetClusterInfo())).body, ClusterInfo)
        if not found.broker_addr_table:
            raise RoquetError(
                "the name servers know of no broker: start one with their addresses; those that"
                " run tell them soon"
            )
        return found

    async def route(self, topic: str) -> TopicRoute | None:
        """Where a topic lives; None when no broker has it."""
        try:
            reply = await self._servers.ask(GetRoute(topic=topic, accept_standard_json_only=True))
        except CallRefused as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise
        return codec.loads(reply.body, TopicRoute)

    async def known_route(self, topic: str) -> TopicRoute:
        """Where a topic lives; UsageError, which may guess what was meant, if no broker has it."""
        check_topic(topic)
        if (route := await self.route(topic)) is not None:
            return route
        raise UsageError(f"no broker has a topic {topic!r}{suggest(topic, await self.topics())}")

    async def ask_name_servers(self, call: Call[R]) -> tuple[dict[str, R], dict[str, CallError]]:
        """What every name server answers, by its address; and why others did not."""
        return await self.ask_each({address: address for address in self._servers.addresses}, call)

    async def topics(self) -> Sequence[str]:
        """All topics that the name servers know. RoquetError when they know of no broker."""
        reply = await self._servers.ask(GetAllTopics())
        found = codec.loads(reply.body, TopicList).topic_list
        if not found:  # every broker has some of its own
            await self.cluster()
        return found

    async def ask(self, address: str, call: Call[R]) -> R:
        """One broker's answer."""
        async with self._room:
            return await self._pool.call(address, call, self._timeout_ms)

    async def ask_each(
        self, brokers: Mapping[str, str], call: Call[R]
    ) -> tuple[dict[str, R], dict[str, CallError]]:
        """What every broker answers, by name; and why others did not."""

        async def one(address: str) -> R | CallError:
            try:
                return await self.ask(address, call)
            except CallError as error:
                return error

        outcomes = await asyncio.gather(*map(one, brokers.values()))
        named = list(zip(brokers, outcomes, strict=True))
        failed = {name: outcome for name, outcome in named if isinstance(outcome, CallError)}
        return {n: o for n, o in named if not isinstance(o, CallError)}, failed

    async def change_each(
        self, calls: Mapping[str, Call[Reply]], brokers: Mapping[str, str], done: str
    ) -> list[str]:
        """Tell each broker its own call; gives their names.

        RoquetError says where it was `done` when not everywhere; the reason when nowhere.
        """

        async def one(broker: str) -> CallError | None:
            try:
                await self.ask(brokers[broker], calls[broker])
            except CallError as error:
                return error
            return None

        outcomes = zip(calls, await asyncio.gather(*map(one, calls)), strict=True)
        failed = {broker: error for broker, error in outcomes if error is not None}
        if not failed:
            return list(calls)
        there = [broker for broker in calls if broker not in failed]
        if not there:
            raise next(iter(failed.values()))
        raise RoquetError(f"{done} on {', '.join(there)}, but not everywhere: {told(failed)}")


def leader_addresses(brokers: Iterable[BrokerData]) -> dict[str, str]:
    """Each broker's name, and its leader's address, else that of its lowest id; sorted."""
    found = {broker.broker_name: broker.any_address for broker in brokers}
    return {name: address for name, address in sorted(found.items()) if address}


def told(failed: Mapping[str, CallError]) -> str:
    """Who did not do it, and why, in one line."""
    return "; ".join(f"{name}: {error}" for name, error in failed.items())
