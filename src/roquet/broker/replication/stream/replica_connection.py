"""ReplicaConnection: a master's connection to one replica, in either form of the stream.

    replica ──report──▶ start ─▶ frames, as long as there is log ─▶ wait for an append ─┐
                                   ▲                                                    │
                                   └────────────────────────────────────────────────────┘

Three tasks serve it: reports in, frames out, heartbeats. The log is copied into frames a slice at a
time; between two slices requests of clients are served.
"""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from secrets import token_bytes
from typing import Any, Final

import msgspec

from roquet.broker.replication.stream.framing import (
    ConnectionFacts,
    MasterFraming,
    NewMasterFraming,
    PeerGone,
    StreamError,
    write_open,
)
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.log_records import logger
from roquet.model.settings import join_address
from roquet.net.address import is_on_this_machine
from roquet.net.clock import Clock
from roquet.rules.replication.sync_state import SentFrame
from roquet.rules.replication.transfer import (
    ConnectionPlace,
    TransferMeter,
    is_possible_report,
    next_second_ms,
    patience_ms,
)
from roquet.store.store import Store
from roquet.wire.replication.replica_proof import (
    FRAME_SIZE,
    NONCE_SIZE,
    PROOF,
    encode_challenge,
    encode_proof,
    is_proof,
)
from roquet.wire.signing import Credentials

log = logger(__name__)

WRITE_SIZE: Final = 256 * 1024
"""Bytes of log that are written before others have their turn: about 0.1 ms."""

REPORT_READ_SIZE: Final = 4 * 1024
"""Bytes read at once from a replica: 512 reports."""

TICK_MS: Final = 1_000
"""Longest time in ms between two looks for a heartbeat that is due or a silent replica."""

FIRST_REPORT_MS: Final = 10_000
"""Ms in which a replica has to greet, and then to report: Apache's wait for 5 s before their first
report, ours ask their master at its port for clients before, three questions of 3 s at most."""

UNPROVEN: Final = (
    "it does not prove that it is a replica of this group: set authenticationEnabled and"
    " innerClientAuthenticationCredentials there as here, or name its address in ha_plain_replicas"
    " if it is one of Apache's"
)

GONE: Final = ("unknown", 0)
"""Address of a peer that was gone before it could be asked for."""


class LogSource(msgspec.Struct, frozen=True, kw_only=True):
    """The log that is streamed, and what all connections to replicas share."""

    store: Store
    settings: RuntimeSettings
    clock: Clock
    framing: NewMasterFraming
    grown: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set by an append while replicas are connected."""


class ReplicaConnection:
    """One replica: its reports, its place in the log, and what it is sent."""

    def __init__(
        self,
        source: LogSource,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._source = source
        self._number = number
        self._reader = reader
        self._writer = writer
        self._clock = source.clock
        self._meter = TransferMeter()
        self._reported = asyncio.Event()
        self._report = 0
        self._position = 0
        self._read_ms = self._written_ms = source.clock.monotonic_ms()
        self._sent = SentFrame(source.store.raw.end, self._read_ms)
        peer: Sequence[Any] = writer.get_extra_info("peername") or GONE
        self.host: str = peer[0]
        self.address = join_address(self.host, peer[1])
        self.is_local = is_on_this_machine(peer, writer.get_extra_info("sockname"))
        """Whether the replica runs on this machine."""
        self.framing: MasterFraming = source.framing(number, self.host, partial(write_open, writer))

    @property
    def facts(self) -> ConnectionFacts:
        """Progress of this replica."""
        now_ms = self._clock.monotonic_ms()
        return ConnectionFacts(
            address=self.address,
            report=self._report,
            lag=self._source.store.end_position - self._report,
            is_in_sync=self.framing.is_in_sync(self._report),
            position=self._position,
            bytes_per_second=self._meter.bytes_per_second(now_ms),
            silent_ms=now_ms - self._read_ms,
        )

    @property
    def place(self) -> ConnectionPlace:
        """Facts that decide whether this connection makes room for another."""
        return ConnectionPlace(
            host=self.host, report=self._report if self._reported.is_set() else None
        )

    async def take_proof(self, credentials: Credentials) -> None:
        """Have the replica prove that it knows the credentials. Raises StreamError."""
        config, challenge = self._source.settings.config, encode_challenge(token_bytes(NONCE_SIZE))
        write_open(self._writer, challenge)
        try:
            async with asyncio.timeout(FIRST_REPORT_MS / 1000):
                frame = await self._reader.readexactly(FRAME_SIZE)
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            raise StreamError(UNPROVEN) from None
        expected = encode_proof(credentials, challenge, config.cluster_name, config.broker_name)
        if not frame.startswith(PROOF):
            raise StreamError(UNPROVEN)
        if not is_proof(frame, expected):
            raise StreamError(
                "its proof is wrong: its innerClientAuthenticationCredentials, brokerClusterName"
                " and brokerName have to be those of this broker"
            )

    async def serve(self) -> None:
        """Serve the replica; raises what ends the connection, in an ExceptionGroup."""
        async with asyncio.TaskGroup() as group:
            for work in (self._read(), self._feed(), self._keep()):
                group.create_task(work)

    async def _read(self) -> None:
        while chunk := await self._reader.read(REPORT_READ_SIZE):
            self._read_ms = self._clock.monotonic_ms()
            if (report := self.framing.feed(chunk)) is None:
                continue
            end = self._source.store.end_position
            if not is_possible_report(report, end):
                raise StreamError(
                    f"it reports a log that ends at {report}, and this master's ends at {end}: it "
                    "is no replica, or one of another past, whose directory has to be emptied"
                )
            if not self._reported.is_set():
                self._position = self.framing.start(report)
            elif report > self._position:
                raise StreamError(
                    f"it reports a log that ends at {report}, and was sent the log up to"
                    f" {self._position}: it is no replica, or somebody else writes its log"
                )
            self._report = report
            self.framing.note(report, self._sent)
            self._reported.set()
        raise PeerGone

    async def _feed(self) -> None:
        """Send the log, from where the first report says."""
        await self._reported.wait()
        log.info("the replica at %s gets the log from %d on", self.address, self._position)
        grown, store = self._source.grown, self._source.store
        while True:
            grown.clear()
            if frames := b"".join(self._frames()):
                write_open(self._writer, frames)
                self._written_ms = self._clock.monotonic_ms()
                await self._writer.drain()
            if self._position == store.end_position:
                await grown.wait()
            elif frames:
                await asyncio.sleep(0)
            else:
                await self._clock.sleep(next_second_ms(self._clock.monotonic_ms()))

    def _frames(self) -> Iterator[bytes | memoryview]:
        """Headers and slices of the log, `WRITE_SIZE` together at most."""
        raw, config = self._source.store.raw, self._source.settings.config
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
        raw = self._source.store.raw
        if self._position == raw.end:
            return memoryview(b"")
        if (limit := self.framing.size_max(self._position)) is not None:
            size_max = min(size_max, limit)
        return raw.read(self._position, size_max)

    async def _keep(self) -> None:
        """Send a heartbeat after silence, and end the connection of a silent replica."""
        while True:
            config = self._source.settings.config
            due_ms = self._written_ms + config.ha_heartbeat_interval - self._clock.monotonic_ms()
            await self._clock.sleep(max(min(due_ms, TICK_MS), 1))
            now_ms = self._clock.monotonic_ms()
            if now_ms - self._read_ms >= self._silence_max_ms():
                raise StreamError(f"it was silent for {now_ms - self._read_ms} ms")
            if now_ms - self._written_ms >= config.ha_heartbeat_interval:
                self._written_ms = now_ms
                if self._reported.is_set():
                    write_open(self._writer, self.framing.header(self._position, 0))

    def _silence_max_ms(self) -> int:
        """How long the replica may be silent.

        Shorter before its first report, and if another one says that it is this replica.
        """
        config = self._source.settings.config
        silence_ms = config.ha_housekeeping_interval
        if not self._reported.is_set():
            return min(silence_ms, FIRST_REPORT_MS)
        if self.framing.is_contested:
            return min(silence_ms, patience_ms(config.ha_heartbeat_interval))
        return silence_ms
