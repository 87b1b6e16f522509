"""Stream facts: progress of the streams of a log, as operators see it, and why one ends."""

import asyncio

import msgspec

from roquet.model.errors import RoquetError


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
