"""Half messages: their queue in the store, and how the log tells what became of them.

The message that ends a half message names its position (the prepared position), and carries the
same unique key and body. So the key index finds it, even without an op message.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

import msgspec

from roquet.log_records import logger
from roquet.model import names
from roquet.model import properties as props
from roquet.model.errors import CallRefused, RecordError
from roquet.model.flags import TRANSACTION_MASK
from roquet.rules.transaction import COMMIT, HalfMessageFacts, HalfMessagePosition, times_checked
from roquet.store.store import Store
from roquet.wire.codes import ResponseCode
from roquet.wire.records.property_text import decode_properties, lossless_text
from roquet.wire.records.record import Record, decode

log = logger(__name__)

SAME_KEY_MAX: Final = 64
"""Messages of one unique key that are read: checks of a half message, and its deliveries."""

SENT_AGAIN_MS: Final = 60_000
"""Most ms between two tries of one send; a program that sends a message again under the same key
later must not lose it."""

SAME_KEY_BYTES: Final = 32 * 1024 * 1024
"""Bytes of these messages, the newest first: a hundredth of a second."""

INDEX_STEPS: Final = 200
INDEX_COUNT: Final = 250
"""Records that are indexed before an old half message is ended: a fifth of a second at most; others
have their turn after each millisecond."""

COMMITTED_ELSEWHERE: Final = (names.SCHEDULE_TOPIC, names.TIMER_TOPIC)
"""Topics that may hold a committed message with a later delivery."""

PREPARED_OFFSET: Final = props.TRANSACTION_PREPARED_QUEUE_OFFSET


class IndexBehind(CallRefused):
    """The key index is behind, so it is unknown what became of a half message."""

    def __init__(self) -> None:
        super().__init__(ResponseCode.SYSTEM_BUSY, "the key index is still being made")


class HalfMessage(msgspec.Struct, frozen=True):
    """A half message in its queue."""

    record: Record
    properties: dict[str, str]

    @property
    def offset(self) -> int:
        """Its offset in the queue of half messages."""
        return self.record.queue_offset

    @property
    def place(self) -> HalfMessagePosition:
        """The group, offset and position that an end has to match."""
        return HalfMessagePosition(
            self.properties.get(props.PRODUCER_GROUP), self.offset, self.record.position
        )

    @property
    def facts(self) -> HalfMessageFacts:
        """The facts that rules.transaction decides by."""
        return HalfMessageFacts(
            born_ms=self.record.born_ms,
            stored_ms=self.record.stored_ms,
            immunity=self.properties.get(props.CHECK_IMMUNITY_TIME),
            checked=self.properties.get(props.TRANSACTION_CHECK_TIMES),
        )

    @property
    def topic(self) -> str:
        """The topic it was sent to."""
        return self.properties.get(props.REAL_TOPIC, "")

    @property
    def unique_key(self) -> str:
        """The unique key from its producer."""
        return self.properties.get(props.UNIQUE_KEY, "")

    @property
    def has_immunity(self) -> bool:
        """Whether its producer sets when it may be checked first."""
        return props.CHECK_IMMUNITY_TIME in self.properties

    @property
    def was_put_back(self) -> bool:
        """Whether it was put back from an earlier place in the queue."""
        properties = self.properties
        return props.TRANSACTION_CHECK_TIMES in properties or PREPARED_OFFSET in properties


class HalfQueue:
    """The queue of half messages."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def bounds(self) -> tuple[int, int]:
        """Least and next offset."""
        return self._store.bounds(names.HALF_TOPIC, 0)

    def find(self, position: int) -> HalfMessage | None:
        """The half message at a position of the log; None if there is none.

        It must be in its queue as well: a body may contain bytes that look like a half message.
        """
        raw = None
        if position >= 0:
            raw = self._store.message_at(position, only_confirmed=False)
        half = None if raw is None else _half_of(raw)
        return half if half is not None and self._position(half.offset) == position else None

    def at(self, offset: int) -> HalfMessage | None:
        """The half message at an offset; None for one that cannot be read any more."""
        messages = self._store.read(names.HALF_TOPIC, 0, offset, count_max=1)
        half = _half_of(bytes(messages.parts[0])) if messages.count else None
        return half if half is not None and half.offset == offset else None

    def stored_at(self, position: int) -> HalfMessage:
        """The half message that was stored at a position of the log just now.

        Its queue does not show it before the sync-state set has it, where there is one.
        """
        raw = self._store.message_at(position, only_confirmed=False)
        assert raw is not None, "it was stored this moment"
        return _parsed(decode(raw))

    def _position(self, offset: int) -> int | None:
        entries = self._store.queue_stats.entries(names.HALF_TOPIC, 0, offset, 1)
        return entries[0][0] if entries else None

    def put_back_since(self, half: HalfMessage) -> list[HalfMessage]:
        """The later copies of a half message that was put back, the latest last."""
        halves = map(_parsed, self._behind(half, names.HALF_TOPIC))
        return sorted((copy for copy in halves if copy.was_put_back), key=lambda copy: copy.offset)

    def was_delivered(self, half: HalfMessage) -> bool:
        """Whether its transaction was committed: the log holds the delivered message.

        A producer that got no reply may have sent it again, and committed that one. A message born
        before this one is another: its producer knew of it, and sent the same content again.
        """
        born_ms = half.record.born_ms
        return any(
            record.sys_flag & TRANSACTION_MASK == COMMIT
            and 0 <= record.born_ms - born_ms <= SENT_AGAIN_MS
            for topic in (half.topic, *COMMITTED_ELSEWHERE)
            for record in self._same(half, topic)
        )

    def was_settled(self, half: HalfMessage) -> bool:
        """Whether the log shows that it was ended: a killed broker may not have recorded the end.

        A genuine broker does not store from where it put a message back, but counts the checks.
        """
        times = times_checked(half.facts.checked)
        if any(
            newer.record.prepared_position == half.record.position
            or times_checked(newer.facts.checked) > times
            for newer in self.put_back_since(half)
        ):
            return True
        return any(self._behind(half, names.CHECK_MAX_TIME_TOPIC)) or self.was_delivered(half)

    def _behind(self, half: HalfMessage, topic: str) -> Iterator[Record]:
        """Messages of a topic that came from a half message: they are later in the log."""
        return (r for r in self._same(half, topic) if r.position > half.record.position)

    def _same(self, half: HalfMessage, topic: str) -> Iterator[Record]:
        """The messages of a topic with the unique key, body and row of a half message."""
        if not (key := half.unique_key):
            return
        if not self._index():
            raise IndexBehind
        matches = self._store.query(topic, key, count_max=SAME_KEY_MAX, bytes_max=SAME_KEY_BYTES)
        # Equal messages of a Spark sink differ in their row.
        row = half.properties.get(props.SINK_ROW)
        for raw in matches.records:
            try:
                record = decode(raw)
                other_row = decode_properties(record.properties).get(props.SINK_ROW)
            except RecordError as error:  # it is another message, and must not hold up this one
                log.warning("a message of key %r cannot be read: %s", half.unique_key[:80], error)
                continue
            if record.body == half.record.body and row in (None, other_row):
                yield record

    async def index(self) -> None:
        """Index stored messages, so that they are found by key; gives up if that takes long."""
        for _ in range(INDEX_STEPS):
            if self._index():
                return
            await asyncio.sleep(0)

    def _index(self) -> bool:
        store = self._store
        if store.indexed_position < store.end_position:
            store.dispatch(INDEX_COUNT)
        return store.indexed_position >= store.end_position


def _half_of(raw: bytes) -> HalfMessage | None:
    try:
        half = _parsed(decode(raw))
    except RecordError as error:
        log.warning("a half message cannot be read: %s", error)
        return None
    return half if half.record.topic == names.HALF_TOPIC else None


def _parsed(record: Record) -> HalfMessage:
    return HalfMessage(record, decode_properties(lossless_text(record.properties)))
