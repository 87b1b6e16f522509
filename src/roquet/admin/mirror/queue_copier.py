"""Queue copier: messages of one source queue to one target queue, in order, each once.

    source, group to-TARGET    committed: the next offset to copy, for people and as a last resort
    target, group from-SOURCE  committed: the end of the copies; the one before says its original

One request is under way at a time. After a failure that leaves open whether it was stored, and
after a start, the copies in the target are read: the last one says where to go on. A message is
there twice only where a broker stores a request long after its connection has ended.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

from roquet.admin.mirror.endpoint import MirrorEndpoint, PulledRecords
from roquet.model import properties as names
from roquet.model.errors import CallError, MessageIllegal, RoquetError
from roquet.model.flags import COMPRESSION_MASK, SysFlag
from roquet.model.queue import MessageQueue
from roquet.net.clock import Clock
from roquet.rules.mirror import OffsetMap, Origin, copied_properties, origin_of, resume_offset
from roquet.rules.send_retry import is_transient
from roquet.wire.calls.send import Send, SendBatch
from roquet.wire.codes import ResponseCode
from roquet.wire.records.batch import BatchItem, encode_batch
from roquet.wire.records.message_id import offset_message_id
from roquet.wire.records.property_text import decode_properties, lossless_bytes, lossless_text
from roquet.wire.records.record import Record

BATCH_BYTES: Final = 512 * 1024
"""Bytes of one request, as stored in the source; a longer message goes alone."""

BATCH_COUNT: Final = 1_000
"""Messages of one request."""

COMMIT_MS: Final = 1_000
"""Time between two commits."""

COMPRESSION: Final = SysFlag.COMPRESSED | COMPRESSION_MASK


STEPS_PER_S: Final = 10
"""Requests per second at least, so that a rate does not become one burst per second."""


class Pace:
    """A limit of messages a second that all queues share; lost time is not made up for."""

    def __init__(self, rate: float | None, clock: Clock) -> None:
        """`rate` in messages per second; None for no limit."""
        self._rate, self._clock = rate, clock
        self._due_ms: float = clock.monotonic_ms()

    @property
    def step(self) -> int:
        """Messages to read at a time."""
        if self._rate is None:
            return BATCH_COUNT
        return max(1, min(BATCH_COUNT, int(self._rate / STEPS_PER_S)))

    async def wait(self, count: int) -> None:
        """Wait until the next `count` messages may be sent."""
        if self._rate is None:
            return
        now_ms = self._clock.monotonic_ms()
        begin_ms = max(self._due_ms, now_ms)
        self._due_ms = begin_ms + count * 1000 / self._rate
        if begin_ms > now_ms:
            await self._clock.sleep(int(begin_ms - now_ms))


class MirrorNames(msgspec.Struct, frozen=True):
    """The names of both clusters."""

    source: str
    target: str

    @property
    def source_group(self) -> str:
        """The group at the source whose progress is that of the mirror."""
        return f"roquet-mirror-to-{self.target}"

    @property
    def target_group(self) -> str:
        """The group at the target whose progress is the end of the copies."""
        return f"roquet-mirror-from-{self.source}"


class MirrorStopped(RoquetError):
    """A queue cannot be copied on until somebody acts."""


class Copy(msgspec.Struct, frozen=True):
    """A record that is copied, with its properties in the target."""

    record: Record
    properties: bytes
    is_alone: bool
    """Whether no batch may have it: its broker chooses a queue by its priority."""

    @property
    def flags(self) -> int:
        """How the body is compressed; one for all messages of a batch."""
        return self.record.sys_flag & COMPRESSION


class MirroredQueue(msgspec.Struct, kw_only=True):
    """How far a queue is copied. The fields are the keys of `roquet mirror --json`."""

    topic: str
    source: str
    """Broker and queue, as broker-a:0."""
    target: str
    copied: int = 0
    """Messages of this run."""
    skipped: int = 0
    """Copies of another mirror, which are not copied again."""
    expired: int = 0
    """Messages that retention had deleted before they were copied."""
    less_durable: int = 0
    """Copies that the target stored less durably than its settings promise."""
    next_offset: int | None = None
    """The source offset to copy next; None before the target was asked."""
    source_end: int = 0
    """The end of the source's queue, as far as known."""
    target_end: int = 0
    """The end of the copies in the target's queue; 0 without any."""
    fault: str | None = None
    """Why it is not copied now."""

    @property
    def lag(self) -> int:
        """Messages of the source queue that are not copied yet."""
        return max(0, self.source_end - (self.next_offset or 0))


class QueueCopier:
    """Copies one queue; a step pulls once and sends what it got."""

    def __init__(
        self, ends: tuple[MirrorEndpoint, MirrorEndpoint], names: MirrorNames,
        queues: tuple[MessageQueue, MessageQueue], pace: Pace, clock: Clock,
    ) -> None:  # fmt: skip
        self.source, self.target = queues
        self._from, self._to = ends
        self._names, self._pace, self._clock = names, pace, clock
        self.offsets = OffsetMap()
        self.state = MirroredQueue(
            topic=self.source.topic, source=_place(self.source), target=_place(self.target)
        )
        self.own_unread: dict[int, int] = {}
        """Behind the latest copies of the target's own messages: source offset to target offset."""
        self._committed_ms = 0

    async def resume(self) -> None:
        """Find out how far the queue was copied. Raises MirrorStopped if that cannot be said."""
        committed = await self._to.own_committed(self.target)
        low, high = await self._to.min_offset(self.target), await self._to.max_offset(self.target)
        known_end = committed is not None and low < committed <= high
        begin = committed - 1 if committed and known_end else low
        found = await self._last_copy(begin, high)
        if found is None and begin > low:  # a new master lacks copies, and has other messages there
            found = await self._last_copy(low, high)
        done = await self._from.own_committed(self.source)
        first = await self._from.min_offset(self.source)
        self.state.source_end = await self._from.max_offset(self.source)
        if found is not None:
            await self._check_original(found)
        self.state.next_offset = resume_offset(found.offset if found else None, done, first)
        if self.state.next_offset > self.state.source_end:
            raise self._other_queue(self.state.next_offset - 1)

    async def _last_copy(self, begin: int, end: int) -> Origin | None:
        """The last copy of this source queue among messages of the target from `begin` to `end`."""
        self.offsets.clear()
        self.state.target_end = 0
        found: Origin | None = None
        async for record in self._to.records_between(self.target, begin, end):
            if (origin := self.original_of(record)) is None:
                continue
            self.state.target_end = max(self.state.target_end, record.queue_offset + 1)
            if found is None or origin.offset > found.offset:
                found = origin
                self.offsets.add(origin.offset, record.queue_offset)
        return found

    def original_of(self, record: Record) -> Origin | None:
        """The original of a record of the target; None if it is no copy of this source queue."""
        origin = origin_of(decode_properties(lossless_text(record.properties)))
        return origin if origin and origin.is_from(self._names.source, self.source) else None

    async def _check_original(self, found: Origin) -> None:
        """Raise MirrorStopped if the source has another message where the last copy came from."""
        pulled = await self._from.records(self.source, found.offset, 1)
        record = next((r for r in pulled.records if r.queue_offset == found.offset), None)
        if record is None:
            return  # retention has deleted it
        if _message_id(record) != found.message_id:
            raise self._other_queue(found.offset)

    def _other_queue(self, offset: int) -> MirrorStopped:
        return MirrorStopped(
            f"{self.source}: the target has a copy of offset {offset}, which is another message "
            f"here or not there: the topic was deleted, or its log cut, or another cluster has the "
            f"name {self._names.source!r} too; give this source another name by --from-name, and "
            f"all of its messages are copied"
        )

    async def step(self) -> bool:
        """Pull once and send what came; whether anything came. `resume` comes first."""
        offset = self.state.next_offset or 0
        pulled = await self._from.records(self.source, offset, self._pace.step)
        self.state.source_end = pulled.max_offset
        if pulled.is_moved and pulled.max_offset < offset:
            raise self._other_queue(offset - 1)
        records = [r for r in pulled.records if r.queue_offset >= offset]
        inner = next((r.queue_offset for r in records if r.sys_flag & SysFlag.INNER_BATCH), None)
        self._note_expired(offset, records, pulled)
        before = [r for r in records if inner is None or r.queue_offset < inner]
        for batch in batches(self._copies(before)):
            await self._pace.wait(len(batch))
            await self._deliver(batch)
        if inner is not None:
            raise MirrorStopped(
                f"{self.source} offset {inner}: a batch that is stored as one message"
            )
        is_changed = pulled.next_offset > offset
        self.state.next_offset = max(pulled.next_offset, self.state.next_offset or 0)
        if self._clock.monotonic_ms() - self._committed_ms >= COMMIT_MS:
            await self.commit()
        return is_changed

    def _note_expired(self, offset: int, records: Sequence[Record], pulled: PulledRecords) -> None:
        first = records[0].queue_offset if records else pulled.next_offset
        if offset < pulled.min_offset <= first:
            self.state.expired += first - offset

    def _copies(self, records: Sequence[Record]) -> Iterator[Copy]:
        """The copies to send; those of the target's own messages are noted, not sent back."""
        for record in records:
            values = decode_properties(lossless_text(record.properties))
            origin = origin_of(values)
            if origin is None:
                values.setdefault(names.UNIQUE_KEY, _message_id(record))
                place = self._names.source, self.source, record.queue_offset, record.born_ms
                yield Copy(
                    record,
                    lossless_bytes(_text(copied_properties(values, *place))),
                    names.PRIORITY in values,
                )
                continue
            self.state.skipped += 1
            if origin.is_from(self._names.target, self.target):
                self.own_unread[record.queue_offset] = origin.offset + 1
                if len(self.own_unread) > BATCH_COUNT:
                    del self.own_unread[next(iter(self.own_unread))]

    async def _deliver(self, batch: Sequence[Copy]) -> None:
        """Send a batch; if it is refused, its messages one by one, up to the one at fault."""
        first, last = batch[0].record, batch[-1].record
        try:
            reply = await self._to.send(self.target, self._call(batch))
        except (CallError, MessageIllegal) as error:
            if isinstance(error, CallError) and is_transient(error):
                raise  # perhaps it is stored: the next `resume` finds out
            if len(batch) > 1:
                for copy in batch:
                    await self._deliver([copy])
                return
            raise MirrorStopped(
                f"{self.source} offset {first.queue_offset}: the target refuses it: {error}"
            ) from error
        self.state.copied += len(batch)
        self.state.less_durable += len(batch) * (reply.code != ResponseCode.SUCCESS)
        self.state.next_offset = last.queue_offset + 1
        if reply.queue_id != self.target.queue_id:  # by its priority, among other numbers of queues
            return
        if reply.queue_offset < self.state.target_end:
            raise CallError(f"{self.target} was cut: its copies are read again", definite=False)
        for number, copy in enumerate(batch):
            self.offsets.add(copy.record.queue_offset, reply.queue_offset + number)
        self.state.target_end = reply.queue_offset + len(batch)

    def _call(self, batch: Sequence[Copy]) -> Send:
        first = batch[0].record
        kind: type[Send] = Send if batch[0].is_alone else SendBatch
        items = [BatchItem(one.record.flag, one.record.body, one.properties) for one in batch]
        return kind(
            producer_group=self._names.target_group,
            topic=self.target.topic,
            queue_id=self.target.queue_id,
            sys_flag=batch[0].flags,
            born_timestamp=first.born_ms,
            flag=first.flag,
            body=first.body if kind is Send else encode_batch(items),
            properties=lossless_text(batch[0].properties) if kind is Send else "",
            batch=kind is SendBatch,
        )

    async def commit(self) -> None:
        """Commit how far the queue is copied, at both ends."""
        self._committed_ms = self._clock.monotonic_ms()
        if self.state.target_end:
            await self._to.commit(self.target, self.state.target_end)
        if self.state.next_offset is not None:
            await self._from.commit(self.source, self.state.next_offset)


def batches(copies: Iterator[Copy]) -> Iterator[Sequence[Copy]]:
    """Copies in requests: those of one compression together, within the limits of a request."""
    for _, run in groupby(copies, key=lambda copy: (copy.flags, copy.is_alone)):
        batch: list[Copy] = []
        size = 0
        for copy in run:
            size += copy.record.size
            if batch and (copy.is_alone or size > BATCH_BYTES or len(batch) == BATCH_COUNT):
                yield batch
                batch, size = [], copy.record.size
            batch.append(copy)
        yield batch


def _place(queue: MessageQueue) -> str:
    return f"{queue.broker_name}:{queue.queue_id}"


def _message_id(record: Record) -> str:
    """The producer's id, else the one of the broker, which its copy gets as its own."""
    values = decode_properties(lossless_text(record.properties))
    broker_id = offset_message_id(record.store_host, record.position)
    return values.get(names.UNIQUE_KEY) or broker_id


def _text(properties: dict[str, str]) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
