"""ReceivedMessage: a message in a consumer's hands, which is told here how it went."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import TracebackType
from typing import Protocol, Self

from roquet.model import properties as names
from roquet.model.errors import RecordError
from roquet.model.queue import MessageQueue
from roquet.wire import record
from roquet.wire.compression import decompress
from roquet.wire.message_id import offset_message_id
from roquet.wire.record import HEAD, RECORD_SIZE_MIN, Record

Damaged = Callable[[int, RecordError], object]
"""What is told the queue offset of a record that cannot be read."""


class Holder(Protocol):
    """Who holds the queue that a message came from, and hears how it went."""

    @property
    def is_held(self) -> bool:
        """Whether the queue is still this consumer's."""

    def finish(self, message: "Received") -> None:
        """The message is handled."""

    def again(self, message: "Received", delay_ms: int | None) -> None:
        """The message is to be handled again, after a time; None leaves the time to the holder."""


class Received:
    """A message, where, when and from whom it was stored, and what becomes of it."""

    def __init__(self, queue: MessageQueue, found: Record, holder: Holder) -> None:
        self.queue = queue
        self.body = decompress(found.body, found.sys_flag) if found.sys_flag & 1 else found.body
        self.queue_offset = found.queue_offset
        self.tries = 0
        """How often it was handled before without success, by this consumer."""
        self._record = found
        self._holder = holder
        self._is_settled = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.message_id} {self.queue} offset {self.queue_offset}>"

    @property
    def topic(self) -> str:
        """The topic it was sent to."""
        return self.queue.topic

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
        return self.properties.get(names.UNIQUE_KEY) or self.offset_message_id

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
    def is_held(self) -> bool:
        """Whether its queue is still this consumer's: else another member will get it, too."""
        return self._holder.is_held

    def settle(self) -> None:
        """It is handled."""
        if not self._is_settled:
            self._is_settled = True
            self._holder.finish(self)

    def fail(self, delay_ms: int | None = None) -> None:
        """It shall come again."""
        if not self._is_settled:
            self._is_settled = True
            self._holder.again(self, delay_ms)

    def unsettle(self) -> None:
        """It comes again: one more try."""
        self._is_settled = False
        self.tries += 1


class ReceivedMessage(Received):
    """A message that is told by its coroutines how it went.

    `await message.ack()` says that it is handled, `await message.nack()` that it shall come again;
    `async with message:` says one or the other by how the block ends.
    """

    async def ack(self) -> None:
        """It is handled: never again, once progress is saved."""
        self.settle()

    async def nack(self, delay_ms: int | None = None) -> None:
        """It shall come again, after a time; by itself the time grows from one try to the next."""
        self.fail(delay_ms)

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


def records(body: bytes, damaged: Damaged) -> Iterator[Record]:
    """The records of a pull's body; one that cannot be read is told, and left out."""
    at, end = 0, len(body)
    while end - at >= RECORD_SIZE_MIN:
        total, _, _, _, _, offset, *_ = HEAD.unpack_from(body, at)
        if not RECORD_SIZE_MIN <= total <= end - at:
            return
        try:
            yield record.decode(body, at)
        except RecordError as error:
            damaged(offset, error)
        at += total
