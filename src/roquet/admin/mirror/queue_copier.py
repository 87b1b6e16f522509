"""Queue copier: messages of one source queue to one target queue, in order, each once.

    source, group to-TARGET    committed: the next offset to copy, for people and as a last resort
    target, group from-SOURCE  committed: the end of the copies; the one before says its original

One request is under way at a time. After a failure that leaves open whether it was stored, and
after a start, the copies in the target are read: the last one says where to go on. A message is
there twice only where a broker stores a request long after its connection has ended.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, takewhile
from typing import Final

import msgspec

from roquet.admin.mirror.endpoint import MirrorEndpoint
from roquet.log_records import logger
from roquet.model import properties as names
from roquet.model.errors import CallError, CallRefused, MessageIllegal, RoquetError
from roquet.model.flags import COMPRESSION_MASK, SysFlag
from roquet.model.queue import MessageQueue
from roquet.net.channel import Channel
from roquet.net.clock import Clock
from roquet.rules.mirror import Origin, copied_properties, origin_of
from roquet.rules.rate_limit import RateLimit
from roquet.rules.send_retry import is_transient
from roquet.wire.calls.send import Send, SendBatch
from roquet.wire.codes import ResponseCode
from roquet.wire.records.batch import BatchItem, encode_batch
from roquet.wire.records.message_id import offset_message_id
from roquet.wire.records.property_text import decode_properties, lossless_bytes, lossless_text
from roquet.wire.records.record import Record

log = logger(__name__)

BATCH_BYTES: Final = 512 * 1024
"""Bytes of one request, as stored in the source; a longer message goes alone."""

BATCH_COUNT: Final = 1_000
"""Messages of one request."""

COMMIT_MS: Final = 1_000
"""Time between two commits."""

COMPRESSION: Final = SysFlag.COMPRESSED | COMPRESSION_MASK

OWN_PREFIX: Final = "roquet-mirror-"
"""Begins the names of the groups of mirrors."""


class MirrorNames(msgspec.Struct, frozen=True):
    """The names of both clusters."""

    source: str
    target: str

    @property
    def source_group(self) -> str:
        """The group at the source whose progress is that of the mirror."""
        return f"{OWN_PREFIX}to-{self.target}"

    @property
    def target_group(self) -> str:
        """The group at the target whose progress is the end of the copies."""
        return f"{OWN_PREFIX}from-{self.source}"


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
    refused: int = 0
    """Messages that the target does not take, and that are left out (`--skip-refused`)."""
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
        queues: tuple[MessageQueue, MessageQueue], limit: RateLimit, clock: Clock,
        *, skip_refused: bool = False,
    ) -> None:  # fmt: skip
        self.source, self.target = queues
        self._from, self._to = ends
        self._names, self._limit, self._clock = names, limit, clock
        self._skip_refused = skip_refused
        self.state = MirroredQueue(
            topic=self.source.topic, source=place(self.source), target=place(self.target)
        )
        self.is_new = False
        """Whether the target has no copy, whatever was committed in the source: none was sent, or
        all are lost."""
        self.copies = range(0)
        """Offsets of the target that are known to hold nothing but copies of the queue."""
        self._known_end = 0
        """The highest end of the copies since the last success of `resume`."""
        self._committed_ms = 0
        self._channel: Channel | None = None

    @property
    def next_offset(self) -> int:
        """The source offset to copy next."""
        return self.state.next_offset or 0

    async def resume(self) -> None:
        """Find out how far the queue was copied. Raises MirrorStopped if that cannot be said."""
        self._channel = await self._to.channel(self.target)
        low, high = await self._to.min_offset(self.target), await self._to.max_offset(self.target)
        committed = await self._to.committed(self.target) or 0
        self._known_end = max(self._known_end, committed, self.state.target_end)
        found = await self._last_copy(committed - 1, high) if low < committed <= high else None
        if found is None:  # a new master lacks copies, and may have other messages there
            found = await self._last_copy(low, high)
        if found is None and self._known_end > low:  # retention has not deleted the last copy
            self.is_new = True
        done = None if self.is_new else await self._from.committed(self.source)
        first = await self._from.min_offset(self.source)
        self.state.source_end = await self._from.max_offset(self.source)
        if found is not None:  # it decides: a new master may lack copies that were acknowledged
            await self._check_original(found)
            done = found.offset + 1
        next_offset = first if done is None else done
        if next_offset > self.state.source_end:
            raise self._other_queue(next_offset - 1)
        self.state.next_offset, self.is_new, self._known_end = next_offset, False, 0

    async def _last_copy(self, begin: int, end: int) -> Origin | None:
        """The last copy of this source queue among messages of the target from `begin` to `end`."""
        self.copies = range(0)
        self.state.target_end = 0
        found: Origin | None = None
        async for record in self._to.records_between(self.target, begin, end):
            if (origin := self.original_of(record)) is not None:
                self.state.target_end = record.queue_offset + 1
                if found is None or origin.offset > found.offset:
                    found = origin
        return found

    def original_of(self, record: Record) -> Origin | None:
        """The original of a record of the target; None if it is no copy of this source queue."""
        origin = origin_of(properties_of(record))
        return origin if origin and origin.is_from(self._names.source, self.source) else None

    async def _check_original(self, found: Origin) -> None:
        """Raise MirrorStopped if the source has another message where the last copy came from."""
        records, _ = await self._from.records(self.source, found.offset, 1)
        for record in records:  # none if retention has deleted it
            message_id = properties_of(record)[names.UNIQUE_KEY]
            if record.queue_offset == found.offset and message_id != found.message_id:
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
        offset = self.next_offset
        count = min(self._limit.step or BATCH_COUNT, BATCH_COUNT)
        records, reply = await self._from.records(self.source, offset, count)
        self.state.source_end = reply.max_offset
        if reply.code == ResponseCode.PULL_OFFSET_MOVED and reply.max_offset < offset:
            raise self._other_queue(offset - 1)
        records = [record for record in records if record.queue_offset >= offset]
        first = records[0].queue_offset if records else reply.next_begin_offset
        if offset < reply.min_offset <= first:
            self.state.expired += first - offset
        single = list(takewhile(lambda record: not record.sys_flag & SysFlag.INNER_BATCH, records))
        copies = list(copies_of(single, self._names.source, self.source))
        self.state.skipped += len(single) - len(copies)
        for batch in batches(copies):
            delay_ms = self._limit.delay_ms(len(batch), self._clock.monotonic_ms())
            await self._clock.sleep(delay_ms)
            await self._deliver(batch)
        if len(single) < len(records):
            stopped = f"{self.source} offset {records[len(single)].queue_offset}"
            raise MirrorStopped(f"{stopped}: a batch that is stored as one message")
        self.state.next_offset = max(reply.next_begin_offset, self.next_offset)
        if self._clock.monotonic_ms() - self._committed_ms >= COMMIT_MS:
            await self.commit()
        return reply.next_begin_offset > offset

    async def _deliver(self, batch: Sequence[Copy]) -> None:
        """Send a batch; if it is refused, its messages one by one, up to the one at fault."""
        first, last = batch[0].record, batch[-1].record
        try:
            reply = await self._to.send(self.target, self._call(batch), self._channel)
        except (CallError, MessageIllegal) as error:
            if isinstance(error, CallError) and is_transient(error):
                raise  # perhaps it is stored: the next `resume` finds out
            if len(batch) > 1:
                for copy in batch:
                    await self._deliver([copy])
                return
            self._skip(first, error)
            return
        self.state.copied += len(batch)
        self.state.less_durable += len(batch) * (reply.code != ResponseCode.SUCCESS)
        self.state.next_offset = last.queue_offset + 1
        if reply.queue_id != self.target.queue_id:  # by its priority, among other numbers of queues
            return
        if reply.queue_offset < self.state.target_end:
            raise CallError(f"{self.target} was cut: its copies are read again", definite=False)
        self.state.target_end = reply.queue_offset + len(batch)
        begin = self.copies.start if reply.queue_offset == self.copies.stop else reply.queue_offset
        self.copies = range(begin, self.state.target_end)

    def _skip(self, record: Record, error: CallError | MessageIllegal) -> None:
        """Leave out a message that the target never takes. Raises MirrorStopped if it must not be.

        Other refusals, such as that of a topic without permission, would meet all messages.
        """
        fault = f"{self.source} offset {record.queue_offset}: the target refuses it: {error}"
        is_illegal = isinstance(error, MessageIllegal) or (
            isinstance(error, CallRefused) and error.code == ResponseCode.MESSAGE_ILLEGAL
        )
        if is_illegal and self._skip_refused:
            log.error("%s; it is not copied", fault)
            self.state.refused += 1
            self.state.next_offset = record.queue_offset + 1
            return
        way_out = "; --skip-refused leaves such messages out" if is_illegal else ""
        raise MirrorStopped(fault + way_out) from error

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


def copies_of(records: Sequence[Record], cluster: str, queue: MessageQueue) -> Iterator[Copy]:
    """The copies of records of a queue of a cluster; what is a copy itself has none."""
    for record in records:
        values = properties_of(record)
        if origin_of(values) is None:
            place = cluster, queue, record.queue_offset, record.born_ms
            copied = copied_properties(values, *place).items()
            text = "".join(f"{name}\x01{value}\x02" for name, value in copied)
            yield Copy(record, lossless_bytes(text), names.PRIORITY in values)


def batches(copies: Sequence[Copy]) -> Iterator[Sequence[Copy]]:
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


def place(queue: MessageQueue) -> str:
    """A queue without its topic, as broker-a:0."""
    return f"{queue.broker_name}:{queue.queue_id}"


def properties_of(record: Record) -> dict[str, str]:
    """Properties of a record; a message without a producer's id has its broker's, as its copy."""
    values = decode_properties(lossless_text(record.properties))
    if names.UNIQUE_KEY not in values:
        values[names.UNIQUE_KEY] = offset_message_id(record.store_host, record.position)
    return values
