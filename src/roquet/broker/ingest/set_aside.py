"""Set aside: messages that a service cannot handle, kept where operators find and retry them.

    a service ──▶ message ──▶ handled
                     └──────▶ error of this message ──▶ rmq_sys_roquet_set_aside, and the next one

What is kept is a copy of the whole record, byte by byte: retention may delete the original before
an operator looks. The copy lies in the commit log before the service moves on, and a service saves
its progress only once the log is durable: after a kill a message may be set aside twice, and none
is lost. An error of the disk says nothing of a message: the service waits, and tries it again.
"""

from collections import Counter
from collections.abc import Callable
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
"""Characters of a reason that are kept: enough to tell one cause from another."""

NAME_SIZE_MAX: Final = 300
"""Characters of a topic in a place, escaped: longer ones are cut."""

HOSTS_V6: Final = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
IPV4_SIZE: Final = 8

RetryListener = Callable[[Record], object]
"""Told of a record that was put back: as it lies in its topic now."""


class RecordLocation(msgspec.Struct, frozen=True):
    """Where a message lies that cannot be handled."""

    topic: str
    queue_id: int
    offset: int
    position: int

    @classmethod
    def of(cls, record: Record) -> "RecordLocation":
        """The place that a record says of itself."""
        return cls(record.topic, record.queue_id, record.queue_offset, record.position)

    def text(self) -> str:
        """TOPIC/QUEUE/OFFSET/POSITION, with nothing in it that a terminal would obey."""
        topic = printable(self.topic)[:NAME_SIZE_MAX]
        return f"{topic}/{self.queue_id}/{self.offset}/{self.position}"


class SetAside:
    """Keeps what cannot be handled, and puts it back when an operator asks for that."""

    def __init__(self, store: Store, ingest: Ingest, topics: Topics, clock: Clock) -> None:
        self._store = store
        self._topics = topics
        self._ingest = ingest
        self._clock = clock
        self.counts: Counter[str] = Counter()
        """By service, how many this process has set aside."""
        self.on_retry: dict[str, RetryListener] = {}
        """By topic, the service that is told of what is put back there, if it reads no queue."""
        self.on_index: Callable[[int], object] = lambda _: None
        """Indexes the record at a position once more."""

    @property
    def total(self) -> int:
        """How many are kept: those set aside and not yet deleted by retention."""
        begin, end = self._store.bounds(names.SET_ASIDE_TOPIC, 0)
        return end - begin

    def keep(
        self,
        service: str,
        place: RecordLocation,
        error: Exception,
        raw: bytes | None = None,
        goal: tuple[str, int] | None = None,
    ) -> None:
        """Keep the message at a place, which failed with an error.

        Raises the error again when it does not speak of the message but of the disk or of this
        moment, and StoreError when the copy cannot be stored: the service has to wait. `raw` is
        the record for callers that have it; `goal` is the topic and queue to which it is to be
        sent when it is tried again, if that is not where it lies.
        """
        if is_transient(error):
            raise error
        if raw is None:
            raw = self._store.message_at(place.position) or b""
        reason = printable(f"{type(error).__name__}: {error}")[:REASON_SIZE_MAX]
        properties = {
            props.SET_ASIDE_SERVICE: service,
            props.SET_ASIDE_REASON: reason,
            props.SET_ASIDE_PLACE: place.text(),
        }
        if goal is not None:
            properties[props.SET_ASIDE_GOAL] = f"{goal[1]}/{goal[0]}"
        text = encode_properties(properties)
        self._topics.create_for_group(names.SET_ASIDE_TOPIC, 1, self._clock.now_ms())
        try:
            self._ingest.append_draft(self._draft(raw, text))
        except MessageIllegal:  # no file of the log holds a copy and what is said of it
            self._ingest.append_draft(self._draft(b"", text))
        self.counts[service] += 1
        log.error(
            "%s set a message aside: %s (%s); see `roquet set-aside ls`",
            service, place.text(), reason,
        )  # fmt: skip

    def keep_record(
        self,
        service: str,
        record: Record,
        error: Exception,
        goal: tuple[str, int] | None = None,
    ) -> None:
        """Keep a record that could be read, and that its service cannot handle; as `keep`."""
        self.keep(service, RecordLocation.of(record), error, goal=goal)

    def retry(self, kept: Record) -> None:
        """Put a message back to its service's work; the copy stays where it is.

        Raises RecordError for one that cannot be read, StoreError and MessageIllegal for one that
        cannot be stored.
        """
        said = decode_properties(kept.properties)
        position = said.get(props.SET_ASIDE_PLACE, "").rpartition("/")[2]
        if said.get(props.SET_ASIDE_SERVICE) == INDEX:
            self.on_index(int(position))
            return
        raw = kept.body or self._store.message_at(int(position))
        if raw is None:
            raise RecordError("neither the message nor a copy of it is left")
        original = decode(raw)
        queue, _, topic = said.get(props.SET_ASIDE_GOAL, "").partition("/")
        if not topic:
            topic, queue = original.topic, str(original.queue_id)
        self._put_back(original, topic, int(queue))

    def _put_back(self, original: Record, topic: str, queue_id: int) -> None:
        """Store a record as it was, in a topic that a service reads."""
        is_delayed = topic == names.SCHEDULE_TOPIC
        draft = Draft(
            topic, queue_id, original.body, original.properties,
            self._clock.now_ms() if is_delayed else 0, original.flag,
            original.sys_flag & ~int(SysFlag.STORE_HOST_V6) | self._store_flag,
            original.born_ms, original.born_host, self._ingest.store_host,
            original.reconsume_times, original.prepared_position,
        )  # fmt: skip
        appended = self._ingest.append_draft(draft)
        if (tell := self.on_retry.get(topic)) is not None:
            stored = self._store.message_at(appended.position)
            assert stored is not None, "it was stored this moment"
            tell(decode(stored))

    @property
    def _store_flag(self) -> int:
        is_v4 = len(self._ingest.store_host) == IPV4_SIZE
        return 0 if is_v4 else int(SysFlag.STORE_HOST_V6)

    def _draft(self, body: bytes, properties: bytes) -> Draft:
        host = self._ingest.store_host
        return Draft(
            names.SET_ASIDE_TOPIC, 0, body, properties, 0,
            sys_flag=0 if len(host) == IPV4_SIZE else HOSTS_V6,
            born_ms=self._clock.now_ms(), born_host=host, store_host=host,
        )  # fmt: skip


def location_in(raw: bytes, topic: str, queue_id: int) -> RecordLocation:
    """Where a record of a queue lies, as far as its head can be believed: it may be damaged."""
    _, _, _, _, _, offset, position, _, _ = HEAD.unpack_from(raw)
    return RecordLocation(topic, queue_id, offset, position)


def is_transient(error: Exception) -> bool:
    """Whether an error speaks of the disk or of this moment, and not of one message."""
    return isinstance(error, StoreError | OSError | MemoryError | CallRefused)
