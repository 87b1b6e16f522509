"""PopCollector: takes messages for one pop from a topic's queues and from its retry topic.

retry topics, one time in five ─▶ queues, from a random one ─▶ retry topics, to fill up

Queues of a topic of type PRIORITY are read from the last one, each with the retry topic's queue of
the same id, where its failed messages are.

Messages that failed are in `%RETRY%group+topic`, or in `%RETRY%group_topic`, which an older version
or Apache's broker has written. Other groups and topics may share the older name: messages whose
RETRY_TOPIC is another of its ends are theirs, and skipped, as are those of a group that pulls.
"""

from collections.abc import Container, Sequence
from struct import Struct
from typing import Final

import msgspec

from roquet.broker.control import ControlPlane
from roquet.broker.delivery import DeliveryServices
from roquet.broker.filtering.filter_cache import CompiledFilter
from roquet.broker.filtering.filter_scan import scan_count, scan_once
from roquet.broker.filtering.tag_expressions import TagCodes
from roquet.broker.ingest.property_normalizer import properties_text
from roquet.broker.log.long_polling import ANY_QUEUE
from roquet.broker.log.message_log import MessageLog
from roquet.broker.operations.progress import BrokerProgress
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.broker.tables.observed_owners import TopicQueue
from roquet.model import names
from roquet.model import properties as props
from roquet.model.errors import MessageIllegal, RecordError
from roquet.rules.consumption.ordered_pop import OrderedPopLock, blocked_until, hold
from roquet.rules.consumption.pop import RETRY_FIRST_PERCENT, PopCheckpoint, bits_of
from roquet.rules.consumption.priority import aged_priority, ageing_ms, reads_by_priority
from roquet.rules.consumption.pull import BYTES_DEFAULT, OffsetCorrected, pull_outcome
from roquet.store.store import Slice
from roquet.wire.receipt_handle import (
    ORDER_QUEUE,
    RETRY_V1,
    ReceiptHandle,
    offset_count_info,
    offset_info,
    queue_count_info,
    retry_kind,
    start_info,
)
from roquet.wire.records.property_text import lossless_bytes, lossless_text
from roquet.wire.records.record import HEAD, decode, decode_properties, pack

LENGTH: Final = Struct(">i")

NOTIFICATION_SCAN_MAX: Final = 64
"""Messages of a queue that are scanned before a notification says that there may be some: the
genuine broker's maxMessageFilterNumForNotification."""

MAX_MODE: Final = 1
"""Init mode of a new group that begins with the next message, not with the oldest."""


class PopRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A validated pop."""

    group: str
    topic: str
    queue_id: int
    """-1 for any queue."""
    queue_count: int
    count: int
    invisible_ms: int
    init_mode: int
    wanted: TagCodes | CompiledFilter
    by_priority: bool = False
    """Whether queues are read in the order of their priorities."""
    order: bool = False
    attempt: str | None = None
    peek: bool = False


class PopCollector(msgspec.Struct, eq=False):
    """The messages that one pop has collected so far."""

    log: MessageLog
    delivery: DeliveryServices
    tables: BrokerTables
    control: ControlPlane
    request: PopRequest
    revive_queue_id: int = ORDER_QUEUE
    pop_ms: int = 0
    parts: list[bytes | memoryview] = []
    count: int = 0
    size: int = 0
    rest: int = 0
    starts: list[str] = []
    offsets: list[str] = []
    times: list[str] = []
    blocked_until_ms: int | None = None
    """Wall-clock ms at which a blocked ordered queue may be free; None without one."""
    moved: bool = False
    """Whether messages that the filter rejects were skipped, and more follow them."""
    others: set[int] = set()
    """Queues of which messages are left for other waiting pops; ANY_QUEUE for the retry topic."""
    _looks: int = 0
    """Messages that may still be scanned with the filter expression."""

    def __post_init__(self) -> None:
        self.pop_ms = self.control.clock.now_ms()
        if not self.request.order:
            self.revive_queue_id = self.delivery.revive.next_revive_queue_id()
        if isinstance(self.request.wanted, CompiledFilter):
            self._looks = scan_count(self.request.wanted)

    def collect(self) -> None:
        """Take the available messages."""
        for topic, queue_id in self._reading_order():
            self._take(topic, queue_id)

    def has_any(self) -> bool:
        """Whether there is a message to take, without taking it."""
        for topic, queue_id in self._reading_order():
            if self._has(topic, queue_id):
                self._leave(topic, queue_id, 1)
        return self.rest > 0

    def _reading_order(self) -> Sequence[TopicQueue]:
        """The queues to read, in this order."""
        request, rng = self.request, self.control.rng
        retries = self._retries()
        retry_first = bool(retries) and rng.randrange(100) < RETRY_FIRST_PERCENT
        if request.queue_id >= 0:
            own = [(request.topic, request.queue_id)]
        else:
            count, first = request.queue_count, rng.randrange(request.queue_count)
            own = [(request.topic, (first + turn) % count) for turn in range(count)]
        queues = [*retries, *own] if retry_first else [*own, *retries]
        return self._by_priority(queues) if request.by_priority else queues

    def _by_priority(self, queues: Sequence[TopicQueue]) -> Sequence[TopicQueue]:
        """The queues in the order of their priorities, if this pop of the group is to read so."""
        group = self.tables.groups.get(self.request.group)
        attributes = {} if group is None else group.attributes
        if not reads_by_priority(attributes, self.control.rng.randrange(100)):
            return queues
        sign = 1 if self.control.settings.config.priority_order_asc else -1
        step_ms = ageing_ms(attributes)

        def rank(queue: TopicQueue) -> tuple[int, int]:
            own = sign * queue[1]
            aged = aged_priority(own, self._waited_ms(*queue), step_ms) if step_ms else own
            return aged, own

        return sorted(queues, key=rank, reverse=True)

    def _waited_ms(self, topic: str, queue_id: int) -> int:
        """Time that the next message of a queue has waited; 0 if there is none."""
        progress, maximum = self._progress(topic, queue_id)
        if progress >= maximum:
            return 0
        return self.pop_ms - self.log.store.store_time_at(topic, queue_id, progress)

    def _retries(self) -> Sequence[TopicQueue]:
        """The queues of messages that failed: one, or as many as there are priorities."""
        request, get = self.request, self.tables.topics.get
        if request.order:
            return ()
        older = names.pop_retry_topic_v1(request.group, request.topic)
        newer = names.pop_retry_topic(request.group, request.topic)
        return [
            (topic, queue_id)
            for topic in (older, newer)
            if (config := get(topic)) is not None
            for queue_id in range(config.read_queue_nums)
        ]

    def _has(self, topic: str, queue_id: int) -> bool:
        if self.request.order and self._is_blocked(topic, queue_id):
            return False
        progress, maximum = self._progress(topic, queue_id)
        wanted = self.request.wanted if topic == self.request.topic else None
        if progress < maximum and isinstance(wanted, CompiledFilter):
            if self._looks <= 0:  # a message that the filter rejects costs its group one pop
                return True
            look = min(NOTIFICATION_SCAN_MAX, maximum - progress)
            matches = self._scan((topic, queue_id, progress), wanted, (look, 1, 1))
            return matches.count > 0 or matches.next_offset < maximum
        return progress < maximum

    def _take(self, topic: str, queue_id: int) -> None:
        request = self.request
        progress, maximum = self._progress(topic, queue_id)
        left = request.count - self.count
        if progress >= maximum:
            return
        is_filtered = isinstance(request.wanted, CompiledFilter) and topic == request.topic
        if left <= 0 or self.size >= BYTES_DEFAULT or (is_filtered and self._looks <= 0):
            self._leave(topic, queue_id, maximum - progress)
            self.moved = self.moved or (left > 0 and is_filtered)
            return
        if request.order and self._is_blocked(topic, queue_id):
            self.rest += maximum - progress
            return
        messages = self._read(topic, queue_id, progress, left)
        if topic != request.topic and retry_kind(topic) == RETRY_V1:
            messages = self._own(topic, messages)
        self._leave(topic, queue_id, maximum - messages.next_offset)
        if messages.count:
            self._keep(topic, queue_id, progress, messages)
        elif not request.peek and messages.next_offset > progress:
            self.tables.offsets.commit(request.group, topic, queue_id, messages.next_offset)
            self.moved = self.moved or messages.next_offset < maximum

    def _scan(
        self, place: tuple[str, int, int], wanted: CompiledFilter, limits: tuple[int, int, int]
    ) -> Slice:
        """One step of a scan; its queues share what one step may cost."""
        messages = scan_once(self.log.store, place, wanted, limits)
        looked = messages.next_offset - place[2]
        is_cut = looked < limits[0] and messages.count < limits[1]
        self._looks = 0 if is_cut else self._looks - looked
        return messages

    def _read(self, topic: str, queue_id: int, progress: int, count: int) -> Slice:
        """Read the next messages that match the filter; those of the retry topic all match."""
        size = BYTES_DEFAULT - self.size
        wanted = self.request.wanted if topic == self.request.topic else None
        if isinstance(wanted, CompiledFilter):
            look = min(self._looks, self.log.store.bounds(topic, queue_id)[1] - progress)
            return self._scan((topic, queue_id, progress), wanted, (look, count, size))
        return self.log.store.read(
            topic, queue_id, progress, count_max=count, bytes_max=size, wanted=wanted
        )

    def _leave(self, topic: str, queue_id: int, count: int) -> None:
        self.rest += count
        if count > 0:
            self.others.add(queue_id if topic == self.request.topic else ANY_QUEUE)

    def _keep(self, topic: str, queue_id: int, start: int, messages: Slice) -> None:
        """Deliver messages: the checkpoint is stored first, then the progress advances."""
        request = self.request
        offsets = _offsets(messages, start)
        if not request.peek:
            if request.order:
                self._hold(topic, queue_id, offsets)
            else:
                checkpoint = PopCheckpoint(
                    group=request.group, topic=topic, queue_id=queue_id, start=start,
                    pop_ms=self.pop_ms, invisible_ms=request.invisible_ms,
                    delivered=(bits := _bits(offsets, start)), left=bits,
                    revive_queue_id=self.revive_queue_id, revive_offset=0,
                )  # fmt: skip
                self.delivery.revive.give(checkpoint, moves_progress=True)
                self.tables.offsets.commit(request.group, topic, queue_id, messages.next_offset)
        self.starts.append(start_info(topic, queue_id, start))
        self.offsets.append(offset_info(topic, queue_id, offsets))
        self.count += messages.count
        self.size += messages.size
        self.control.statistics.got(topic, request.group, messages.count, messages.size)
        if topic == request.topic:
            self.parts += messages.parts
        else:
            self.parts += [
                self._renamed(part, at, start) for part in messages.parts for at in _places(part)
            ]

    def _progress(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The group's next offset in a queue, and the queue's end."""
        request = self.request
        minimum, maximum = self.log.store.bounds(topic, queue_id)
        if self.tables.offset_resets.pending and not request.peek:
            # The progress includes it already.
            self.tables.offset_resets.take(request.group, topic, queue_id)
        committed = self.tables.offsets.get(request.group, topic, queue_id)
        if committed is None:
            progress = BrokerProgress(self.log, self.tables, self.control)
            is_young = minimum <= 0 and progress.is_start_in_memory(topic, queue_id)
            from_max = request.init_mode == MAX_MODE and topic == request.topic and not is_young
            committed = maximum if from_max else minimum
            if not request.peek:
                self.tables.offsets.commit(request.group, topic, queue_id, committed)
        outcome = pull_outcome(committed, minimum, maximum)
        if isinstance(outcome, OffsetCorrected):
            committed = outcome.offset
            if not request.peek:
                self.tables.offsets.commit(request.group, topic, queue_id, committed)
        return committed, maximum

    # -- ordered -----------------------------------------------------------------------------

    def _is_blocked(self, topic: str, queue_id: int) -> bool:
        request = self.request
        held = self.tables.ordered_pops.get(request.group, topic, queue_id)
        until_ms = blocked_until(held, request.attempt, self.pop_ms)
        if until_ms is None:
            return False
        if self.blocked_until_ms is None or until_ms < self.blocked_until_ms:
            self.blocked_until_ms = until_ms
        return True

    def _hold(self, topic: str, queue_id: int, offsets: Sequence[int]) -> None:
        request, orders = self.request, self.tables.ordered_pops
        before = orders.get(request.group, topic, queue_id)
        held = hold(before, list(offsets), self.pop_ms, request.invisible_ms, request.attempt)
        orders.put(request.group, topic, queue_id, held)
        self._count_times(topic, queue_id, held)

    def _count_times(self, topic: str, queue_id: int, held: OrderedPopLock) -> None:
        for offset, times in held.times.items():
            self.times.append(offset_count_info(topic, queue_id, offset, times))
        all_came_before = len(held.times) == len(held.offsets)
        least = min(held.times.values(), default=0) if all_came_before else 0
        self.times.append(queue_count_info(topic, queue_id, least))

    # -- from the retry topics ---------------------------------------------------------------

    def _own(self, retry_topic: str, messages: Slice) -> Slice:
        """Messages of a retry topic with an older name that may be the popped topic's."""
        origins = {*names.possible_origins(retry_topic)} - {self.request.topic}
        own = [
            record
            for part in messages.parts
            for at in _places(part)
            if self._may_own(record := part[at : at + LENGTH.unpack_from(part, at)[0]], origins)
        ]
        return Slice(own, len(own), sum(map(len, own)), messages.next_offset)

    def _may_own(self, record: memoryview, origins: Container[str]) -> bool:
        """Whether a record of a shared retry topic may be the popped topic's.

        Those of a group that pulls name their topic, and were never popped.
        """
        try:
            properties = decode_properties(decode(record).properties)
        except RecordError:
            return True
        origin = properties.get(props.RETRY_TOPIC, self.request.topic)
        was_popped = props.FIRST_POP_TIME in properties
        return origin == self.request.topic or (was_popped and origin not in origins)

    def _renamed(self, part: memoryview, at: int, start: int) -> bytes:
        """A record of the retry topic under the name of the topic that the client pops."""
        request = self.request
        (size,) = LENGTH.unpack_from(part, at)
        try:
            record = decode(part[at : at + size])
            handle = ReceiptHandle(
                start=start,
                pop_ms=self.pop_ms,
                invisible_ms=request.invisible_ms,
                revive_queue=self.revive_queue_id,
                retry=retry_kind(record.topic),
                broker=self.control.settings.config.broker_name,
                queue_id=record.queue_id,
                offset=record.queue_offset,
            )
            properties = decode_properties(lossless_text(record.properties))
            if not request.peek:
                properties[props.POP_CK] = handle.text()
            return pack(
                record.queue_id, record.flag, record.queue_offset, record.position, record.sys_flag,
                record.born_ms, record.born_host, record.stored_ms, record.store_host,
                record.reconsume_times, record.prepared_position, record.body,
                request.topic.encode(), lossless_bytes(properties_text(properties)),
            )  # fmt: skip
        except (MessageIllegal, RecordError):  # no room for another property, or odd ones
            return bytes(part[at : at + size])


def _places(part: memoryview) -> list[int]:
    places, at = [], 0
    while at < len(part):
        places.append(at)
        at += LENGTH.unpack_from(part, at)[0]
    return places


def _offsets(messages: Slice, start: int) -> Sequence[int]:
    if messages.next_offset - start == messages.count:
        return range(start, messages.next_offset)
    return [HEAD.unpack_from(part, at)[5] for part in messages.parts for at in _places(part)]


def _bits(offsets: Sequence[int], start: int) -> int:
    return (1 << len(offsets)) - 1 if isinstance(offsets, range) else bits_of(offsets, start)
