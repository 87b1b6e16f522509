"""Reach: every broker of the clusters that some name servers know."""

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from roquet.client.config import ClientConfig, name_servers
from roquet.client.routes import NameServers
from roquet.client.security import security
from roquet.model.errors import CallError
from roquet.model.route import BrokerData, ClusterInfo
from roquet.net.pool import Pool
from roquet.wire import dialect
from roquet.wire.call import Call, R
from roquet.wire.calls.bodies import TopicList
from roquet.wire.calls.route import GetAllTopics, GetClusterInfo

AT_ONCE_MAX: Final = 64
"""Questions in flight: a cluster may have thousands of groups."""

_DEFAULTS: Final = ClientConfig()


class Reach:
    """`async with Reach(namesrv) as reach:` what functions of this room ask."""

    def __init__(
        self, namesrv: str | Sequence[str] | None = None, config: ClientConfig = _DEFAULTS
    ) -> None:
        addresses = name_servers(namesrv, os.environ)
        self._timeout_ms = config.timeout_ms
        self._pool = Pool(clock=config.clock, security=security(config, os.environ))
        self._servers = NameServers(self._pool, addresses, config)
        self._room = asyncio.Semaphore(AT_ONCE_MAX)

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
        """Each broker's name, and its leader's address; sorted."""
        reply = await self._servers.ask(GetClusterInfo())
        return _leaders(dialect.loads(reply.body, ClusterInfo).broker_addr_table.values())

    async def topics(self) -> Sequence[str]:
        """All topics that the name servers know."""
        reply = await self._servers.ask(GetAllTopics())
        return dialect.loads(reply.body, TopicList).topic_list

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


def _leaders(brokers: Iterable[BrokerData]) -> dict[str, str]:
    found = {broker.broker_name: broker.any_address for broker in brokers}
    return {name: address for name, address in sorted(found.items()) if address}
