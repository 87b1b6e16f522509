"""BlockingChannel: calls over a plain socket, for reads in Spark workers."""

import socket
from contextlib import suppress
from struct import Struct
from typing import Any, Final, Self, cast

import msgspec

from roquet.model.errors import (
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    RemoteProtocolError,
    UsageError,
)
from roquet.net.address import address_error, split_address
from roquet.net.channel import PLAIN, Security
from roquet.net.clock import SYSTEM_CLOCK
from roquet.net.connection.pending_calls import parse_reply
from roquet.net.router import CALL_TIMEOUT_MS, R
from roquet.net.tls import tls_error
from roquet.wire.call import Call
from roquet.wire.command import Command, decode
from roquet.wire.fields import encode_call
from roquet.wire.frame import FRAME_SIZE_MAX, HEADER_SIZE_MAX

BUFFER_SIZE: Final = 256 * 1024
"""Bytes of a new receive buffer; it grows to the largest frame received."""

_PREFIX: Final = Struct(">II")


class BlockingChannel:
    """One connection to one server, one call at a time, on the calling thread.

    The body of a reply is a view into a buffer that the next call overwrites: use it or copy it
    before the next call. After any error except CallRefused the channel is closed; make a new one.
    """

    def __init__(
        self, address: str, timeout_ms: int = CALL_TIMEOUT_MS, security: Security = PLAIN
    ) -> None:
        self.address = address
        self._timeout_ms = timeout_ms
        self._opaque = 0
        self._buffer = bytearray(BUFFER_SIZE)
        self._filled = 0
        self._used = 0
        self._ahead: tuple[Call[Any], int] | None = None
        self._encode = security.signer.encode_call if security.signer else encode_call
        try:
            self._socket = _connected(address, timeout_ms, security)
        except (OSError, UnicodeError) as error:
            why = address_error(error) if security.context is None else tls_error(error)
            raise ConnectFailed(f"cannot connect to {address}: {why}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.closed = False

    def call(self, call: Call[R], timeout_ms: int | None = None) -> R:
        """Send a call and wait for its reply.

        Raises CallRefused, CallTimeout, ConnectionLost or RemoteProtocolError.
        """
        if self.closed:
            raise UsageError(f"the channel to {self.address} is closed: make a new one")
        limit_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = SYSTEM_CLOCK.monotonic_ms() + limit_ms
        try:
            command = self._converse(call, deadline_ms)
        except TimeoutError as error:
            self.close()
            text = f"{self.address}: {type(call).__name__}: no answer within {limit_ms} ms"
            raise CallTimeout(text) from error
        except OSError as error:
            self.close()
            raise ConnectionLost(f"{self.address}: {address_error(error)}") from error
        except RemoteProtocolError as error:
            self.close()
            raise RemoteProtocolError(f"{self.address}: {error}") from error
        return parse_reply(call, command)

    def ask_ahead(self, call: Call[Any]) -> None:
        """Send the next call early, so that the server works on it meanwhile.

        The next `call` takes the reply if it is equal to this one; it also reports a failure.
        """
        if not self.closed and self._ahead is None:
            self._opaque += 1
            self._ahead = (call, self._opaque)
            with suppress(OSError):  # the next call meets the error again
                self._wait_until(SYSTEM_CLOCK.monotonic_ms() + self._timeout_ms)
                self._socket.sendall(self._encode(call, opaque=self._opaque))

    def close(self) -> None:
        """Close the connection."""
        self.closed = True
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _converse(self, call: Call[Any], deadline_ms: int) -> Command:
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead[0] != call:
            self._opaque += 1
            self._wait_until(deadline_ms)
            self._socket.sendall(self._encode(call, opaque=self._opaque))
        while True:
            command = self._receive(deadline_ms)
            # Requests of the server are not answered here, and the reply to a call that was sent
            # ahead and never made is dropped.
            if command.is_response and command.opaque == self._opaque:
                return command

    def _receive(self, deadline_ms: int) -> Command:
        """Receive the next command; its body is a view into the buffer."""
        left = self._filled - self._used
        self._buffer[:left] = self._buffer[self._used : self._filled]
        self._filled, self._used = left, 0
        self._fill(_PREFIX.size, deadline_ms)
        size, word = _PREFIX.unpack_from(self._buffer)
        header_size = word & HEADER_SIZE_MAX
        if not 4 + header_size <= size <= FRAME_SIZE_MAX:
            raise RemoteProtocolError(f"frame of {size} bytes with a header of {header_size}")
        end = 4 + size
        self._fill(end, deadline_ms)
        self._used = end
        body_at = _PREFIX.size + header_size
        view = memoryview(self._buffer)
        command = decode(bytes(view[4:body_at]))
        return msgspec.structs.replace(command, body=cast("bytes", view[body_at:end]))

    def _fill(self, size: int, deadline_ms: int) -> None:
        if size > len(self._buffer):
            larger = bytearray(
                size + BUFFER_SIZE
            )  # a reply's body may still be a view of the old one
            larger[: self._filled] = memoryview(self._buffer)[: self._filled]
            self._buffer = larger
        view = memoryview(self._buffer)
        while self._filled < size:
            self._wait_until(deadline_ms)
            count = self._socket.recv_into(view[self._filled :])
            if not count:
                raise ConnectionResetError("the peer closed the connection")
            self._filled += count

    def _wait_until(self, deadline_ms: int) -> None:
        left_ms = deadline_ms - SYSTEM_CLOCK.monotonic_ms()
        if left_ms <= 0:
            raise TimeoutError
        self._socket.settimeout(left_ms / 1000)


def _connected(address: str, timeout_ms: int, security: Security) -> socket.socket:
    """Connect, with TLS when `security` has a context."""
    host, port = split_address(address)
    plain = socket.create_connection((host, port), timeout_ms / 1000)
    if security.context is None:
        return plain
    try:
        return security.context.wrap_socket(plain, server_hostname=security.server_name or host)
    except BaseException:
        plain.close()
        raise
