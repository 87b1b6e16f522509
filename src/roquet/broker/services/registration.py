"""Registration: registers the broker's topics at all name servers.

a changed topic ───────▶ registered at once; its creator may wait for that
every 30 s ────────────▶ registered again
a closed connection ───▶ registered again, repeatedly until the name server is back
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from roquet.broker.settings.config import BrokerConfig
from roquet.log_records import logger
from roquet.model.errors import CallError, CallRefused
from roquet.model.topic import READ_WRITE, TopicConfig, TopicTable
from roquet.net.clock import Clock
from roquet.net.pool import ChannelPool
from roquet.wire.call import Call
from roquet.wire.calls.bodies import RegisterBrokerBody, TopicsOfBroker
from roquet.wire.calls.route import RegisterBroker, UnregisterBroker
from roquet.wire.fastjson import codec
from roquet.wire.registration import checksum

log = logger(__name__)

TIMEOUT_MS: Final = 3_000
"""Timeout in ms for one name server; the others are called meanwhile."""

AGAIN_MS: Final = 1_000
"""Ms between two tries to reach a name server that is away: until it knows us, its clients do
not."""

PAUSE_MS: Final = 20
"""Ms between two registrations of changes: a burst of new topics takes two registrations."""

HEARD_MS: Final = 1_000
"""Longest wait in ms of a creator for name servers that do not answer."""


class RegistrationTrigger:
    """Triggers a registration, and lets callers wait until it is done."""

    def __init__(self) -> None:
        self.latest = 0
        self.has_teller = False
        self.changed = asyncio.Event()
        self._heard = 0
        self._told = asyncio.Event()

    def add(self) -> None:
        """Request a registration soon."""
        self.latest += 1
        self.changed.set()

    def heard(self, latest: int) -> None:
        """Note that the changes up to `latest` are registered at all reachable name servers."""
        self._heard = latest
        event, self._told = self._told, asyncio.Event()
        event.set()

    async def told(self) -> None:
        """Wait until the changes so far are registered, HEARD_MS at most."""
        latest = self.latest
        with suppress(TimeoutError):
            async with asyncio.timeout(HEARD_MS / 1000):
                while self.has_teller and self._heard < latest:
                    await self._told.wait()


class NameServerRegistration:
    """Keeps the registration at every name server up to date."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        address: str,
        topics: Callable[[], TopicTable],
        news: RegistrationTrigger,
    ) -> None:
        self._config = config
        self._clock = clock
        self._address = address
        self._topics = topics
        self._pool = ChannelPool(clock=clock, security=config.calls())
        self._pool.on_connect(lambda channel: channel.on_close(self._hung_up))
        self._news = news
        news.has_teller = True
        self._unreachable: set[str] = set()
        self._away: dict[str, None] = {}
        """Name servers that did not answer, in the order in which they failed."""
        self._missed = asyncio.Event()
        self._left = False
        self._kept = codec.EncodedTextCache()

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings: register soon, perhaps at other name servers."""
        self._config = config
        self._news.add()

    async def serve(self) -> None:
        """Register changes at once, everything at intervals, and at name servers that return.

        Forever.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tell_news())
            group.create_task(self._call_again())

    async def _tell_news(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._config.register_interval / 1000):
                    await self._news.changed.wait()
            except TimeoutError:
                pass
            try:
                await self.step()
            except Exception:  # later changes are registered all the same
                log.exception("the name servers could not be told; they are told again")
                await self._clock.sleep(AGAIN_MS)
                self._news.add()
            await self._clock.sleep(PAUSE_MS)

    async def _call_again(self) -> None:
        """Retry name servers that are away, in a task of its own."""
        while True:
            await self._missed.wait()
            await self._clock.sleep(AGAIN_MS)
            self._missed.clear()
            try:
                await asyncio.gather(*(self._call(server) for server in self._away))
            except Exception:
                log.exception("name servers that were away could not be told; trying again")
                self._missed.set()

    async def _call(self, server: str) -> None:
        """Register at a name server that was away, if it can be reached again."""
        if self._left or server not in self._config.name_servers:
            self._away.pop(server, None)
            return
        with suppress(CallError):  # it is still away
            await self._pool.get(server, timeout_ms=TIMEOUT_MS)
            await self._tell(server, self._registration())
        if server in self._away:
            self._missed.set()

    def _hung_up(self, _channel: object) -> None:
        """Register again: a name server may have died, and its successor does not know us."""
        if not self._left:
            self._news.add()

    async def step(self, _now_ms: int = 0) -> None:
        """Register at every name server, except those that are away, which are retried apart."""
        self._news.changed.clear()
        latest, servers = self._news.latest, self._config.name_servers
        if servers and not self._left:
            call = self._registration()
            here = [server for server in servers if server not in self._away]
            await asyncio.gather(*(self._tell(server, call) for server in here))
        self._news.heard(latest)

    async def unregister(self) -> None:
        """Unregister at every name server, and close the connections."""
        self._left, config = True, self._config
        call = UnregisterBroker(
            broker_name=config.broker_name,
            broker_addr=self._address,
            cluster_name=config.cluster_name,
            broker_id=config.broker_id,
        )
        await asyncio.gather(*(self._tell(server, call) for server in config.name_servers))
        await self._pool.close()

    def _registration(self) -> RegisterBroker:
        config, table = self._config, self._topics()
        topics = table.topic_config_table
        if config.permission != READ_WRITE:
            topics = {name: _limited(topic, config.permission) for name, topic in topics.items()}
        body = codec.dumps(
            RegisterBrokerBody(
                topic_config_serialize_wrapper=TopicsOfBroker(
                    topic_config_table=topics, data_version=table.data_version
                )
            ),
            text_cache=self._kept,
        )
        return RegisterBroker(
            broker_name=config.broker_name,
            broker_addr=self._address,
            cluster_name=config.cluster_name,
            ha_server_addr=self._address,
            broker_id=config.broker_id,
            body_crc32=checksum(body),
            body=body,
        )

    async def _tell(self, server: str, call: Call[Any]) -> None:
        try:
            await self._pool.call(server, call, TIMEOUT_MS)
        except CallError as error:
            if server not in self._unreachable:
                log.warning("name server %s does not know of us: %s", server, error)
            self._unreachable.add(server)
            if not isinstance(error, CallRefused):
                self._away[server] = None
                self._missed.set()
        else:
            self._away.pop(server, None)
            if server in self._unreachable:
                log.info("name server %s knows of us again", server)
            self._unreachable.discard(server)


def _limited(topic: TopicConfig, permission: int) -> TopicConfig:
    """A topic's settings with the permissions that the broker grants."""
    return msgspec.structs.replace(topic, perm=topic.perm & (permission | ~READ_WRITE))
