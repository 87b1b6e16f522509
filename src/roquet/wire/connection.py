"""Connection: bytes in, events out; numbers requests, matches replies, tracks deadlines.

It does no I/O and reads no clock: its driver moves the bytes and passes the time. Both ends may
send requests; replies come in any order and are matched to their request by its number (opaque).
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from roquet.wire.call import Call
from roquet.wire.codes import FLAG_RESPONSE, VERSION, SerializeType
from roquet.wire.command import PYTHON, Command, decode, decode_large, decode_whole
from roquet.wire.fields import encode_call
from roquet.wire.frame import FRAME_SIZE_MAX, LARGE_FRAME_MIN, FrameReader

OPAQUE_MAX: Final = 0x7FFF_FFFF
"""A request number is a signed 32-bit integer; after the largest one comes 0 again."""


class PendingCall(msgspec.Struct, frozen=True):
    """A call that waits for its reply."""

    opaque: int
    call: Call[Any]
    deadline_ms: int


class ReplyReceived(msgspec.Struct, frozen=True):
    """The peer's reply to a pending call."""

    command: Command
    entry: PendingCall


ConnectionEvent: TypeAlias = Command | ReplyReceived
"""A request from the peer, or its reply."""


class Connection:
    """One end of one connection."""

    __slots__ = ("_encode", "_next_opaque", "_pending", "_speaks", "reader")

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
        """Number of pending calls."""
        return len(self._pending)

    def receive_data(self, chunk: bytes) -> list[ConnectionEvent]:
        """Events that these bytes complete; a reply to an unknown call is ignored.

        Raises RemoteProtocolError if the peer does not speak our protocol; close the connection
        then.
        """
        reader = self.reader
        commands: list[Command] | None
        if reader.wanted >= LARGE_FRAME_MIN and (large := reader.end_large(chunk)):
            commands = [decode_large(large), *map(decode, reader.feed(large.rest))]
        elif reader.pending or (commands := decode_whole(chunk, reader.size_max)) is None:
            # All before any is matched: a call whose reply is thrown away has to stay pending.
            commands = list(map(decode, reader.feed(chunk)))
        events: list[ConnectionEvent] = []
        for command in commands:
            if not command.flag & FLAG_RESPONSE:
                events.append(command)
            elif (entry := self._pending.pop(command.opaque, None)) is not None:
                events.append(ReplyReceived(command, entry))
        return events

    def send_call(
        self, call: Call[Any], deadline_ms: int = 0, *, oneway: bool = False
    ) -> tuple[int, bytes]:
        """Number and bytes of a new request; one-way calls are not pending."""
        opaque = self._take_opaque()
        frame = self._encode(call, opaque=opaque, oneway=oneway, **self._speaks)
        if not oneway:
            self._pending[opaque] = PendingCall(opaque, call, deadline_ms)
        return opaque, frame

    def forget(self, opaque: int) -> None:
        """Stop waiting for a reply."""
        self._pending.pop(opaque, None)

    def expire(self, now_ms: int) -> list[int]:
        """Forget the calls whose deadline has passed; returns their numbers."""
        late = [o for o, entry in self._pending.items() if entry.deadline_ms <= now_ms]
        for opaque in late:
            del self._pending[opaque]
        return late

    def next_deadline(self) -> int | None:
        """Time of the next `expire` with an effect; None without pending calls."""
        return min((entry.deadline_ms for entry in self._pending.values()), default=None)

    def close(self) -> list[PendingCall]:
        """Forget all pending calls and return them: they get no reply."""
        left = list(self._pending.values())
        self._pending.clear()
        return left

    def _take_opaque(self) -> int:
        while True:
            opaque = self._next_opaque
            self._next_opaque = opaque + 1 if opaque < OPAQUE_MAX else 0
            if opaque not in self._pending:
                return opaque
