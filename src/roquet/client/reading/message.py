"""ReceivedMessage: a message in a consumer's hands, which is told here how it went."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType, TracebackType
from typing import Final, Protocol, Self, runtime_checkable

from roquet.model import properties as names
from roquet.model.errors import RecordError, UsageError
from roquet.model.flags import COMPRESSION_MASK
from roquet.model.names import is_retry
from roquet.model.namespaces import unwrap
from roquet.model.queue import MessageQueue
from roquet.wire.records import record
from roquet.wire.records.compression import decompress
from roquet.wire.records.message_id import offset_message_id
from roquet.wire.records.record import HEAD, RECORD_SIZE_MIN, Record

_NONE: Final[Mapping[str, str]] = MappingProxyType({})

DEAD_LETTER: Final = -1
"""The delay of a message that is given up."""

DamagedRecordListener = Callable[[int, RecordError], object]
"""What is told the queue offset of a record that cannot be read."""


class MessageOwner(Protocol):
    """Who holds the queue that a message came from, and hears how it went."""

    @property
    def is_held(self) -> bool:
        """Whether the queue is still this consumer's."""

    def finish(self, message: "InboundMessage") -> None:
        """The message is handled."""

    def again(self, message: "InboundMessage", delay_ms: int | None) -> None:
        """The message is to be handled again, after a time; None leaves the time to the holder.

        DEAD instead of a time: never again, it goes to the dead letters.
        """


@runtime_checkable
class ReplyingOwner(Protocol):
    """A holder through which requests can be answered."""

    async def reply(
        self, message: "InboundMessage", body: bytes, properties: Mapping[str, str]
    ) -> bool:
        """Answer the message, which is a request; whether who asked has got it."""


class InboundMessage:
    """A message, where, when and from whom it was stored, and what becomes of it."""

    has_failed = False
    """Whether it was said of this try that it failed."""

    def __init__(self, queue: MessageQueue, found: Record, owner: MessageOwner) -> None:
        self.queue = queue
        self.body = decompress(found.body, found.sys_flag) if found.sys_flag & 1 else found.body
        self.queue_offset = found.queue_offset
        self.tries = found.reconsume_times
        """How often it was handled before without success, here or by another member."""
        self._record = found
        self._owner = owner
        self._is_settled = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.message_id} {self.queue} offset {self.queue_offset}>"

    @property
    def topic(self) -> str:
        """The topic it was sent to, also when it comes again from the retry topic."""
        return unwrap(getattr(self._owner, "namespace", None), self.whole_topic)

    @property
    def whole_topic(self) -> str:
        """The same with the namespace that the client took off."""
        topic = self.queue.topic
        return (self.properties.get(names.RETRY_TOPIC) or topic) if is_retry(topic) else topic

    @property
    def broker_name(self) -> str:
        """The broker that stored it."""
        return self.queue.broker_name

    @property
    def queue_id(self) -> int:
        """The number of its queue on that broker."""
        return self.queue.queue_id

    @property
    def flag(self) -> int:
        """The number that its sender put on it."""
        return self._record.flag

    @property
    def size(self) -> int:
        """Of the whole record, in bytes."""
        return self._record.size

    @property
    def stored_body(self) -> tuple[bytes, int]:
        """The body as it is stored, and the flags that say how it is compressed."""
        return self._record.body, self._record.sys_flag & (COMPRESSION_MASK | 1)

    @property
    def position(self) -> int:
        """Of the record in the broker's log, in bytes."""
        return self._record.position

    @property
    def born_ms(self) -> int:
        """When it was sent, by the sender's clock."""
        return self._record.born_ms

    @property
    def born_host(self) -> str:
        """From where it was sent."""
        return record.decode_host(self._record.born_host)

    @property
    def stored_ms(self) -> int:
        """When it was stored, by the broker's clock."""
        return self._record.stored_ms

    @property
    def store_host(self) -> str:
        """Where it was stored."""
        return record.decode_host(self._record.store_host)

    @property
    def reconsume_times(self) -> int:
        """How often it was sent back."""
        return self._record.reconsume_times

    @cached_property
    def properties(self) -> Mapping[str, str]:
        """All properties: the sender's and the system's."""
        return record.decode_properties(self._record.properties)

    @property
    def offset_message_id(self) -> str:
        """The broker's own id."""
        return offset_message_id(self._record.store_host, self._record.position)

    @property
    def message_id(self) -> str:
        """The id that the producer gave, else the broker's."""
        try:
            given = self.properties.get(names.UNIQUE_KEY)
        except RecordError:  # whoever speaks of a damaged message has to name it
            given = None
        return given or self.offset_message_id

    @property
    def tag(self) -> str | None:
        """The tag that the producer gave."""
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that the producer gave."""
        return tuple(self.properties.get(names.KEYS, "").split())

    @property
    def key(self) -> str | None:
        """The first of the keys."""
        return next(iter(self.keys), None)

    @property
    def order_key(self) -> str | None:
        """The key that chose its queue."""
        return self.properties.get(names.SHARDING_KEY)

    @property
    def wants_reply(self) -> bool:
        """Whether its producer waits for a reply."""
        return bool(self.properties.get(names.REPLY_TO_CLIENT))

    @property
    def owner(self) -> MessageOwner:
        """Who holds its queue."""
        return self._owner

    @property
    def is_held(self) -> bool:
        """Whether its queue is still this consumer's: else another member will get it, too."""
        return self._owner.is_held

    def settle(self) -> None:
        """It is handled."""
        if not self._is_settled:
            self._is_settled = True
            self._owner.finish(self)

    def fail(self, delay_ms: int | None = None) -> None:
        """It shall come again."""
        if delay_ms is not None and delay_ms < 0:
            raise UsageError(f"a message cannot come again after {delay_ms} ms")
        if not self._is_settled:
            self._is_settled = self.has_failed = True
            self._owner.again(self, delay_ms)

    def give_up(self) -> None:
        """It shall not come again: it goes to the group's dead letters."""
        if not self._is_settled:
            self._is_settled = self.has_failed = True
            self._owner.again(self, DEAD_LETTER)

    @property
    def is_settled(self) -> bool:
        """Whether it was told how this try went."""
        return self._is_settled

    def next_try(self) -> Self:
        """The same message once more; whatever is said of this try, late, does not touch that."""
        again = object.__new__(type(self))
        again.__dict__.update(self.__dict__)
        again._is_settled = again.has_failed = False
        again.tries += 1
        return again


class ReceivedMessage(InboundMessage):
    """A message that is told by its coroutines how it went.

    `await message.ack()` says that it is handled, `await message.nack()` that it shall come again,
    `await message.dead_letter()` that it never shall; `async with message:` says one of the first
    two by how the block ends.
    """

    async def ack(self) -> None:
        """It is handled: never again, once progress is saved."""
        self.settle()

    async def nack(self, delay_ms: int | None = None) -> None:
        """It shall come again, after a time; by itself the time grows from one try to the next."""
        self.fail(delay_ms)

    async def dead_letter(self) -> None:
        """It will never be handled well: it goes to the group's dead letters, `%DLQ%` and group."""
        self.give_up()

    async def reply(self, body: bytes, *, properties: Mapping[str, str] = _NONE) -> bool:
        """Answer a request; False when its producer has gone, or waits no more.

        Whether the message is handled is said as ever: by how the handler ends, or by `ack`.
        """
        if not isinstance(self._owner, ReplyingOwner):
            raise UsageError(f"{self!r} cannot be answered by who holds it")
        return await self._owner.reply(self, body, properties)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.ack()
        else:
            await self.nack()


def read_records(body: bytes, damaged: DamagedRecordListener) -> Iterator[Record]:
    """The records of a pull's body; one that cannot be read is told, and left out."""
    at, end = 0, len(body)
    while end - at >= RECORD_SIZE_MIN:
        try:
            found = record.decode(body, at)
        except RecordError as error:
            total, _, _, _, _, offset, *_ = HEAD.unpack_from(body, at)
            if not RECORD_SIZE_MIN <= total <= end - at:
                return
            damaged(offset, error)
            at += total
        else:
            yield found
            at += found.size
