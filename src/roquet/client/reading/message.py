"""ReceivedMessage: a message of a consumer, with its methods to settle it."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Generic, NoReturn, Protocol, Self, TypeVar, cast

import msgspec

from roquet.client.arguments import check_reason, check_timeout
from roquet.client.connection.chosen_pauses import ChosenPauses
from roquet.model import properties as names
from roquet.model.errors import CodecMissing, RecordError, UsageError
from roquet.model.flags import COMPRESSION_MASK
from roquet.model.message import V_co
from roquet.model.moments import utc_time
from roquet.model.names import is_retry
from roquet.model.namespaces import unwrap
from roquet.model.queue import MessageQueue
from roquet.rules.consumption.dead_letter_reason import reason_text
from roquet.rules.consumption.priority import parse_priority
from roquet.wire.records import record
from roquet.wire.records.compression import COMPRESSED, decompress
from roquet.wire.records.message_id import offset_message_id
from roquet.wire.records.record import HEAD, RECORD_SIZE_MIN, Record

AnyM = TypeVar("AnyM", bound="InboundMessage[Any]")
M = TypeVar("M", bound="ReceivedMessage[Any]")

_NONE: Final[Mapping[str, str]] = MappingProxyType({})

DEAD_LETTER: Final = -1
"""Instead of a delay: the message becomes a dead letter."""

UNREADABLE: Final = -2
"""Instead of a delay: this process lacks the package of the body's compression. The message comes
again after a pause, and the try does not count."""

RELEASED: Final = -3
"""Instead of a delay: nobody has handled the message. It comes again at once, to any member, and
the try does not count."""

RELEASE_MS: Final = 1
"""Pause before a released message comes again, the shortest that brokers have."""

UNREADABLE_PAUSE_MS: Final = 30_000
"""Pause before a message comes again whose body cannot be read here."""

DamagedRecordListener = Callable[[int, RecordError], object]
"""Called with the queue offset of an unreadable record, and the error."""


class MessageOwner(Protocol):
    """Owner of the queue that a message came from; messages report to it how they were settled."""

    @property
    def is_held(self) -> bool:
        """Whether the queue is still assigned to this consumer."""

    def finish(self, message: "InboundMessage[Any]") -> None:
        """Note that the message is handled."""

    def retry(self, message: "InboundMessage[Any]", delay_ms: int | None) -> None:
        """Let the message come again after a delay; None leaves the delay to the owner.

        DEAD_LETTER instead of a delay: it never comes again, but goes to the dead letters.
        UNREADABLE: it comes again after UNREADABLE_PAUSE_MS, and its tries do not count.
        RELEASED: it comes again at once, and its tries do not count.
        """


class Replies(Protocol):
    """Sends replies to requests."""

    async def reply(
        self, message: "InboundMessage[Any]", body: bytes, properties: Mapping[str, str]
    ) -> bool:
        """Reply to a request; whether the requester has got the reply."""


class ValueDecoder(Protocol):
    """Makes values of bodies."""

    def value_of(self, message: "InboundMessage[Any]") -> Any:
        """Decode the message's body. Raises BodyError when that cannot be done."""


class MessageContext(msgspec.Struct, frozen=True):
    """Context that all messages of a consumer share; their owners have it as `context`, if any."""

    namespace: str | None = None
    """The client's namespace, which is removed from topic names."""
    decoder: ValueDecoder | None = None
    """None where values are bodies."""
    replies: Replies | None = None
    """None where requests cannot be replied to."""
    pauses: ChosenPauses | None = None
    """None where the default pauses apply to failed messages."""


_NO_CONTEXT: Final = MessageContext()


class InboundMessage(Generic[V_co]):
    """A message as its broker stored it, and its settlement."""

    has_failed: bool | None = None
    """Whether this try is reported as failed, which a thread may know before it is settled; None
    while it is not known, and for a settled try that has not failed."""
    is_released = False
    """Whether it comes again without having been handled, so that this try does not count."""
    unreadable = ""
    """Why the body, which was asked for, cannot be read before a package is installed."""
    undecodable: str | None = None
    """Why the consumer's `decode` cannot read the body; None if it can, or has not tried yet."""
    dead_letter_reason: str | None = None
    """Why the message was given up; None if it was not, or nobody says why."""
    is_undecoded = False
    """Whether the client gave it up before anybody got it, as `decode` cannot read it."""

    def __init__(self, queue: MessageQueue, record: Record, owner: MessageOwner) -> None:
        self.queue = queue
        if not record.sys_flag & COMPRESSED:
            self.body = record.body
        self.queue_offset = record.queue_offset
        self.tries = record.reconsume_times
        """Number of earlier failed tries, here or on another member."""
        self._record = record
        self._owner = owner
        self._is_settled = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.message_id} {self.queue} offset {self.queue_offset}>"

    # Decompressed for whoever looks: of compressed messages that wait for a handler a client may
    # hold a thousand, and each may have a hundred times the size that it was pulled with.
    @cached_property
    def body(self) -> bytes:
        """The content. Raises RecordError if it is compressed and cannot be restored.

        CodecMissing where that needs a package which is not installed: when its handler fails, the
        message comes again until the package is there.
        """
        try:
            return decompress(self._record.body, self._record.sys_flag)
        except CodecMissing as error:
            self.unreadable = str(error)
            raise

    @cached_property
    def value(self) -> V_co:
        """The value that `decode` makes of the body; without `decode` the body.

        Raises BodyError for a body that `decode` cannot read. It comes from consumers without dead
        letters alone: others have moved such a message there.
        """
        decoder = self._context.decoder
        return cast("V_co", self.body if decoder is None else decoder.value_of(self))

    @property
    def body_type(self) -> str | None:
        """The name of the value's type, as a producer with `encode` writes it; None if none did."""
        return self.properties.get(names.BODY_TYPE)

    @property
    def topic(self) -> str:
        """The original topic, also of a message from the retry topic."""
        return unwrap(self._context.namespace, self.whole_topic)

    def __reduce__(self) -> NoReturn:
        """Raise UsageError: only the consumer of this process can settle the message."""
        raise UsageError(
            f"{self!r} belongs to its consumer, and cannot be copied nor handed to another "
            "process: hand on its body and properties"
        )

    @property
    def whole_topic(self) -> str:
        """The original topic with the client's namespace."""
        topic = self.queue.topic
        return (self.properties.get(names.RETRY_TOPIC) or topic) if is_retry(topic) else topic

    @property
    def broker_name(self) -> str:
        """The broker that stored the message."""
        return self.queue.broker_name

    @property
    def queue_id(self) -> int:
        """The id of its queue on that broker."""
        return self.queue.queue_id

    @property
    def flag(self) -> int:
        """The number that the producer attached to the message."""
        return self._record.flag

    @property
    def size(self) -> int:
        """Size of the whole record in bytes."""
        return self._record.size

    @property
    def stored_body(self) -> tuple[bytes, int]:
        """The body as stored, and the flags of its compression."""
        return self._record.body, self._record.sys_flag & (COMPRESSION_MASK | 1)

    @property
    def position(self) -> int:
        """Position of the record in the broker's commit log, in bytes."""
        return self._record.position

    @property
    def born_ms(self) -> int:
        """Time of the send, by the producer's clock."""
        return self._record.born_ms

    @property
    def born_host(self) -> str:
        """Address of the producer."""
        return record.decode_host(self._record.born_host)

    @property
    def stored_ms(self) -> int:
        """Time of storage, by the broker's clock."""
        return self._record.stored_ms

    @property
    def born_at(self) -> datetime:
        """`born_ms` as a datetime in UTC; RecordError for one that no date has."""
        return utc_time(self.born_ms)

    @property
    def stored_at(self) -> datetime:
        """`stored_ms` as a datetime in UTC; RecordError for one that no date has."""
        return utc_time(self.stored_ms)

    @property
    def store_host(self) -> str:
        """Address of the broker."""
        return record.decode_host(self._record.store_host)

    @property
    def reconsume_times(self) -> int:
        """How often the message was sent back."""
        return self._record.reconsume_times

    @cached_property
    def properties(self) -> Mapping[str, str]:
        """All properties: the user's and the system's."""
        return record.decode_properties(self._record.properties)

    @property
    def offset_message_id(self) -> str:
        """The broker's id of the message."""
        return offset_message_id(self._record.store_host, self._record.position)

    @property
    def message_id(self) -> str:
        """The producer's id of the message, else the broker's."""
        return self.properties.get(names.UNIQUE_KEY) or self.offset_message_id

    @property
    def tag(self) -> str | None:
        """The tag; None when there is none."""
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys."""
        return names.split_keys(self.properties.get(names.KEYS, ""))

    @property
    def key(self) -> str | None:
        """The first key; None when there is none."""
        return next(iter(self.keys), None)

    @property
    def order_key(self) -> str | None:
        """The order key that chose the queue; None when there is none."""
        return self.properties.get(names.SHARDING_KEY)

    @property
    def priority(self) -> int | None:
        """The priority; None when there is none."""
        return parse_priority(self.properties.get(names.PRIORITY, ""))

    @property
    def wants_reply(self) -> bool:
        """Whether the producer waits for a reply."""
        return bool(self.properties.get(names.REPLY_TO_CLIENT))

    @property
    def is_held(self) -> bool:
        """Whether its queue is still assigned; else another member gets the message as well."""
        return self._owner.is_held

    @property
    def is_settled(self) -> bool:
        """Whether this try was settled."""
        return self._is_settled

    @property
    def _context(self) -> MessageContext:
        return getattr(self._owner, "context", _NO_CONTEXT)

    def _retry(self, delay_ms: int | None, error: BaseException | None) -> None:
        """Let the message come again; see `retry_later`."""
        owner, pauses = self._owner, self._context.pauses
        if self.unreadable:
            delay_ms = UNREADABLE
        elif delay_ms is None and pauses is not None and owner.is_held:
            delay_ms = pauses.pause_ms(self.tries + 1, error)
        owner.retry(self, delay_ms)


# What the client does to messages: functions, which editors do not offer as methods of a message.


def owner_of(message: InboundMessage[Any]) -> MessageOwner:
    """Return the owner of the message's queue."""
    return message._owner


def settle(message: InboundMessage[Any]) -> None:
    """Report the message as handled."""
    if not message._is_settled:
        message._owner.finish(message)
        message._is_settled = True


def retry_later(
    message: InboundMessage[Any], delay_ms: int | None = None, error: BaseException | None = None
) -> None:
    """Let the message come again after a pause.

    None leaves the pause to the user's backoff, which gets the error, and else to the owner.
    """
    if not message._is_settled:
        message._retry(delay_ms, error)  # raises in another event loop
        message._is_settled = message.has_failed = True


def give_up(message: InboundMessage[Any], reason: str | None = None) -> None:
    """Move the message to the group's dead letters, with the reason as a property there."""
    if not message._is_settled:
        message.dead_letter_reason = (reason and reason_text(reason)) or None
        message._owner.retry(message, DEAD_LETTER)
        message._is_settled = message.has_failed = True


def release(message: InboundMessage[Any]) -> None:
    """Let another member have a message that nobody has handled, without counting a try."""
    if not message._is_settled:
        message._owner.retry(message, RELEASED)
        message._is_settled = message.is_released = True


def next_try(message: AnyM) -> AnyM:
    """Copy a message for its next try; settling this one later has no effect on the copy."""
    again = object.__new__(type(message))
    again.__dict__.update(message.__dict__)
    if message._record.sys_flag & COMPRESSED:  # it may wait for long
        again.__dict__.pop("body", None)
    again.__dict__.pop("value", None)  # the handler may have changed it
    again.undecodable = again.dead_letter_reason = again.has_failed = None
    again._is_settled = again.is_released = False
    again.tries += not (message.unreadable or message.is_released)
    again.unreadable = ""
    return again


class ReceivedMessage(InboundMessage[V_co]):
    """A message settled by its coroutines.

    `await message.ack()` acknowledges it, `await message.nack()` lets it come again, and `await
    message.dead_letter()` gives it up. `async with message:` acknowledges it, or lets it come again
    if the block raises.
    """

    async def ack(self) -> None:
        """Acknowledge the message: it never comes again once the offset is committed."""
        settle(self)

    async def nack(self, delay_ms: int | None = None) -> None:
        """Let the message come again after a pause, which by default grows with each retry."""
        check_timeout(delay_ms, "delay_ms")
        retry_later(self, delay_ms)

    async def dead_letter(self, reason: str | None = None) -> None:
        """Move the message to the group's dead letters, topic `%DLQ%` and the group's name.

        The letter has the reason as its property DLQ_REASON, which `roquet dlq show` shows.
        """
        give_up(self, check_reason(reason))

    async def reply(self, body: bytes, *, properties: Mapping[str, str] = _NONE) -> bool:
        """Reply to a request; returns False when its producer has gone or waits no more.

        A reply does not settle the message: the end of the handler does, or `ack`.
        """
        if (replies := self._context.replies) is None:
            raise UsageError(f"{self!r} cannot be replied to here")
        return await replies.reply(self, body, properties)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None:
            await self.ack()
        else:
            retry_later(self, error=error)


def read_records(body: bytes, damaged: DamagedRecordListener) -> Iterator[Record]:
    """Decode the records of a pull's body; report and skip unreadable ones."""
    at, end = 0, len(body)
    while end - at >= RECORD_SIZE_MIN:
        records, at = record.whole_records(body, at)
        yield from records
        if end - at < RECORD_SIZE_MIN:
            return
        total, _, _, _, _, offset, *_ = HEAD.unpack_from(body, at)
        if not RECORD_SIZE_MIN <= total <= end - at:
            return
        try:
            record.decode(body, at)
        except RecordError as error:
            damaged(offset, error)
        at += total
