"""StreamServer: streams a master's log to its replicas, in the classic form or with epochs.

    replica ──report──▶ start ─▶ frames, as long as there is log ─▶ wait for an append ─┐
                                   ▲                                                    │
                                   └────────────────────────────────────────────────────┘

A replica costs one connection with three tasks: reports in, frames out, heartbeats. Without
replicas an append costs nothing. The log is copied into frames a slice at a time, between two
slices requests of clients are served.
"""

import asyncio
import ssl
from collections.abc import Iterator
from typing import Final

from roquet.broker.replication.framing import MasterFraming, NewMasterFraming
from roquet.broker.replication.role import RoleCell
from roquet.broker.replication.stream_facts import ConnectionFacts, StreamError, first_error
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.log_records import logger
from roquet.model.errors import ConfigError, RoquetError
from roquet.model.settings import join_address
from roquet.net.address import address_error
from roquet.net.clock import Clock
from roquet.rules.bounded_cache import BoundedCache
from roquet.rules.replication.flow_control import TransferMeter, next_second_ms
from roquet.rules.replication.sync_state import SentFrame
from roquet.rules.replication.transfer import is_possible_report
from roquet.store.store import Store

log = logger(__name__)

WRITE_SIZE: Final = 256 * 1024
"""Bytes of log that are written before others have their turn: about 0.1 ms."""

REPORT_READ_SIZE: Final = 4 * 1024
"""Bytes read at once from a replica: 512 reports."""

CONNECTIONS_MAX: Final = 64
"""Replicas at once: a group has a few, and each may hold `WRITE_SIZE` of memory."""

TICK_MS: Final = 1_000
"""Longest time in ms between two looks for a heartbeat that is due or a silent replica."""

HOSTS_REMEMBERED: Final = 256
"""Hosts whose refusal was logged: each is logged once until the reason changes."""


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
        self.store = store
        self.settings = settings
        self.clock = clock
        self.framing = framing
        self.grown = asyncio.Event()
        """Set by an append while replicas are connected."""
        self.port = 0
        self._role = role
        self._connections: dict[int, ReplicaConnection] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        """Of each connection; in order of arrival."""
        self._count = 0
        self._refused: BoundedCache[str, str] = BoundedCache(HOSTS_REMEMBERED)
        self._listener: asyncio.Server | None = None
        role.on_change.append(lambda *_: self._follow_role())

    async def start(self, host: str, port: int, context: ssl.SSLContext | None = None) -> None:
        """Listen; 0 takes any free port. Raises ConfigError when the port cannot be had."""
        try:
            self._listener = await asyncio.start_server(
                self._accept, host, port, limit=REPORT_READ_SIZE, ssl=context
            )
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

    def _follow_role(self) -> None:
        """End all connections when this broker no longer leads."""
        if not self._role.current.is_master:
            for task in self._tasks:
                task.cancel()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one replica until it goes, is silent, or sends what cannot be true."""
        self._count += 1
        number = self._count
        connection = ReplicaConnection(self, number, reader, writer)
        host = connection.host
        try:
            self._check_welcome()
            self._connections[number] = connection
            self.store.on_append(self.grown.set)
            await connection.serve()
        except* (RoquetError, OSError) as group:
            self._complain(host, connection.address, group)
        finally:
            self._connections.pop(number, None)
            connection.framing.close()
            if not self._connections:
                self.store.on_append(None)
            writer.transport.abort()

    def _check_welcome(self) -> None:
        """Raise StreamError when no replica is served now."""
        if not self._role.current.is_master:
            raise StreamError("this broker is no master: replicas get the log from the master")
        if len(self._connections) >= CONNECTIONS_MAX:
            raise StreamError(f"{CONNECTIONS_MAX} replicas are connected already")

    def _complain(self, host: str, address: str, group: BaseExceptionGroup) -> None:
        """Log why a connection ended; the same reason of one host once."""
        error = first_error(group)
        kind = f"{type(error).__name__} {str(error)[:24]}"
        if self._refused.get(host) != kind:
            self._refused.put(host, kind)
            log.warning("the replica at %s is disconnected: %s", address, error)


class ReplicaConnection:
    """One replica: its reports, its place in the log, and what it is sent."""

    def __init__(
        self,
        server: StreamServer,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._server = server
        self._number = number
        self._reader = reader
        self._writer = writer
        self._clock = server.clock
        self.framing: MasterFraming = server.framing(number, writer.write)
        self._meter = TransferMeter()
        self._reported = asyncio.Event()
        self._report = 0
        self._position = 0
        self._is_started = False
        self._read_ms = self._written_ms = server.clock.monotonic_ms()
        self._sent = SentFrame(server.store.raw.end, self._read_ms)
        self.host, port = writer.get_extra_info("peername")[:2]
        self.address = join_address(self.host, port)

    @property
    def facts(self) -> ConnectionFacts:
        """Progress of this replica."""
        return ConnectionFacts(
            address=self.address,
            report=self._report,
            lag=self._server.store.end_position - self._report,
            is_in_sync=self.framing.is_in_sync(self._report),
            position=self._position,
            bytes_per_second=self._meter.bytes_per_second(self._clock.monotonic_ms()),
        )

    async def serve(self) -> None:
        """Serve the replica; raises what ends the connection, in an ExceptionGroup."""
        async with asyncio.TaskGroup() as group:
            for work in (self._read(), self._feed(), self._keep()):
                group.create_task(work)

    async def _read(self) -> None:
        """Take reports."""
        while chunk := await self._reader.read(REPORT_READ_SIZE):
            self._read_ms = self._clock.monotonic_ms()
            if (report := self.framing.feed(chunk)) is None:
                continue
            end = self._server.store.end_position
            if not is_possible_report(report, end):
                raise StreamError(
                    f"it reports a log that ends at {report}, and this master's ends at {end}: it "
                    "is no replica, or one of another past, whose directory has to be emptied"
                )
            self._report = report
            self.framing.note(report, self._sent)
            self._reported.set()
        raise StreamError("it has closed the connection")

    async def _feed(self) -> None:
        """Send the log, from where the first report says."""
        await self._reported.wait()
        self._position = self.framing.start(self._report)
        self._is_started = True
        log.info("the replica at %s gets the log from %d on", self.address, self._position)
        grown = self._server.grown
        while True:
            grown.clear()
            if frames := b"".join(self._frames()):
                self._writer.write(frames)
                self._written_ms = self._clock.monotonic_ms()
                await self._writer.drain()
                await asyncio.sleep(0)
            elif self._position < self._server.store.end_position:
                await self._clock.sleep(next_second_ms(self._clock.monotonic_ms()))
            else:
                await grown.wait()

    def _frames(self) -> Iterator[bytes | memoryview]:
        """Headers and slices of the log, `WRITE_SIZE` together at most."""
        raw, config = self._server.store.raw, self._server.settings.config
        now_ms, left = self._clock.monotonic_ms(), WRITE_SIZE
        if config.ha_flow_control:
            left = min(left, self._meter.left(config.ha_bytes_per_second, now_ms))
        if self._position < raw.begin:
            raise StreamError(f"it is at {self._position}, and the log begins at {raw.begin} now")
        while left > 0 and (body := self._read_log(min(left, config.ha_batch_size))):
            yield self.framing.header(self._position, len(body))
            yield body
            self._position += len(body)
            self._meter.add(len(body), now_ms)
            left -= len(body)
        self._sent = SentFrame(raw.end, now_ms)

    def _read_log(self, size_max: int) -> memoryview:
        """Bytes for one frame; none at the log's end."""
        raw = self._server.store.raw
        if self._position == raw.end:
            return memoryview(b"")
        if (limit := self.framing.size_max(self._position)) is not None:
            size_max = min(size_max, limit)
        return raw.read(self._position, size_max)

    async def _keep(self) -> None:
        """Send a heartbeat after silence, and end the connection of a silent replica."""
        while True:
            config = self._server.settings.config
            due_ms = self._written_ms + config.ha_heartbeat_interval - self._clock.monotonic_ms()
            await self._clock.sleep(max(min(due_ms, TICK_MS), 1))
            now_ms = self._clock.monotonic_ms()
            if now_ms - self._read_ms >= config.ha_housekeeping_interval:
                raise StreamError(f"it was silent for {now_ms - self._read_ms} ms")
            if now_ms - self._written_ms >= config.ha_heartbeat_interval:
                self._written_ms = now_ms
                if self._is_started:
                    self._writer.write(self.framing.header(self._position, 0))
