"""Connection: bytes in, events out; numbers requests, matches replies, owns deadlines.

It does no I/O and asks no clock: who drives it moves the bytes and says what time it is. Both ends
may ask; replies come in any order and find their request by its number (opaque).
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from roquet.wire.call import Call
from roquet.wire.codes import FLAG_RESPONSE, VERSION, SerializeType
from roquet.wire.command import PYTHON, Command, decode
from roquet.wire.fields import encode_call
from roquet.wire.frame import FRAME_SIZE_MAX, FrameReader

OPAQUE_MAX: Final = 0x7FFF_FFFF
"""The number of a request has 32 bits and a sign; after the last comes 0 again."""


class PendingCall(msgspec.Struct, frozen=True):
    """A call that waits for its answer."""

    opaque: int
    call: Call[Any]
    deadline_ms: int


class RequestReceived(msgspec.Struct, frozen=True):
    """The peer asks."""

    command: Command


class ReplyReceived(msgspec.Struct, frozen=True):
    """The peer answers a call that waited."""

    command: Command
    entry: PendingCall


ConnectionEvent: TypeAlias = RequestReceived | ReplyReceived


class Connection:
    """One end of one connection."""

    def __init__(
        self,
        *,
        size_max: int = FRAME_SIZE_MAX,
        language: int = PYTHON,
        version: int = VERSION,
        serialize_type: int = SerializeType.JSON,
        first_opaque: int = 0,
        encode: Callable[..., bytes] = encode_call,
    ) -> None:
        self.reader = FrameReader(size_max)
        self._encode = encode
        self._speaks = {
            "language": int(language),
            "version": version,
            "serialize_type": int(serialize_type),
        }
        self._next_opaque = first_opaque
        self._pending: dict[int, PendingCall] = {}

    @property
    def pending(self) -> int:
        """How many calls wait for their answer."""
        return len(self._pending)

    def receive_data(self, chunk: bytes) -> list[ConnectionEvent]:
        """What these bytes complete; a reply that nobody waits for (any more) is passed over.

        RemoteProtocolError: the peer does not speak our protocol; close the connection.
        """
        events: list[ConnectionEvent] = []
        for frame in self.reader.feed(chunk):
            command = decode(frame)
            if not command.flag & FLAG_RESPONSE:
                events.append(RequestReceived(command))
            elif (entry := self._pending.pop(command.opaque, None)) is not None:
                events.append(ReplyReceived(command, entry))
        return events

    def send_call(
        self, call: Call[Any], deadline_ms: int = 0, *, oneway: bool = False
    ) -> tuple[int, bytes]:
        """The number of a new request and its bytes; one-way calls are not waited for."""
        opaque = self._take_opaque()
        frame = self._encode(call, opaque=opaque, oneway=oneway, **self._speaks)
        if not oneway:
            self._pending[opaque] = PendingCall(opaque, call, deadline_ms)
        return opaque, frame

    def forget(self, opaque: int) -> None:
        """The caller waits no longer."""
        self._pending.pop(opaque, None)

    def expire(self, now_ms: int) -> list[int]:
        """The numbers of the calls whose time is over; they are forgotten."""
        late = [o for o, entry in self._pending.items() if entry.deadline_ms <= now_ms]
        for opaque in late:
            del self._pending[opaque]
        return late

    def next_deadline(self) -> int | None:
        """When `expire` will next have something to do."""
        return min((entry.deadline_ms for entry in self._pending.values()), default=None)

    def close(self) -> list[PendingCall]:
        """The calls that will get no answer any more."""
        left = list(self._pending.values())
        self._pending.clear()
        return left

    def _take_opaque(self) -> int:
        """The next number that no waiting call has."""
        while True:
            opaque = self._next_opaque
            self._next_opaque = opaque + 1 if opaque < OPAQUE_MAX else 0
            if opaque not in self._pending:
                return opaque
