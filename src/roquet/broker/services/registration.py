"""Registration: registers the broker's topics at all name servers.

a changed topic ───────▶ registered at once; its creator may wait for that
every 30 s ────────────▶ registered again
a closed connection ───▶ registered again, repeatedly until the name server is back
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

import msgspec

from roquet.broker.replication.role import RoleCell
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.log_records import logger
from roquet.model.errors import CallError, CallRefused
from roquet.model.topic import READ_WRITE, DataVersion, TopicConfig, TopicTable
from roquet.net.clock import Clock
from roquet.net.pool import ChannelPool
from roquet.wire.call import Call, Reply
from roquet.wire.calls.bodies import RegisterBrokerBody, TopicsOfBroker
from roquet.wire.calls.route import RegisterBroker, RegisterBrokerReply, UnregisterBroker
from roquet.wire.fastjson import codec
from roquet.wire.registration import checksum

log = logger(__name__)

TIMEOUT_MS: Final = 3_000
"""Timeout in ms for one name server; the others are called meanwhile."""

AGAIN_MS: Final = 1_000
"""Ms between two tries to reach a name server that is away: until it knows us, its clients do
not."""

SEEK_MS: Final = 5_000
"""Ms between two registrations of a replica whose master is not known: the answer names it."""

PAUSE_MS: Final = 20
"""Ms between two registrations of changes: a burst of new topics takes two registrations."""

REGISTERED_WAIT_MS: Final = 1_000
"""Longest wait in ms of a creator for name servers that do not answer."""


class RegistrationTrigger:
    """Triggers a registration, and lets callers wait until it is done."""

    def __init__(self) -> None:
        self.latest = 0
        self.is_served = False
        self.has_registered = False
        """Whether the name servers were told once, or tried."""
        self.unreachable: set[str] = set()
        """Name servers that do not answer, or refuse."""
        self.changed = asyncio.Event()
        self._registered_up_to = 0
        self._registered = asyncio.Event()

    def request(self, *_: object) -> None:
        """Request a registration soon."""
        self.latest += 1
        self.changed.set()

    def note_registered(self, latest: int) -> None:
        """Note that the changes up to `latest` are registered at all reachable name servers."""
        self._registered_up_to, self.has_registered = latest, True
        event, self._registered = self._registered, asyncio.Event()
        event.set()

    async def wait_registered(self) -> None:
        """Wait until the changes so far are registered, REGISTERED_WAIT_MS at most."""
        latest = self.latest
        with suppress(TimeoutError):
            async with asyncio.timeout(REGISTERED_WAIT_MS / 1000):
                while self.is_served and self._registered_up_to < latest:
                    await self._registered.wait()


class BrokerAddresses(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses of a broker, each HOST:PORT."""

    broker: str
    """For clients."""
    stream: str
    """For its replicas."""


class NameServerRegistration:
    """Keeps the registration at every name server up to date."""

    def __init__(
        self,
        settings: RuntimeSettings,
        clock: Clock,
        addresses: BrokerAddresses,
        topics: Callable[[], TopicTable],
        trigger: RegistrationTrigger,
        role: RoleCell,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._addresses = addresses
        self._topics = topics
        self._role = role
        self._pool = ChannelPool(clock=clock, security=settings.config.calls())
        self._pool.on_connect(lambda channel: channel.on_close(self._hung_up))
        self._trigger = trigger
        trigger.is_served = True
        self._unreachable = trigger.unreachable
        self._away: dict[str, None] = {}
        """Name servers that did not answer, in the order in which they failed."""
        self._missed = asyncio.Event()
        self._left = False
        self._kept = codec.EncodedTextCache()

    async def serve(self) -> None:
        """Register changes at once, everything at intervals, and at name servers that return.

        Forever.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._register_changes())
            group.create_task(self._call_again())

    async def _register_changes(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._interval_ms() / 1000):
                    await self._trigger.changed.wait()
            except TimeoutError:
                pass
            try:
                await self.step()
            except Exception:  # later changes are registered all the same
                log.exception("the name servers could not be told; they are told again")
                await self._clock.sleep(AGAIN_MS)
                self._trigger.request()
            if not self._is_silent:  # a new master is registered at once when it is ready
                await self._clock.sleep(PAUSE_MS)

    def _interval_ms(self) -> int:
        """Ms until everything is registered again."""
        interval_ms = self._settings.config.register_interval
        return min(interval_ms, SEEK_MS) if self._seeks_master() else interval_ms

    def _seeks_master(self) -> bool:
        """Whether this is a replica that learns from name servers who leads, and does not know."""
        role = self._role.current
        return not role.is_master and not role.epoch and role.master is None

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
        if self._is_silent or server not in self._settings.config.name_servers:
            self._away.pop(server, None)
            return
        with suppress(CallError):  # it is still away
            await self._pool.get(server, timeout_ms=TIMEOUT_MS)
            self._note_master([await self._tell(server, self._registration())], is_partial=True)
        if server in self._away:
            self._missed.set()

    def _hung_up(self, _channel: object) -> None:
        """Register again: a name server may have died, and its successor does not know us."""
        if not self._left:
            self._trigger.request()

    async def step(self, _now_ms: int = 0) -> None:
        """Register at every name server, except those that are away, which are retried apart."""
        self._trigger.changed.clear()
        latest, servers = self._trigger.latest, self._settings.config.name_servers
        if servers and not self._is_silent:
            call = self._registration()
            here = [server for server in servers if server not in self._away]
            replies = await asyncio.gather(*(self._tell(server, call) for server in here))
            self._note_master(replies)
        self._trigger.note_registered(latest)

    @property
    def _is_silent(self) -> bool:
        """Whether name servers are told nothing: the broker stops, or does not know its role.

        Nor does a new master before its queues are built: clients take their ends for the group's.
        """
        return self._left or self._role.current.is_fenced or not self._role.is_settled

    async def unregister(self) -> None:
        """Unregister at every name server, and close the connections."""
        self._left, config = True, self._settings.config
        call = UnregisterBroker(
            broker_name=config.broker_name,
            broker_addr=self._addresses.broker,
            cluster_name=config.cluster_name,
            broker_id=self._role.current.broker_id,
        )
        await asyncio.gather(*(self._tell(server, call) for server in config.name_servers))
        await self._pool.close()

    def _registration(self) -> RegisterBroker:
        config, table = self._settings.config, self._topics()
        topics = table.topic_config_table
        if config.permission != READ_WRITE:
            topics = {name: _limited(topic, config.permission) for name, topic in topics.items()}
        body = codec.dumps(
            RegisterBrokerBody(
                topic_config_serialize_wrapper=TopicsOfBroker(
                    topic_config_table=topics, data_version=self._version(table.data_version)
                )
            ),
            text_cache=self._kept,
        )
        return RegisterBroker(
            broker_name=config.broker_name,
            broker_addr=self._addresses.broker,
            cluster_name=config.cluster_name,
            ha_server_addr=self._addresses.stream,
            broker_id=self._role.current.broker_id,
            # Said in any case, so that a replica's topics count without a master.
            enable_acting_master=config.has_acting_master,
            body_crc32=checksum(body),
            body=body,
        )

    def _version(self, version: DataVersion) -> DataVersion:
        """Version of the topics; an elected master's is later than that of the one before it."""
        epoch = self._role.current.epoch
        return msgspec.structs.replace(version, state_version=epoch) if epoch else version

    def _note_master(self, replies: Iterable[Reply | None], *, is_partial: bool = False) -> None:
        """Note where a replica's master is, by the first name server that knows it.

        `is_partial`: not all name servers were asked, so none of them knowing it says nothing.
        Without one the tables are not copied; the stream goes on, since the master itself ends it.
        """
        role = self._role.current
        answers = [reply for reply in replies if isinstance(reply, RegisterBrokerReply)]
        if role.is_master or role.epoch or not answers:
            return
        known = next((answer for answer in answers if answer.master_addr), answers[0])
        if is_partial and not known.master_addr:
            return  # others may know it
        stream = self._settings.config.ha_master or known.ha_server_addr or role.master_stream
        master = known.master_addr or None
        self._role.change(msgspec.structs.replace(role, master=master, master_stream=stream))

    async def _tell(self, server: str, call: Call[Any]) -> Reply | None:
        """Call a name server; None if it does not answer, or refuses."""
        try:
            reply: Reply = await self._pool.call(server, call, TIMEOUT_MS)
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
            return reply
        return None


def _limited(topic: TopicConfig, permission: int) -> TopicConfig:
    """A topic's settings with the permissions that the broker grants."""
    return msgspec.structs.replace(topic, perm=topic.perm & (permission | ~READ_WRITE))
