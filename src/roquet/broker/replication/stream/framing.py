"""Stream framing: what differs between the two forms of the stream; its progress, and why it ends.

                classic                          with epochs
    greeting    the first report                 handshake, answered by the master's epochs
    frames      position, bytes                  and epoch, confirmed position
    start       the file of the master's end     the oldest file, or the last one

`stream_server` and `stream_client` drive either of them.
"""

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from roquet.broker.replication.confirmation.acknowledgements import Acknowledgements
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.model.errors import RoquetError
from roquet.rules.replication.sync_state import SentFrame, in_sync_count
from roquet.rules.replication.transfer import LogBounds, transfer_start
from roquet.store.store import Store
from roquet.wire.replication.classic_stream import (
    LogFrame,
    LogFrameDecoder,
    ReportDecoder,
    encode_frame_header,
    encode_report,
)


class StreamError(RoquetError):
    """A stream of the log cannot go on: the text says why, and what helps."""


class PeerGone(StreamError):
    """The other end has closed the connection."""

    def __init__(self) -> None:
        super().__init__("it has closed the connection")


class LogDiverged(StreamError):
    """The log of a replica is not a part of its master's: an operator has to choose one."""


class ConnectionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A replica, as its master sees it."""

    address: str
    """HOST:PORT that it connects from."""
    report: int
    """Where its log ends, by its last report."""
    lag: int
    """Bytes that it has not reported."""
    is_in_sync: bool
    position: int
    """Position that it is sent next."""
    bytes_per_second: int
    silent_ms: int
    """Ms since its last report."""


class FollowerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A replica, as it sees itself."""

    master: str | None
    """HOST:PORT from which it gets the log; None: not known."""
    end: int
    """Where its log ends."""
    read_ms: int
    """Wall time of the last bytes from the master; 0 before the first."""
    written_ms: int
    """Wall time of its last report; 0 before the first."""
    bytes_per_second: int
    is_connected: bool
    local: str | None
    """HOST:PORT from which it is connected to the master; None: it is not."""


def first_error(error: BaseException) -> BaseException:
    """The first error of a group of errors, or the error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def write_open(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write to a connection; raises PeerGone if it is lost.

    uvloop's transport, unlike asyncio's, refuses to be written to as soon as a reset is noticed,
    which is before readers are told.
    """
    if writer.is_closing():
        raise PeerGone
    writer.write(data)


def begin_after(report: int, store: Store, *, from_last_file: bool) -> int:
    """Position at which the stream begins after a first report. Raises StreamError."""
    raw = store.raw
    bounds = LogBounds(first=raw.begin, end=raw.end, file_size=raw.file_size)
    start = transfer_start(report, bounds, from_last_file=from_last_file)
    if start is None:
        raise StreamError(
            f"its log ends at {report}, and this master's begins at {raw.begin}: empty "
            "its directory, then it begins anew"
        )
    return max(start, raw.begin)


class MasterFraming:
    """One connection at the master's end, in the classic form."""

    def __init__(
        self, number: int, host: str, store: Store, acknowledgements: Acknowledgements, gap_max: int
    ) -> None:
        self._number = number
        self._host = host
        self._store = store
        self._acknowledgements = acknowledgements
        self._gap_max = gap_max
        self._decoder = ReportDecoder()

    def feed(self, chunk: bytes) -> int | None:
        """Last report in these bytes; None without one. Raises RemoteProtocolError, StreamError."""
        return self._decoder.feed(chunk)

    def start(self, report: int) -> int:
        """Position at which the stream begins after a first report. Raises StreamError."""
        return begin_after(report, self._store, from_last_file=True)

    def size_max(self, _position: int) -> int | None:
        """Bytes that one frame from a position on may have at most; None: as many as fit."""
        return None

    def header(self, position: int, size: int) -> bytes:
        """Header of a frame; without bytes that is a heartbeat."""
        return encode_frame_header(position, size)

    def note(self, report: int, _last: SentFrame) -> None:
        """Note a report; the second argument is the last frame that was sent."""
        self._acknowledgements.report(self._number, self._host, report)

    def is_in_sync(self, report: int) -> bool:
        """Whether the replica counts as in sync."""
        return in_sync_count(self._store.end_position, [report], self._gap_max) > 1

    @property
    def is_contested(self) -> bool:
        """Whether another connection says that it is this replica: one of the two may be dead."""
        return False

    def close(self) -> None:
        """Note that the connection has ended."""
        self._acknowledgements.forget(self._number)


NewMasterFraming = Callable[[int, str, Callable[[bytes], None]], MasterFraming]
"""Makes the framing of a connection from its number, the replica's host and a function that writes
to it."""


def classic_master(
    store: Store, acknowledgements: Acknowledgements, settings: RuntimeSettings
) -> NewMasterFraming:
    """Makes classic framings of a master's connections."""
    return lambda number, host, _write: MasterFraming(
        number, host, store, acknowledgements, settings.config.ha_gap_max
    )


class ConsistentPoint(msgspec.Struct, frozen=True):
    """Position from which a replica goes on: what it has in front of it should be the master's."""

    position: int


class ReplicaFraming:
    """One connection at the replica's end, in the classic form."""

    is_ready = True
    """Whether reports may be sent: the greeting is over, and the logs are compared."""

    def __init__(self) -> None:
        self._decoder = LogFrameDecoder()

    def greeting(self) -> bytes:
        """First bytes to be sent, before any report."""
        return b""

    def feed(self, chunk: bytes) -> Iterable[LogFrame | ConsistentPoint]:
        """Frames in these bytes; each is appended before the next one is asked for.

        With epochs the first one is the consistent point: the log is cut there after it. Raises
        RemoteProtocolError, StreamError, StoreError.
        """
        return self._decoder.feed(chunk)

    def report(self, log_end: int) -> bytes:
        """Encode a report."""
        return encode_report(log_end)
