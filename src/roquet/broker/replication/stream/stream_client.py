"""StreamClient: follows the log of a master, in the classic form or with epochs.

    frames ──▶ append to the log ──▶ report where it ends ──▶ (the master's senders go on)
                     │
                     └──▶ dispatch: queue entries of whole records ──▶ waiting pulls wake

Frames are slices of the master's log, so both logs are the same byte by byte; a record that is
half there when a connection is lost is cut off, and comes again. Appending and dispatching take
turns with requests of clients: a step is about a millisecond.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from roquet.broker.log.message_log import MessageLog
from roquet.broker.replication.role import Role, RoleCell
from roquet.broker.replication.stream.framing import (
    ConsistentPoint,
    FollowerFacts,
    LogDiverged,
    PeerGone,
    ReplicaFraming,
    StreamError,
    first_error,
    write_open,
)
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.log_records import logger
from roquet.model.errors import RoquetError, StoreError, StoreFull
from roquet.model.settings import parse_address
from roquet.net.address import address_error, join_address
from roquet.net.clock import Clock
from roquet.rules.replication.acknowledgement import ReplicaAck
from roquet.rules.replication.transfer import TransferMeter
from roquet.store.replication.queue_builder import QueueOffsetMismatch
from roquet.wire.replication.classic_stream import LogFrame
from roquet.wire.replication.replica_proof import CHALLENGE, FRAME_SIZE, encode_proof

log = logger(__name__)

CONNECT_TIMEOUT_MS: Final = 3_000
"""Timeout of a connect in ms."""

CHALLENGE_MS: Final = 2_000
"""Ms in which a master has asked for a proof, if it does: one that does says nothing before."""

RECONNECT_MS: Final = 1_000
"""Ms between two tries to reach the master; a new address is tried at once. Apache's replicas wait
for 5 s. As long as that a master would lack a replica that it may need, and a replica would not
know that its master has lost the end of its log."""

READ_SIZE: Final = 256 * 1024
"""Bytes of the stream that are read and appended before others have their turn. Twice as many
wait at most; then the master has to wait."""

DISPATCH_COUNT: Final = 128
"""Records dispatched before others have their turn: less than a millisecond."""

FULL_PAUSE_MS: Final = 1_000
"""Ms between two tries to append while the disk is full."""

TICK_MS: Final = 1_000
"""Longest time in ms between two looks for a heartbeat that is due or a silent master."""

UNSENT_MAX: Final = 4 * 1024
"""Bytes of reports that the master has not read: later reports say the same and more."""


class StreamClient:
    """A replica's connection to its master, made again whenever it is lost."""

    def __init__(
        self,
        message_log: MessageLog,
        settings: RuntimeSettings,
        clock: Clock,
        role: RoleCell,
        framing: Callable[[], ReplicaFraming] = ReplicaFraming,
    ) -> None:
        self._new_framing = framing
        self._framing: ReplicaFraming = framing()
        self._conversation: asyncio.Task[None] | None = None
        self._store = message_log.store
        self._flush = message_log.flush
        self._arrivals = message_log.arrivals
        self._settings = settings
        self._clock = clock
        self._role = role
        self._meter = TransferMeter()
        self._undispatched = asyncio.Event()
        self._mismatch: QueueOffsetMismatch | None = None
        """Why records of the log get no queue entries: it may be of another past."""
        self._appended = asyncio.Event()
        self._moved = asyncio.Event()
        """Set when the master's address has changed."""
        self._writer: asyncio.StreamWriter | None = None
        self._address: str | None = None
        self._reported = 0
        self._read_ms = self._written_ms = 0
        self._wall_read_ms = self._wall_written_ms = 0
        self._complaint = ""
        self.own_port = 0
        """The port on which this broker itself streams its log: never followed."""
        self.check_log: Callable[[str, int], Awaitable[None]] | None = None
        """Called before the first report with the address of a master, and a position in front of
        which the log should be the master's; raises StreamError."""
        self.has_diverged = False
        """Whether the last comparison found that the log is not a part of the master's."""
        self.on_compared: list[Callable[[], object]] = []
        """Each is called after a change of `has_diverged`."""
        self.following: int | None = None
        """Number of this conversation once the log is known to be a part of the master's: compared
        and cut, and followed by what the master sends. None until then, and without one; in another
        conversation the master may have another log, or this one may have been cut."""
        self._conversations = 0

    @property
    def facts(self) -> FollowerFacts:
        """How far this replica is."""
        return FollowerFacts(
            master=self._role.current.master_stream,
            end=self._store.raw.end,
            read_ms=self._wall_read_ms,
            written_ms=self._wall_written_ms,
            bytes_per_second=self._meter.bytes_per_second(self._clock.monotonic_ms()),
            is_connected=self._writer is not None,
            local=None if self._writer is None else _local_address(self._writer),
        )

    async def serve(self) -> None:
        """Follow the master, forever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._dispatch())
            group.create_task(self._follow())

    def follow_role(self, _before: Role, role: Role) -> None:
        """Leave a master that is not the master any more."""
        if role.master_stream not in (None, self._address):
            self._moved.set()
            self.following = None
            if self._writer is not None:
                self._writer.transport.abort()

    async def leave(self) -> None:
        """End the connection, and wait until nothing of it is appended any more.

        The role says already that no master is followed.
        """
        self._address = self.following = None
        if (conversation := self._conversation) is not None:
            conversation.cancel()
            await asyncio.gather(conversation, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            self._moved.clear()
            self._address = self._role.current.master_stream
            if self._address is not None:
                await self._follow_once(self._address)
            with suppress(TimeoutError):
                async with asyncio.timeout(RECONNECT_MS / 1000):
                    await self._moved.wait()

    async def _follow_once(self, address: str) -> None:
        """Follow over one connection, and log what ends it."""
        conversation = self._conversation = asyncio.create_task(self._converse(address))
        try:
            await asyncio.wait((conversation,))
        finally:
            conversation.cancel()
            await asyncio.gather(conversation, return_exceptions=True)
            self._conversation = None
        if conversation.cancelled() or (failure := conversation.exception()) is None:
            return
        error = first_error(failure)
        if isinstance(error, RoquetError | OSError):
            self._complain(address, error)
        else:
            log.error("the log of %s cannot be followed; trying again", address, exc_info=error)

    def _complain(self, address: str, error: RoquetError | OSError) -> None:
        """Log why there is no stream; the same reason once, until there was one again."""
        reason = address_error(error) if isinstance(error, OSError) else str(error)
        if reason != self._complaint:
            self._complaint = reason
            level = logging.ERROR if isinstance(error, LogDiverged) else logging.WARNING
            log.log(
                level,
                "the log is not copied from the master at %s: %s; the next try is in %d s",
                address, reason, RECONNECT_MS // 1_000,
            )  # fmt: skip

    async def _converse(self, address: str) -> None:
        """Follow over one connection; raises what ends it."""
        if self._mismatch is not None:
            raise self._mismatch
        self._store.raw.cut_torn()
        await self._flush.step()  # what is reported first is on the disk, whatever is acknowledged
        host, port = parse_address(address, "haMasterAddress")
        security = self._settings.config.calls()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_MS / 1000):
                reader, writer = await asyncio.open_connection(
                    host, port, limit=READ_SIZE, **security.arguments(host)
                )
        except TimeoutError:
            raise StreamError(f"it does not answer within {CONNECT_TIMEOUT_MS} ms") from None
        try:
            self._check_master()
            self._check_peer(writer)
            has_proved = await self._prove(reader, writer)
            self._check_master()
            framing = self._new_framing()
            if framing.is_ready:
                await self._compare(self._store.raw.end)
            self._writer, self._framing = writer, framing
            self._conversations += 1
            self._read_ms = self._clock.monotonic_ms()
            if greeting := self._framing.greeting():
                write_open(writer, greeting)
            self._report(self._store.raw.end)
            async with asyncio.TaskGroup() as group:
                receiving = self._receive(reader, has_proved=has_proved)
                for work in (receiving, self._acknowledge(), self._keep()):
                    group.create_task(work)
        finally:
            self._writer = self.following = None
            writer.transport.abort()

    def _check_master(self) -> None:
        """Raise StreamError when another broker is the master by now."""
        if self._moved.is_set():
            raise StreamError("it is not the master any more")

    async def _compare(self, position: int) -> None:
        """Compare the log in front of a position with the master's. Raises StreamError."""
        if self.check_log is not None:
            try:
                await self.check_log(self._address or "", position)
            except LogDiverged:
                self._note_comparison(has_diverged=True)
                raise
            self._check_master()
        self._note_comparison(has_diverged=False)

    def _note_comparison(self, *, has_diverged: bool) -> None:
        if has_diverged != self.has_diverged:
            self.has_diverged = has_diverged
            for callback in self.on_compared:
                callback()

    def _check_peer(self, writer: asyncio.StreamWriter) -> None:
        """Raise StreamError when the master's address leads to this broker itself."""
        here, there = writer.get_extra_info("sockname"), writer.get_extra_info("peername")
        if here[0] == there[0] and there[1] == self.own_port:
            raise StreamError("that is this broker itself: haMasterAddress has to name the master")

    async def _prove(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Prove to a master that asks for it that this is a replica; whether it has asked.

        Only where this broker would ask replicas as well: others do not wait for the question.
        """
        config = self._settings.config
        credentials = config.inner_credentials
        if credentials is None or not config.proves_replicas:
            return False
        try:
            async with asyncio.timeout(CHALLENGE_MS / 1000):
                challenge = await reader.readexactly(FRAME_SIZE)
        except TimeoutError:  # one of Apache's, or that asks nobody
            return False
        except asyncio.IncompleteReadError:
            raise PeerGone from None
        if not challenge.startswith(CHALLENGE):
            raise StreamError("it sends its log before it was asked to")
        write_open(
            writer, encode_proof(credentials, challenge, config.cluster_name, config.broker_name)
        )
        return True

    async def _first_bytes(self, reader: asyncio.StreamReader, *, has_proved: bool) -> bytes:
        """The first bytes of the stream. Raises StreamError when the master wants a proof."""
        chunk = b""
        with suppress(ConnectionError):
            chunk = await reader.read(READ_SIZE)
        if not chunk and has_proved:
            raise StreamError(
                "it has closed the connection after the proof that this is a replica:"
                " innerClientAuthenticationCredentials, brokerClusterName and brokerName have to be"
                " the same there, and its log says more"
            )
        if chunk.startswith(CHALLENGE):
            raise StreamError(
                "it asks for a proof that this is a replica: set authenticationEnabled and"
                " innerClientAuthenticationCredentials here as there, or name this address in its"
                " ha_plain_replicas"
            )
        return chunk

    async def _receive(self, reader: asyncio.StreamReader, *, has_proved: bool) -> None:
        chunk = await self._first_bytes(reader, has_proved=has_proved)
        while chunk:
            self._read_ms = self._clock.monotonic_ms()
            self._wall_read_ms = self._clock.now_ms()
            was_ready = self._framing.is_ready
            end = self._store.raw.end
            for frame in self._framing.feed(chunk):
                if isinstance(frame, ConsistentPoint):
                    await self._compare(frame.position)
                else:
                    await self._take(frame)
            if self._framing.is_ready != was_ready:  # the log may have been cut
                end = min(end, self._store.raw.end)
                await self._flush.step()
                self._report(self._store.raw.end)
                self._note_following()
            if (taken := self._store.raw.end - end) > 0:
                self._meter.add(taken, self._read_ms)
                self._complaint = ""
                self._undispatched.set()
                self._appended.set()
                if self._settings.config.replica_ack is ReplicaAck.APPENDED:
                    self._report(self._store.raw.end)
            await asyncio.sleep(0)
            chunk = await reader.read(READ_SIZE)
        raise PeerGone

    async def _take(self, frame: LogFrame) -> None:
        """Append a frame; while the disk is full, wait until there is room."""
        while True:
            self._check_master()
            self._check_frame(frame)
            try:
                self._store.raw.append(frame.position, frame.body)
                return self._note_following()
            except StoreFull as error:
                self._complain(self._address or "", error)
                await self._clock.sleep(FULL_PAUSE_MS)
                self._read_ms = self._clock.monotonic_ms()  # it is not the master that is silent

    def _note_following(self) -> None:
        if self._framing.is_ready and not self._moved.is_set():
            self.following = self._conversations

    def _check_frame(self, frame: LogFrame) -> None:
        """Raise StreamError for bytes that do not follow this log."""
        raw, size = self._store.raw, len(frame.body)
        if raw.end not in (raw.begin, frame.position):
            raise StreamError(
                f"it sends its log from {frame.position} on, and this replica's ends at {raw.end}: "
                "the logs are not of one past, or another broker writes here"
            )
        inside = frame.position % raw.file_size
        if (size and not raw.end and inside) or inside + size > raw.file_size:
            raise StreamError(
                f"bytes {frame.position} to {frame.position + size} of its log do not fit into "
                f"files of {raw.file_size} bytes: give this replica the master's "
                "mappedFileSizeCommitLog (log_file_size), and an empty directory"
            )

    async def _acknowledge(self) -> None:
        """Bring the log to the disk and report that, if that is what this replica acknowledges."""
        while True:
            await self._appended.wait()
            self._appended.clear()
            if self._settings.config.replica_ack is ReplicaAck.FLUSHED:
                await self._flush.step()
                self._report(self._store.flushed_position)

    async def _keep(self) -> None:
        """Report after silence, and end the connection to a silent master."""
        while True:
            config = self._settings.config
            due_ms = self._written_ms + config.ha_heartbeat_interval - self._clock.monotonic_ms()
            await self._clock.sleep(max(min(due_ms, TICK_MS), 1))
            now_ms = self._clock.monotonic_ms()
            if (silence_ms := now_ms - self._read_ms) >= config.ha_housekeeping_interval:
                raise StreamError(f"it was silent for {silence_ms} ms")
            if now_ms - self._written_ms >= config.ha_heartbeat_interval:
                is_flushed = config.replica_ack is ReplicaAck.FLUSHED
                end = self._store.flushed_position if is_flushed else self._store.raw.end
                self._report(end)

    def _report(self, log_end: int) -> None:
        """Report to the master, unless it does not read."""
        if self._writer is None or not self._framing.is_ready:
            return
        if self._writer.transport.get_write_buffer_size() > UNSENT_MAX:
            return
        if self._mismatch is not None:  # what follows may be other messages than the master's
            log_end = min(log_end, self._store.raw.dispatched)
        write_open(self._writer, self._framing.report(log_end))
        self._written_ms = self._clock.monotonic_ms()
        self._wall_written_ms = self._clock.now_ms()

    async def _dispatch(self) -> None:
        """Give whole records their queue entries, and wake those who wait for them."""
        complaint = ""
        while True:
            self._undispatched.clear()
            try:
                await self._dispatch_all()
            except StoreError as error:
                self._mismatch = error if isinstance(error, QueueOffsetMismatch) else None
                if complaint != str(error):
                    complaint = str(error)
                    log.warning("the newest messages of the log cannot be read here: %s", error)
            except Exception:
                log.exception("records of the master cannot be dispatched; trying again")
            else:
                complaint, self._mismatch = "", None
                await self._undispatched.wait()
                continue
            await self._clock.sleep(FULL_PAUSE_MS)

    async def _dispatch_all(self) -> None:
        raw, position = self._store.raw, -1
        while raw.dispatched != position:
            position = raw.dispatched
            for arrival in raw.dispatch(DISPATCH_COUNT):
                self._arrivals.arrived(
                    arrival.topic, arrival.queue_id, arrival.offset, arrival.tag_codes
                )
            await asyncio.sleep(0)


def _local_address(writer: asyncio.StreamWriter) -> str | None:
    """HOST:PORT of this end of a connection; None once it is gone."""
    name = writer.get_extra_info("sockname")
    return None if name is None else join_address(name)
