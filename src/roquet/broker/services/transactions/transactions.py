"""Transactions: commits and rolls back half messages, and records their ends in op messages.

    send ──▶ half queue                                 commit ──▶ the real topic ─┐
                 │ ▲                                    roll back ─────────────────┤
                 │ └── put back, to be asked about ─┐                              │
                 └──────────────────────────────────┴──▶ op queue: "40,42," ◀──────┘

The message that ends a half message is stored first, with the position of that one; then an op
message records the end. A broker that was killed in between finds what was done, and does not
repeat it.

Memory holds a byte for each half message after the oldest open one, which moves on each round.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

from msgspec.structs import replace

from roquet.broker.ingest.destination import Destinations
from roquet.broker.ingest.set_aside import TRANSACTIONS, SetAside
from roquet.broker.log.message_log import MessageLog
from roquet.broker.services.delayed_delivery import steps_of
from roquet.broker.services.transactions.half_messages import HalfMessage, HalfQueue
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.log_records import logger
from roquet.model import names
from roquet.model import properties as props
from roquet.model.errors import StoreError
from roquet.model.flags import TRANSACTION_MASK, SysFlag
from roquet.net.clock import Clock
from roquet.rules.transaction import (
    COMMIT,
    REMOVE_TAG,
    EndedHalfMessages,
    OpMessages,
    offsets_of,
    op_bodies,
)
from roquet.store.store import AppendResult, Draft
from roquet.wire.java_hash import hash_code
from roquet.wire.records.property_text import decode_properties, lossless_text
from roquet.wire.records.record import Record

log = logger(__name__)

GROUP: Final = "CID_RMQ_SYS_TRANS"
"""Group whose offsets tell which half messages are ended (MixAll.CID_SYS_RMQ_TRANS)."""

PENDING_MAX: Final = 100_000
"""Ends recorded in memory alone while the disk takes no op messages; then no end is accepted."""

OP_PROPERTIES: Final = f"{props.TAGS}\x01{REMOVE_TAG}\x02{props.WAIT}\x01true\x02".encode()
OP_CODE: Final = hash_code(REMOVE_TAG)
HOSTS_V6: Final = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
IPV4_SIZE: Final = 8
REAL: Final = frozenset({props.REAL_TOPIC, props.REAL_QUEUE_ID})


class Transactions:
    """The transactions of this broker."""

    def __init__(
        self,
        message_log: MessageLog,
        tables: BrokerTables,
        destinations: Destinations,
        set_aside: SetAside,
        clock: Clock,
        settings: RuntimeSettings,
    ) -> None:
        self._store = message_log.store
        self._ingest = message_log.ingest
        self._topics = tables.topics
        self._offsets = tables.offsets
        self._destinations = destinations
        self._set_aside = set_aside
        self._clock = clock
        self._settings = settings
        self.queue = HalfQueue(message_log.store)
        self.halves = EndedHalfMessages(0)
        self._ops = OpMessages(0)
        self._pending: list[int] = []
        """Offsets of ended half messages without an op message yet, in the order of their ends."""
        self._pending_size = 0
        self._old_end = 0
        self._is_restored = True
        """False from the first step of `restoring` to its last one."""
        self._complained: set[type[Exception]] = set()

    @property
    def config(self) -> BrokerConfig:
        """The settings in force."""
        return self._settings.config

    # -- judged ------------------------------------------------------------------------------

    def current(self, half: HalfMessage) -> HalfMessage | None:
        """The message at its latest place, if it was put back; None when it is ended."""
        if not self.halves.is_ended(half.offset):
            return half
        newer = self.queue.put_back_since(half)
        open_ones = (copy for copy in reversed(newer) if not self.halves.is_ended(copy.offset))
        return next(open_ones, None)

    def is_old(self, half: HalfMessage) -> bool:
        """Whether it was stored before this start: its end may not be recorded."""
        return half.offset < self._old_end

    # -- ended -------------------------------------------------------------------------------

    def commit(self, half: HalfMessage) -> None:
        """Deliver it. After a StoreError or MessageIllegal it is not delivered."""
        record, properties = half.record, half.properties
        self._ingest.reappend(
            replace(record, sys_flag=record.sys_flag & ~TRANSACTION_MASK | COMMIT),
            topic=half.topic,
            queue_id=self._destinations.queue(half.topic, properties.get(props.REAL_QUEUE_ID, "0")),
            properties={name: properties[name] for name in properties if name not in REAL},
            settles=record.position,
        )
        self.end(half.offset)
        counts, now_ms = self._ingest.counts, self._clock.now_ms()
        counts.commits.add(half.topic)
        counts.commit_s.observe(half.topic, value=max(now_ms - record.born_ms, 0) / 1000)

    def roll_back(self, half: HalfMessage) -> None:
        """End it without delivery. After a StoreError the end is not recorded."""
        if len(self._pending) >= PENDING_MAX:
            self._write()
        self.end(half.offset)
        self._ingest.counts.rollbacks.add(half.topic)

    def put_back(self, half: HalfMessage, changed: dict[str, str]) -> HalfMessage:
        """Append it to its queue again, with changed properties; returns the new half message."""
        appended = self._reappend(half.record, names.HALF_TOPIC, half.properties | changed)
        self.end(half.offset)
        return self.queue.stored_at(appended.position)

    def give_up(self, half: HalfMessage) -> None:
        """Move it to the topic where operators find it."""
        topic = names.CHECK_MAX_TIME_TOPIC
        self._topics.create_for_group(topic, 1, self._clock.now_ms())
        self._reappend(half.record, topic, half.properties)
        self.end(half.offset)

    def keep(self, offset: int, error: Exception) -> None:
        """Set aside a half message that cannot be handled: it counts as ended.

        Raises StoreError while the copy cannot be stored.
        """
        messages = self._store.read(names.HALF_TOPIC, 0, offset, count_max=1)
        if messages.count:
            raw = bytes(messages.parts[0])
            self._set_aside.keep_raw(TRANSACTIONS, names.HALF_TOPIC, 0, raw, error)
        else:
            log.error("half message %d is lost: nothing can be read there", offset)
        self.end(offset)

    def resume(self, record: Record) -> None:
        """Put back a message that was given up: checks begin again."""
        properties = decode_properties(lossless_text(record.properties))
        properties[props.TRANSACTION_CHECK_TIMES] = "0"
        self._reappend(record, names.HALF_TOPIC, properties)

    def _reappend(self, record: Record, topic: str, properties: dict[str, str]) -> AppendResult:
        return self._ingest.reappend(
            record,
            topic=topic,
            properties=properties,
            settles=record.position,
        )

    def end(self, offset: int) -> None:
        """Record the end of a half message: now in memory, soon in an op message."""
        self.halves.end(offset)
        self._pending.append(offset)
        self._pending_size += len(str(offset)) + 1
        if self._pending_size >= self.config.transaction_op_size:
            self._try_to_write()

    # -- noted -------------------------------------------------------------------------------

    def step(self, _now_ms: int = 0) -> None:
        """Store op messages, and commit how far all half messages are ended."""
        if not self._is_restored:
            return
        if self._pending:
            self._try_to_write()
        start = self.halves.advance()
        self._offsets.commit(GROUP, names.HALF_TOPIC, 0, start)
        self._offsets.commit(GROUP, names.OP_HALF_TOPIC, 0, self._ops.advance(start))

    def _try_to_write(self) -> None:
        try:
            self._write()
        except StoreError as error:  # they stay in memory; the log holds what ended them
            if type(error) not in self._complained:
                self._complained.add(type(error))
                log.warning("op messages cannot be stored for now: %s", error)
        else:
            self._complained.clear()

    def _write(self) -> None:
        now_ms, host = self._clock.now_ms(), self._ingest.store_host
        flags = 0 if len(host) == IPV4_SIZE else HOSTS_V6
        for body in list(op_bodies(self._pending, self.config.transaction_op_size)):
            draft = Draft(
                names.OP_HALF_TOPIC, 0, body, OP_PROPERTIES, OP_CODE,
                sys_flag=flags, born_ms=now_ms, born_host=host, store_host=host,
            )  # fmt: skip
            offset = self._store.append(draft, now_ms).queue_offset
            ended = offsets_of(body)
            self._ops.note(offset, ended)
            del self._pending[: len(ended)]
            self._pending_size -= len(body)

    # -- after a restart ---------------------------------------------------------------------

    def restore(self) -> None:
        """Read at a start which half messages are ended, of a genuine broker as well."""
        for _ in self.restoring():
            pass

    def restoring(self) -> Iterator[None]:
        """Read it in steps, when a replica becomes the master; nothing is ended in between."""
        self._is_restored = False
        self._pending, self._pending_size = [], 0
        least, end = self.queue.bounds()
        self.halves = EndedHalfMessages(self._progress(names.HALF_TOPIC, least, end))
        self._old_end = end
        op_least, op_end = self._store.bounds(names.OP_HALF_TOPIC, 0)
        at = self._progress(names.OP_HALF_TOPIC, op_least, op_end)
        self._ops = OpMessages(op_end)
        unreadable = partial(self._set_aside.keep_raw, TRANSACTIONS, names.OP_HALF_TOPIC, 0)
        for records in steps_of(self._store, (names.OP_HALF_TOPIC, 0), at, unreadable):
            for record in records:
                self._take(record, end)
            yield
        self._is_restored = True
        if (start := self.halves.advance()) < end:
            log.info("half messages are open, the first of them at offset %d of %d", start, end)

    def _progress(self, topic: str, least: int, end: int) -> int:
        """The offset up to which a queue was read; at most its end, which a crash may lower."""
        return min(max(self._offsets.get(GROUP, topic, 0) or 0, least), end)

    def _take(self, record: Record, end: int) -> None:
        try:
            self._take_op(record, end)
        except Exception as error:  # producers are checked instead
            self._set_aside.keep_record(TRANSACTIONS, record, error)

    def _take_op(self, record: Record, end: int) -> None:
        tag = decode_properties(record.properties).get(props.TAGS)
        ended = offsets_of(record.body) if tag == REMOVE_TAG else []
        # A missing one was lost in a crash: another message will get its offset.
        ended = [offset for offset in ended if offset < end]
        for offset in ended:
            self.halves.end(offset)
        self._ops.note(record.queue_offset, ended)

    def retried(self, record: Record) -> None:
        """Take an op message that had been set aside and was put back."""
        self._take(record, self.queue.bounds()[1])
