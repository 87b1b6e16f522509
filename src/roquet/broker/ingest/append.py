"""Ingest: the only way into the store; applies limits, delays, transactions and retries."""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from roquet.broker.counts import DELAY, FIFO, NORMAL, PRIORITY, TRANSACTION, BrokerCounts
from roquet.broker.ingest.property_normalizer import (
    NormalizedProperties,
    PropertyNormalizer,
    delay_level,
    half_message_refusal,
    properties_text,
)
from roquet.broker.refusals import no_permission
from roquet.broker.settings.config import BrokerConfig
from roquet.model import properties as names
from roquet.model.errors import MessageIllegal, RecordError, StoreError
from roquet.model.flags import TRANSACTION_MASK, SysFlag
from roquet.model.names import (
    BROKER_ONLY_TOPICS,
    HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    group_of_retry,
    is_dlq,
    is_retry,
)
from roquet.net.clock import Clock
from roquet.net.router import Peer
from roquet.rules.consumption.priority import priority_queue
from roquet.rules.delay.delay_levels import dead_letter_properties, due_ms, effective_level
from roquet.rules.delay.timer import DELIVERY_TIME_PROPERTIES, is_timed, out_ms
from roquet.store.store import (
    AppendBatchResult,
    AppendResult,
    BatchBody,
    BatchColumns,
    Draft,
    Store,
    StoredBatch,
)
from roquet.wire.calls.send import Send, SendLongNames
from roquet.wire.plain_send import PlainSend
from roquet.wire.receipt_handle import RecallHandle
from roquet.wire.records.batch import decode_columns
from roquet.wire.records.host_bytes import HOST_SIZES
from roquet.wire.records.message_id import (
    month_start_ms,
    offset_message_id,
    offset_message_ids,
    unique_key,
)
from roquet.wire.records.partial_decode import property_value, tag_code
from roquet.wire.records.property_text import (
    decode_properties,
    lossless_bytes,
    lossless_text,
    readable_text,
)
from roquet.wire.records.record import Record

SendCall = Send | SendLongNames

DeadLetterRouter = Callable[[SendCall], str | None]
"""Called for a message that a client sends to a retry topic: returns the dead-letter topic to store
it in instead, None if it may be retried; may raise CallRefused."""

ArrivalListener = Callable[[str, int, int, Sequence[int]], object]
"""Called after each append: topic, queue id, the first offset, and the tag code of each message."""

BATCH_COUNT_MAX: Final = 16_384
"""Messages of one batch: they hold the event loop for about 50 ms."""

WHOLE_DAY_MS: Final = 24 * 3_600_000

PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)
BORN_HOST_V6: Final = int(SysFlag.BORN_HOST_V6)
STORE_HOST_V6: Final = int(SysFlag.STORE_HOST_V6)
IPV4_SIZE: Final = HOST_SIZES[0]
FROM_CLIENTS: Final = ~int(
    SysFlag.BORN_HOST_V6
    | SysFlag.STORE_HOST_V6
    | SysFlag.NEED_UNWRAP
    | SysFlag.INNER_BATCH
    | SysFlag.TRANSACTION_ROLLBACK
)
"""All bits except those that tell how the broker stored a message: a client may not set them."""

_MIDDLE: Final = names.NAME_VALUE_SEPARATOR.encode()
_END: Final = names.PROPERTY_SEPARATOR.encode()
_GROUP: Final = names.PRODUCER_GROUP.encode()
_OUT: Final = names.TIMER_OUT_MS.encode()
_PREPARED_NAME: Final = names.TRANSACTION_PREPARED.encode()
_TRANSACTION_ID: Final = names.TRANSACTION_ID.encode() + _MIDDLE
_REAL_TOPIC: Final = names.REAL_TOPIC.encode() + _MIDDLE
_SHARDING_KEY: Final = names.SHARDING_KEY + names.NAME_VALUE_SEPARATOR
_SHARDING_KEY_BYTES: Final = _SHARDING_KEY.encode()
_REAL_QUEUE_ID: Final = names.REAL_QUEUE_ID.encode() + _MIDDLE

ANY_DELAY_MS: Final = 2**63 - 1
"""Ms beyond any delivery time."""

TOO_LONG: Final = "the message body is {} bytes long, this broker takes {}"


class BrokerOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Origin of stored messages: written into each, and the source of unique keys."""

    store_host: bytes
    """Its advertised address: ip (4 or 16 bytes) and port (4 bytes)."""
    pid: int
    seed: int
    """Distinguishes the keys of two processes with the same machine and pid."""


class IngestResult(msgspec.Struct, frozen=True, gc=False):
    """The result of storing one message."""

    appended: AppendResult
    unique_key: str
    waits: bool
    """Whether its sender waits until it is durable."""
    recall_handle: str
    """Handle to recall it before its delivery time; empty without one."""
    queue_id: int
    """Queue of its topic: the one that was asked for, or the one of its priority."""


class WaitingPlace(msgspec.Struct, frozen=True, gc=False):
    """Topic and queue in which a message waits, and its properties there."""

    topic: str
    queue_id: int
    properties: Mapping[str, str]
    due_ms: int | None = None
    """Takes the place of the tag code at a delay level; None in the timer topic."""


class Ingest:
    """Stores messages of clients, and messages that the broker stores again."""

    def __init__(
        self,
        store: Store,
        config: BrokerConfig,
        clock: Clock,
        origin: BrokerOrigin,
        arrived: ArrivalListener,
        dead_letters: DeadLetterRouter = lambda _: None,
        write_queues: Callable[[str], int] = lambda _: 1,
    ) -> None:
        """`write_queues` tells how many queues of a topic take messages."""
        self.counts = BrokerCounts()
        """Counts for metrics."""
        self._store = store
        self._clock = clock
        self._arrived = arrived
        self._dead_letters = dead_letters
        self._write_queues = write_queues
        self._levels = config.message_delay_levels
        self._size_max = config.max_message_size
        self._config = config
        self._normalizer = PropertyNormalizer(config.cluster_name, lambda: next(self._keys))
        self._normalizer.configure(config.region, traced=config.trace_on)
        self.set_origin(origin)

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self._size_max = config.max_message_size
        self._config = config
        self._normalizer.configure(config.region, traced=config.trace_on)

    def set_origin(self, origin: BrokerOrigin) -> None:
        """Set the address for messages from now on; the port is known late."""
        self._origin = origin
        self._keys = self._unique_keys()
        self._store_flag = 0 if len(origin.store_host) == IPV4_SIZE else STORE_HOST_V6
        self._store_host = origin.store_host

    @property
    def store_host(self) -> bytes:
        """The address that is stored with messages: ip and port."""
        return self._store_host

    def check_size(self, body: bytes) -> None:
        """MessageIllegal when a body is empty or too long."""
        if not 0 < len(body) <= self._size_max:
            raise self._illegal_size(len(body))

    def append(self, call: SendCall, queue_id: int, peer: Peer) -> IngestResult:
        """Store one message of a client. Raises MessageIllegal, CallRefused or StoreError."""
        body = call.body
        if not 0 < len(body) <= self._size_max:
            raise self._illegal_size(len(body))
        normalized = self._normalizer.normalize(
            call.properties.encode("utf-8", "surrogatepass"), True
        )
        draft = self._draft(call, queue_id, peer, body, normalized.text, normalized.tag_code)
        now_ms, recall = self._clock.now_ms(), ""
        is_plain = not normalized.is_special and draft.topic[:1] != "%"
        if not is_plain:
            queue_id = self._queue_for(call.topic, normalized.priority, queue_id)
            draft = self._diverted(replace(draft, queue_id=queue_id), call, normalized, now_ms)
            recall = self._recall_handle(draft, call.topic, normalized.unique_key)
        try:
            appended = self._store.append(draft, now_ms)
        except (struct.error, OverflowError) as error:
            raise MessageIllegal(f"a number of the message is out of range: {error}") from error
        self._arrived(draft.topic, draft.queue_id, appended.queue_offset, (draft.tag_code,))
        if self.counts.counts_stored:
            if not is_plain:
                self._count_special(call, draft, normalized, appended.size)
            else:  # a search in bytes would take twice as long
                self._count_plain(call.topic, _SHARDING_KEY in call.properties, appended.size)
        key = readable_text(normalized.unique_key)
        return IngestResult(appended, key, normalized.waits, recall, queue_id)

    def append_plain(self, send: PlainSend, peer: Peer) -> AppendResult | None:
        """Store one ordinary message of a client.

        None, with nothing stored, for a message that `append` has to judge, and for what the store
        refuses. Raises StoreFailed when it is unknown whether the message is stored.
        """
        if send.body_size > self._size_max:
            return None
        sys_flag, born_host = send.sys_flag & FROM_CLIENTS | self._store_flag, peer.host_bytes
        if len(born_host) != IPV4_SIZE:
            sys_flag |= BORN_HOST_V6
        now_ms, tail = self._clock.now_ms(), self._normalizer.tail
        appended = self._store.append_plain(
            send, sys_flag, born_host, self._store_host, tail, now_ms
        )
        if appended is None:
            appended = self._append_apart(send, peer, now_ms)
        if appended is None:
            return None
        topic = send.topic
        self._arrived(topic, send.queue_id, appended.queue_offset, (send.tag_code,))
        if self.counts.counts_stored:
            self._count_plain(topic, _SHARDING_KEY_BYTES in send.properties, appended.size)
        return appended

    def _append_apart(self, send: PlainSend, peer: Peer, now_ms: int) -> AppendResult | None:
        """Store a plain send for which there is no room in memory, or none yet."""
        properties = send.properties + self._normalizer.tail
        if len(properties) > names.PROPERTIES_SIZE_MAX:
            return None
        draft = self._draft(send, send.queue_id, peer, send.body, properties, send.tag_code)
        try:
            return self._store.append(draft, now_ms)
        except (MessageIllegal, struct.error, OverflowError):
            return None
        except StoreError as error:
            if not error.definite:
                raise
            return None

    def reappend(
        self,
        record: Record,
        *,
        topic: str,
        queue_id: int = 0,
        properties: Mapping[str, str],
        reconsume_times: int | None = None,
        settles: int | None = None,
    ) -> AppendResult:
        """Store a stored message again, elsewhere or with other properties.

        The body is copied as it is, compressed or not; flag, born time and born host stay, and the
        tries unless `reconsume_times` are given. With a delay level or delivery time in its
        properties it waits first, unless it goes to one of the broker's own topics. `settles` is
        the position of the half message that this ends: its delivery time was checked when that
        was sent. Raises StoreError or MessageIllegal.
        """
        now_ms, destination = self._clock.now_ms(), None
        if topic not in BROKER_ONLY_TOPICS:
            level = delay_level(properties)
            if level or is_timed(properties):
                max_delay_ms = self._config.timer_max_delay if settles is None else ANY_DELAY_MS
                stored = {name: value for name, value in properties.items() if name and value}
                destination = self._place(topic, queue_id, stored, level, now_ms, max_delay_ms)
        destination = destination or WaitingPlace(topic, queue_id, properties)
        draft = self._copy(record, destination.topic, destination.queue_id, destination.properties)
        draft = replace(
            draft,
            tag_code=draft.tag_code if destination.due_ms is None else destination.due_ms,
            reconsume_times=draft.reconsume_times if reconsume_times is None else reconsume_times,
            prepared_position=settles or 0,
        )
        return self._append(draft, now_ms)

    def append_due(
        self, record: Record, *, topic: str, queue_id: int, properties: Mapping[str, str]
    ) -> AppendResult:
        """Store a message that has waited at its delay level in the queue that it was sent to.

        The level stays in its properties, as in the genuine broker, whose consumers read it there;
        it does not delay the message again. Raises StoreError or MessageIllegal.
        """
        draft = self._copy(record, topic, queue_id, properties)
        appended = self._append(draft, self._clock.now_ms())
        self.counts.note_stored(topic, DELAY, appended.size)
        return appended

    def append_draft(self, draft: Draft) -> AppendResult:
        """Store a draft of the broker's own unchanged. Raises StoreError or MessageIllegal."""
        return self._append(draft, self._clock.now_ms())

    def _copy(
        self, record: Record, topic: str, queue_id: int, properties: Mapping[str, str]
    ) -> Draft:
        text = _encoded(properties)
        return Draft(
            topic=topic,
            queue_id=queue_id,
            body=record.body,
            properties=text,
            tag_code=tag_code(text),
            flag=record.flag,
            sys_flag=record.sys_flag & ~STORE_HOST_V6 | self._store_flag,
            born_ms=record.born_ms,
            born_host=record.born_host,
            store_host=self._store_host,
            reconsume_times=record.reconsume_times,
        )

    def _append(self, draft: Draft, now_ms: int) -> AppendResult:
        try:
            appended = self._store.append(draft, now_ms)
        except (struct.error, OverflowError) as error:
            raise MessageIllegal(f"a number of the message is out of range: {error}") from error
        self._arrived(draft.topic, draft.queue_id, appended.queue_offset, (draft.tag_code,))
        return appended

    def append_batch(self, call: SendCall, queue_id: int, peer: Peer) -> StoredBatch:
        """Store the messages of a batch at consecutive offsets: all of them or none."""
        shared = _shared_text(call.properties)
        if (stored := self._append_body(call, shared, queue_id, peer)) is not None:
            return stored
        flags, bodies, texts = self._columns(call)
        texts, tag_codes, waits = self._normalizer.normalize_batch(texts, shared)
        parts = BatchColumns(flags, bodies, texts, tag_codes)
        draft = self._draft(call, queue_id, peer, b"", b"", 0)
        try:
            appended = self._store.append_batch(draft, parts, self._clock.now_ms())
        except (struct.error, OverflowError) as error:
            raise MessageIllegal(f"a number of the batch is out of range: {error}") from error
        return self._count_batch(draft, StoredBatch(appended, tag_codes, waits))

    def append_plain_batch(self, send: PlainSend, peer: Peer) -> AppendBatchResult | None:
        """Store a batch of a client.

        None, with nothing stored, for a batch that `append_batch` has to judge, and for what the
        store refuses. Raises StoreFailed when it is unknown whether the messages are stored.
        """
        try:
            stored = self._append_body(send, send.properties, send.queue_id, peer)
        except MessageIllegal:
            return None
        except StoreError as error:
            if not error.definite:
                raise
            return None
        return None if stored is None else stored.appended

    def _append_body(
        self, call: SendCall | PlainSend, shared: bytes, queue_id: int, peer: Peer
    ) -> StoredBatch | None:
        """Store a plain batch; None, with nothing stored, for one that has to be judged."""
        items = call.body
        if (
            not 0 < len(items) <= self._size_max
            or call.sys_flag & TRANSACTION_MASK
            or is_retry(call.topic)
        ):
            return None
        draft = self._draft(call, queue_id, peer, b"", b"", 0)
        body = BatchBody(items, shared, self._normalizer.cluster)
        try:
            stored = self._store.append_body(draft, body, self._clock.now_ms())
        except (struct.error, OverflowError):
            return None
        return stored and self._count_batch(draft, stored)

    def _count_batch(self, draft: Draft, stored: StoredBatch) -> StoredBatch:
        """Wake those who wait for the messages of a batch, and count them."""
        appended, count = stored.appended, len(stored.tag_codes)
        self._arrived(draft.topic, draft.queue_id, appended.queue_offset, stored.tag_codes)
        if self.counts.counts_stored and count:
            self.counts.note_batch(draft.topic, NORMAL, count, appended.size)
        return stored

    def message_id(self, position: int) -> str:
        """The offset message id of the message at a position."""
        return offset_message_id(self._store_host, position)

    def message_ids(self, positions: Sequence[int]) -> str:
        """The offset message ids of several messages, joined by commas."""
        return offset_message_ids(self._store_host, positions)

    def _diverted(
        self, draft: Draft, call: SendCall, normalized: NormalizedProperties, now_ms: int
    ) -> Draft:
        """The draft of a message that is a dead letter, half, delayed or timed."""
        if is_retry(draft.topic) and (topic := self._dead_letters(call)):
            before = decode_properties(lossless_text(draft.properties))
            key = before.get(names.UNIQUE_KEY, "")
            properties = dead_letter_properties(before, draft.topic, key)
            return replace(draft, topic=topic, queue_id=0, properties=_encoded(properties))
        level, destination = normalized.delay_level, None
        if level or normalized.timed:
            # A bad delivery time of a half message is refused now: at the commit it could not be.
            stored = decode_properties(lossless_text(draft.properties))
            max_ms = self._config.timer_max_delay
            destination = self._place(draft.topic, draft.queue_id, stored, level, now_ms, max_ms)
        # A client may send a failed message back as it got it, with its transaction properties.
        if normalized.is_half and not (draft.reconsume_times > 0 and level > 0):
            return self._half(draft, call, normalized.unique_key)
        if destination is None:
            return draft
        return replace(
            draft,
            topic=destination.topic,
            queue_id=destination.queue_id,
            properties=_encoded(destination.properties),
            tag_code=draft.tag_code if destination.due_ms is None else destination.due_ms,
        )

    def _queue_for(self, topic: str, priority: int | None, queue_id: int) -> int:
        """The queue of a priority; without one, the queue that was asked for."""
        if priority is None:
            return queue_id
        return priority_queue(priority, self._write_queues(topic))

    def _half(self, draft: Draft, call: SendCall, key: bytes) -> Draft:
        """The draft in the topic of half messages, until its transaction ends."""
        if self._config.reject_transactions:
            raise no_permission(
                f"the broker[{self._config.broker_name}] sending transaction message is forbidden"
            )
        text = [draft.properties, _TRANSACTION_ID, key, _END]
        if not property_value(draft.properties, _GROUP):
            text += (_GROUP, _MIDDLE, call.producer_group.encode("utf-8", "surrogatepass"), _END)
        text.append(b"%b%b\x02" % (_REAL_TOPIC, draft.topic.encode()))
        text.append(b"%b%d\x02" % (_REAL_QUEUE_ID, draft.queue_id))
        return replace(draft, topic=HALF_TOPIC, queue_id=0, properties=b"".join(text))

    def _place(
        self,
        topic: str,
        queue_id: int,
        properties: dict[str, str],
        requested_level: int,
        now_ms: int,
        max_delay_ms: int,
    ) -> WaitingPlace | None:
        """Where a message waits; changes its properties. None for one that does not wait.

        It waits at its delay level; at 0, for its delivery time: MessageIllegal for one that is no
        number or too far away.
        """
        if not requested_level:
            out = out_ms(properties, now_ms, max_delay_ms)
            if out is None:
                if names.TIMER_DELETE_UNIQUE_KEY in properties:
                    raise MessageIllegal("the message to be taken back is already delivered")
                return None
            properties[names.TIMER_OUT_MS] = str(out)
            destination = WaitingPlace(TIMER_TOPIC, 0, properties)
        else:
            level = effective_level(requested_level, self._levels)
            if not level:
                return None
            for name in DELIVERY_TIME_PROPERTIES:
                properties.pop(name, None)
            properties[names.DELAY] = str(level)
            due = due_ms(level, now_ms, self._levels)
            destination = WaitingPlace(SCHEDULE_TOPIC, level - 1, properties, due)
        properties[names.REAL_TOPIC] = topic
        properties[names.REAL_QUEUE_ID] = str(queue_id)
        return destination

    def _recall_handle(self, draft: Draft, topic: str, key: bytes) -> str:
        """Handle that recalls a message which goes to the wheel; empty for one that does not."""
        if draft.topic != TIMER_TOPIC or is_retry(topic):
            return ""
        out = int(property_value(draft.properties, _OUT) or b"0")
        # The genuine broker adds one: the time must be in the message's slot, not before it.
        handle = RecallHandle(topic, self._config.broker_name, out + 1, readable_text(key))
        return handle.text()

    def _draft(
        self,
        call: SendCall | PlainSend,
        queue_id: int,
        peer: Peer,
        body: bytes,
        properties: bytes,
        tag_code: int,
    ) -> Draft:
        sys_flag = call.sys_flag
        if sys_flag & PREPARED and not _is_half(properties):
            raise half_message_refusal()  # without the property it would be delivered at once
        sys_flag = sys_flag & FROM_CLIENTS | self._store_flag
        born_host = peer.host_bytes
        if len(born_host) != IPV4_SIZE:
            sys_flag |= BORN_HOST_V6
        # Positional arguments take a third of the time of keywords.
        return Draft(
            call.topic, queue_id, body, properties, tag_code, call.flag, sys_flag,
            call.born_timestamp, born_host, self._store_host, call.reconsume_times,
        )  # fmt: skip

    def _columns(self, call: SendCall) -> tuple[list[int], list[bytes], list[bytes]]:
        if is_retry(call.topic):
            raise MessageIllegal("a batch cannot be sent to a retry topic")
        if not 0 < len(call.body) <= self._size_max:
            raise self._illegal_size(len(call.body))
        try:
            return decode_columns(call.body, BATCH_COUNT_MAX)
        except RecordError as error:
            raise MessageIllegal(str(error)) from error

    def _count_plain(self, topic: str, is_ordered: bool, size: int) -> None:
        if is_ordered:
            self.counts.add_stored(topic, FIFO, size)
            return
        try:
            self.counts.normal_sizes[topic][size] += 1  # without a call
        except KeyError:
            self.counts.add_stored(topic, NORMAL, size)

    def _count_special(
        self, call: SendCall, draft: Draft, normalized: NormalizedProperties, size: int
    ) -> None:
        if call.topic[0] != "%":
            kind = TRANSACTION if normalized.is_half else DELAY
            kind = kind if normalized.priority is None else PRIORITY
            self.counts.add_stored(call.topic, kind, size)
        elif is_dlq(draft.topic) and is_retry(call.topic):
            origin = decode_properties(draft.properties).get(names.DLQ_ORIGIN_TOPIC, "")
            self.counts.dead_letters.add(group_of_retry(call.topic), origin)

    def _illegal_size(self, size: int) -> MessageIllegal:
        text = TOO_LONG.format(size, self._size_max) if size else "the message has no body"
        return MessageIllegal(text)

    def _unique_keys(self) -> Iterator[str]:
        ip, origin, counter = self._origin.store_host[:-4], self._origin, 0
        month_ms = month_ends_ms = 0
        while True:
            now_ms = self._clock.now_ms()
            if now_ms >= month_ends_ms:
                month_ms = month_start_ms(now_ms)
                month_ends_ms = now_ms - now_ms % WHOLE_DAY_MS + WHOLE_DAY_MS
            yield unique_key(ip, origin.pid, origin.seed, now_ms - month_ms, counter)
            counter += 1


def _is_half(properties: bytes) -> bool:
    return (property_value(properties, _PREPARED_NAME) or b"").lower() == b"true"


def _encoded(properties: Mapping[str, str]) -> bytes:
    return lossless_bytes(properties_text(properties))


def _shared_text(text: str) -> bytes:
    """The properties of a whole batch, which every message gets, without its unique key."""
    shared = decode_properties(text)
    shared.pop(names.UNIQUE_KEY, None)
    return _encoded(shared)
