"""SetAside: messages that a service cannot handle, stored where operators find and retry them.

    a service ──▶ message ──▶ handled
                     └──────▶ error of this message ──▶ rmq_sys_roquet_set_aside, and the next one

A byte-by-byte copy of the record is stored, since retention may delete the original before an
operator looks. The copy is in the commit log before the service moves on, and a service saves its
progress only once the log is durable: after a kill a message may be set aside twice, and none is
lost. After an error of the disk the service waits and tries the message again.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import msgspec

from roquet.broker.ingest.append import Ingest
from roquet.broker.tables.topics import Topics
from roquet.log_records import logger
from roquet.model import names
from roquet.model import properties as props
from roquet.model.errors import CallRefused, MessageIllegal, RecordError, StoreError
from roquet.model.flags import SysFlag
from roquet.model.printable_text import printable
from roquet.net.clock import Clock
from roquet.store.store import Draft, Store
from roquet.wire.records.property_text import decode_properties, encode_properties
from roquet.wire.records.record import HEAD, Record, decode

log = logger(__name__)

TIMER: Final = "timer"
DELAY: Final = "delay"
TRANSACTIONS: Final = "transactions"
REVIVE: Final = "revive"
INDEX: Final = "index"
"""The services that set messages aside."""

REASON_SIZE_MAX: Final = 500
"""Characters of a stored reason: enough to tell one cause from another."""

NAME_SIZE_MAX: Final = 300
"""Characters of a topic in a location, escaped: longer ones are cut."""

HOSTS_V6: Final = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
IPV4_SIZE: Final = 8

RetryListener = Callable[[Record], object]
"""Called for a record that was put back, as it is in its topic now."""


class RecordLocation(msgspec.Struct, frozen=True):
    """The location of a message that cannot be handled."""

    topic: str
    queue_id: int
    offset: int
    position: int

    @classmethod
    def of(cls, record: Record) -> "RecordLocation":
        """The location that a record names."""
        return cls(record.topic, record.queue_id, record.queue_offset, record.position)

    def text(self) -> str:
        """TOPIC/QUEUE/OFFSET/POSITION, with control characters escaped."""
        topic = printable(self.topic)[:NAME_SIZE_MAX]
        return f"{topic}/{self.queue_id}/{self.offset}/{self.position}"


class SetAside:
    """Stores messages that cannot be handled, and puts them back on request."""

    def __init__(self, store: Store, ingest: Ingest, topics: Topics, clock: Clock) -> None:
        self._store = store
        self._topics = topics
        self._ingest = ingest
        self._clock = clock
        self.counts: Counter[str] = Counter()
        """Messages set aside by this process, by service."""
        self.on_retry: dict[str, RetryListener] = {}
        """By topic, the listener of a service that does not read its queue while running."""
        self.on_index: Callable[[int], object] = lambda _: None
        """Indexes the record at a position again."""
        self._deferred: dict[str, list[Callable[[], None]]] = {}

    @property
    def total(self) -> int:
        """Messages set aside and not yet deleted by retention."""
        begin, end = self._store.bounds(names.SET_ASIDE_TOPIC, 0)
        return end - begin

    def keep(
        self,
        service: str,
        location: RecordLocation,
        error: Exception,
        raw: bytes | None = None,
        goal: tuple[str, int] | None = None,
    ) -> None:
        """Set aside the message at a location, which failed with an error.

        Raises the error again if it is transient, not caused by the message, and StoreError when
        the copy cannot be stored: the service has to wait. `raw` is the record, for callers that
        have it; `goal` is the topic and queue to retry in, if it is another than its own.
        """
        if is_transient(error):
            raise error
        if raw is None:
            raw = self._store.message_at(location.position, only_confirmed=False) or b""
        reason = printable(f"{type(error).__name__}: {error}")[:REASON_SIZE_MAX]
        properties = {
            props.SET_ASIDE_SERVICE: service,
            props.SET_ASIDE_REASON: reason,
            props.SET_ASIDE_PLACE: location.text(),
        }
        if goal is not None:
            properties[props.SET_ASIDE_GOAL] = f"{goal[1]}/{goal[0]}"
        store = partial(self._store_copy, raw, properties)
        if (deferred := self._deferred.get(service)) is None:
            store()
        else:
            deferred.append(store)

    def _store_copy(self, raw: bytes, properties: dict[str, str]) -> None:
        text = encode_properties(properties)
        self._topics.create_for_group(names.SET_ASIDE_TOPIC, 1, self._clock.now_ms())
        try:
            self._ingest.append_draft(self._draft(raw, text))
        except MessageIllegal:  # the copy with its properties does not fit in a file of the log
            self._ingest.append_draft(self._draft(b"", text))
        service = properties[props.SET_ASIDE_SERVICE]
        self.counts[service] += 1
        log.error(
            "%s set a message aside: %s (%s); see `roquet set-aside ls`",
            service, properties[props.SET_ASIDE_PLACE], properties[props.SET_ASIDE_REASON],
        )  # fmt: skip

    @contextmanager
    def deferring(self, *services: str) -> Iterator[list[Callable[[], None]]]:
        """Collect what these services set aside while the log takes no messages.

        The caller calls each item of the list once the log does. One that does not has to let the
        services read their messages again.
        """
        deferred: list[Callable[[], None]] = []
        self._deferred = dict.fromkeys(services, deferred)
        try:
            yield deferred
        finally:
            self._deferred = {}

    def keep_record(
        self, service: str, record: Record, error: Exception, goal: tuple[str, int] | None = None
    ) -> None:
        """Set aside a decoded record; see `keep`."""
        self.keep(service, RecordLocation.of(record), error, goal=goal)

    def keep_raw(
        self, service: str, topic: str, queue_id: int, raw: bytes, error: Exception
    ) -> None:
        """Set aside an encoded record of a queue; see `keep`."""
        self.keep(service, location_in(raw, topic, queue_id), error, raw)

    def retry(self, kept: Record) -> None:
        """Put a message back to its service; the copy stays where it is.

        Raises RecordError for one that cannot be decoded, StoreError or MessageIllegal for one that
        cannot be stored.
        """
        properties = decode_properties(kept.properties)
        position = properties.get(props.SET_ASIDE_PLACE, "").rpartition("/")[2]
        if properties.get(props.SET_ASIDE_SERVICE) == INDEX:
            self.on_index(int(position))
            return
        raw = kept.body or self._store.message_at(int(position))
        if raw is None:
            raise RecordError("neither the message nor a copy of it is left")
        original = decode(raw)
        queue, _, topic = properties.get(props.SET_ASIDE_GOAL, "").partition("/")
        if not topic:
            topic, queue = original.topic, str(original.queue_id)
        self._put_back(original, topic, int(queue))

    def _put_back(self, original: Record, topic: str, queue_id: int) -> None:
        """Store a record unchanged in a topic that a service reads."""
        is_delayed = topic == names.SCHEDULE_TOPIC
        host_flag = 0 if len(self._ingest.store_host) == IPV4_SIZE else SysFlag.STORE_HOST_V6
        draft = Draft(
            topic, queue_id, original.body, original.properties,
            self._clock.now_ms() if is_delayed else 0, original.flag,
            original.sys_flag & ~int(SysFlag.STORE_HOST_V6) | int(host_flag),
            original.born_ms, original.born_host, self._ingest.store_host,
            original.reconsume_times, original.prepared_position,
        )  # fmt: skip
        appended = self._ingest.append_draft(draft)
        if (tell := self.on_retry.get(topic)) is not None:
            stored = self._store.message_at(appended.position, only_confirmed=False)
            assert stored is not None, "it was stored this moment"
            tell(decode(stored))

    def _draft(self, body: bytes, properties: bytes) -> Draft:
        host = self._ingest.store_host
        return Draft(
            names.SET_ASIDE_TOPIC, 0, body, properties, 0,
            sys_flag=0 if len(host) == IPV4_SIZE else HOSTS_V6,
            born_ms=self._clock.now_ms(), born_host=host, store_host=host,
        )  # fmt: skip


def location_in(raw: bytes, topic: str, queue_id: int) -> RecordLocation:
    """The location that a record's head names; a damaged one may be wrong."""
    _, _, _, _, _, offset, position, _, _ = HEAD.unpack_from(raw)
    return RecordLocation(topic, queue_id, offset, position)


def is_transient(error: Exception) -> bool:
    """Whether an error is caused by the disk or the moment, not by the message."""
    return isinstance(error, StoreError | OSError | MemoryError | CallRefused)
