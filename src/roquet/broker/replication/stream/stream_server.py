"""StreamServer: the port on which a master streams its log to replicas.

Without a replica an append costs nothing: the store tells of appends only while one is connected.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from roquet.broker.replication.role import Role, RoleCell
from roquet.broker.replication.stream.framing import (
    ConnectionFacts,
    NewMasterFraming,
    StreamError,
    first_error,
)
from roquet.broker.replication.stream.replica_connection import (
    REPORT_READ_SIZE,
    LogSource,
    ReplicaConnection,
)
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.log_records import logger
from roquet.model.errors import ConfigError, RoquetError
from roquet.net.address import PORT_MAX, address_error
from roquet.net.clock import Clock
from roquet.net.reloaded_tls import ReloadedTls
from roquet.net.sniffing_listener import SniffingListener
from roquet.net.tls import TlsMode
from roquet.rules.access.patterns import comes_from
from roquet.rules.bounded_cache import BoundedCache
from roquet.rules.replication.transfer import most_dispensable
from roquet.store.store import Store
from roquet.wire.signing import Credentials

log = logger(__name__)

CONNECTIONS_MAX: Final = 64
"""Connections at once: a group has a few replicas, and each may hold `WRITE_SIZE` of memory."""

REASONS_REMEMBERED: Final = 256
"""Reasons of hosts that were logged, so that a replica that comes back every second does not fill
the log."""

REASON_AGAIN_MS: Final = 60 * 60 * 1_000
"""Ms after which a reason of a host is logged again."""


class StreamServer:
    """Listens on the port for replicas, and has one connection for each."""

    def __init__(
        self,
        store: Store,
        settings: RuntimeSettings,
        clock: Clock,
        role: RoleCell,
        framing: NewMasterFraming,
    ) -> None:
        self.source = LogSource(store=store, settings=settings, clock=clock, framing=framing)
        self.port = 0
        self._role = role
        self._connections: dict[int, ReplicaConnection] = {}
        self._tasks: dict[asyncio.Task[None], ReplicaConnection | None] = {}
        """Of each connection, in order of arrival; None until its task has begun."""
        self._count = 0
        self._complaints: BoundedCache[tuple[str, str], int] = BoundedCache(REASONS_REMEMBERED)
        """When each reason of a host was logged."""
        self._listener: asyncio.Server | SniffingListener | None = None

    async def start(self, host: str, port: int, tls: ReloadedTls | None = None) -> None:
        """Listen; 0 takes any free port. Raises ConfigError when the port cannot be had."""
        if port > PORT_MAX:
            raise ConfigError(f"{port} is no port for replicas: choose another with haListenPort")
        try:
            if tls is None or tls.mode is TlsMode.DISABLED:
                self._listener = await asyncio.start_server(
                    self._accept, host, port, limit=REPORT_READ_SIZE
                )
            else:
                self._listener = SniffingListener(self._new_protocol, tls)
                await self._listener.listen(host, port, CONNECTIONS_MAX)
        except OSError as error:
            raise ConfigError(
                f"cannot listen for replicas on {host}:{port}: {address_error(error)}; choose "
                "another port with haListenPort"
            ) from error
        self.port = self._listener.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening, and end all connections."""
        if self._listener is not None:
            self._listener.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def facts(self) -> list[ConnectionFacts]:
        """Facts of each connection."""
        return [connection.facts for connection in self._connections.values()]

    def follow_role(self, *_: Role) -> None:
        """End all connections when this broker no longer leads."""
        if not self._role.current.is_master:
            for task in self._tasks:
                task.cancel()

    def _new_protocol(self, _source: str | None) -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader(limit=REPORT_READ_SIZE)
        return asyncio.StreamReaderProtocol(reader, self._accept)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks[task] = None
        task.add_done_callback(partial(self._ended, writer))

    def _ended(self, writer: asyncio.StreamWriter, task: "asyncio.Task[None]") -> None:
        """End the connection with its task, which may be cancelled before it has begun."""
        del self._tasks[task]
        writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one replica until it goes, is silent, or sends what cannot be true."""
        self._count += 1
        number = self._count
        connection = ReplicaConnection(self.source, number, reader, writer)
        host = connection.host
        if (task := asyncio.current_task()) is not None:
            self._tasks[task] = connection
        try:
            self._check_welcome(connection)
            self._make_room()
            self._connections[number] = connection
            if (credentials := self._credentials_to_prove(connection)) is not None:
                await connection.take_proof(credentials)
            self.source.store.on_append(self.source.grown.set)
            await connection.serve()
        except* (RoquetError, OSError) as group:
            self._complain(host, connection.address, group)
        except* Exception:
            log.exception("the replica at %s cannot be served", connection.address)
        finally:
            self._connections.pop(number, None)
            connection.framing.close()
            if not self._connections:
                self.source.store.on_append(None)

    def end_unwelcome(self, _config: BrokerConfig) -> None:
        """End connections of hosts that `ha_replicas` names no more."""
        for task, connection in tuple(self._tasks.items()):
            if connection is not None and (fault := self._address_fault(connection)) is not None:
                log.warning("the replica at %s is not served any more: %s", connection.host, fault)
                task.cancel()

    def _credentials_to_prove(self, connection: ReplicaConnection) -> Credentials | None:
        """Credentials that a replica has to prove to know; None: it gets the log without."""
        config = self.source.settings.config
        is_plain = _comes_from_one(connection.host, config.ha_plain_replicas)
        return None if is_plain or not config.proves_replicas else config.inner_credentials

    def _address_fault(self, connection: ReplicaConnection) -> str | None:
        """Why a replica's address gets no log; None if it does."""
        host, config = connection.host, self.source.settings.config
        sources = config.ha_replicas
        if _comes_from_one(host, config.ha_plain_replicas):
            return None
        if sources and not _comes_from_one(host, sources):
            return "it is none of ha_replicas, the addresses of replicas"
        if not (sources or connection.is_local or config.serves_any_replica):
            return (
                "ha_replicas does not name it: with access control it has to, since the log holds "
                "every message"
            )
        return None

    def _check_welcome(self, connection: ReplicaConnection) -> None:
        """Raise StreamError when no replica of this address is served now."""
        if (fault := self._address_fault(connection)) is not None:
            raise StreamError(fault)
        if not self._role.current.is_master:
            raise StreamError("this broker is no master: replicas get the log from the master")

    def _make_room(self) -> None:
        """End a connection if there is no place for one more, so that strangers keep nobody out."""
        if len(self._connections) < CONNECTIONS_MAX:
            return
        places = {number: one.place for number, one in self._connections.items()}
        ended = self._connections.pop(most_dispensable(places))
        reason = StreamError(f"{CONNECTIONS_MAX} others are connected")
        self._complain(ended.host, ended.address, reason)
        for task, connection in self._tasks.items():
            if connection is ended:
                task.cancel()

    def _complain(self, host: str, address: str, failure: BaseException) -> None:
        """Log why a connection ended; the same reason of one host once an hour."""
        error = first_error(failure)
        reason = host, f"{type(error).__name__} {str(error)[:24]}"
        now_ms = self.source.clock.monotonic_ms()
        logged_ms = self._complaints.get(reason)
        if logged_ms is None or now_ms - logged_ms >= REASON_AGAIN_MS:
            self._complaints.put(reason, now_ms)
            log.warning("the replica at %s is disconnected: %s", address, error)


def _comes_from_one(host: str, sources: Sequence[str]) -> bool:
    return any(comes_from(host, source) for source in sources)
