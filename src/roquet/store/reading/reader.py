"""RecordReader: records found by offset, by time, by position and by key."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate, compress, islice
from typing import Final

import msgspec

from roquet.log_records import logger
from roquet.rules.recovery import LogDamage, LostMessages, RecordRange
from roquet.store.commit_log.log import CommitLog
from roquet.store.consume_queue.queue import ConsumeQueue
from roquet.store.consume_queue.queue_repair import CHECK_ENTRIES, QueueRepair
from roquet.store.consume_queue.queues import ConsumeQueues
from roquet.store.key_index.dispatch import hash_key
from roquet.store.key_index.index import KeyIndex
from roquet.store.layout import FILLER_SIZE
from roquet.store.reading.entry_scan import (
    EntryScan,
    IntColumn,
    LogExtents,
    TagCodeFilter,
    contiguous_range,
    merge_adjacent,
    select_rows,
)
from roquet.wire.records.partial_decode import index_keys
from roquet.wire.records.property_text import readable_text

log = logger(__name__)

SCAN_MAX: Final = 800
"""Entries examined by one filtered read, as in Apache's broker: it must end. Callers may allow
more."""

HOLE_BYTES: Final = 8 * 1024 * 1024
"""Bytes that a read looks over for the end of a hole, in a few ms; the scrub finds the rest."""

QUERY_MAX: Final = 10_000
"""Entries of one hash examined by a query, the newest ones: everybody else waits meanwhile."""


class Slice(msgspec.Struct, frozen=True, gc=False):
    """Records of one queue: each part holds whole records, adjacent ones as they lie in the log."""

    parts: list[memoryview]
    count: int
    size: int
    next_offset: int
    """The offset behind the last entry examined, matching or not."""


class RecordBlock(msgspec.Struct, frozen=True, gc=False):
    """Records of one queue in one piece of memory."""

    data: bytes
    edges: list[int]
    """Where each record begins, and where the last one ends."""
    next_offset: int


class QueryResult(msgspec.Struct, frozen=True):
    """Messages found by key, the newest in the order of the log, and how far the index is."""

    records: list[bytes]
    positions: list[int]
    last_update_ms: int
    last_update_position: int


class RecordReader:
    """Reads of a store. Damage that it meets is remembered and skipped."""

    def __init__(
        self, commit_log: CommitLog, queues: ConsumeQueues, index: KeyIndex, repair: QueueRepair
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._repair = repair
        self.confirmed: int | None = None
        """Reads see no record that ends behind this position; None: they see all."""
        self.damage: list[LogDamage] = []
        self._holes: list[int] = []

    # -- damage ------------------------------------------------------------------------------

    def report(self, hole: RecordRange) -> None:
        """Remember a hole of the log, and log it."""
        self._remember(
            LogDamage(hole.start, hole.stop, self._queues.lost_in(hole.start, hole.stop))
        )

    def _remember(self, damage: LogDamage) -> None:
        outside = (d for d in self.damage if not damage.start <= d.start < d.stop <= damage.stop)
        self.damage = sorted((*outside, damage), key=lambda known: known.start)
        self._holes = [known.start for known in self.damage]
        log.error("the log is damaged and cannot be read at %s", damage)

    def forget_from(self, position: int) -> None:
        """Forget holes behind a position, where the log was cut."""
        self.damage = [known for known in self.damage if known.stop <= position]
        self._holes = [known.start for known in self.damage]

    def has_damage(self, start: int, stop: int) -> bool:
        """Whether damage is known between two positions."""
        return any(known.start < stop and start < known.stop for known in self.damage)

    def _is_damaged(self, position: int) -> bool:
        index = bisect_right(self._holes, position) - 1
        return index >= 0 and position < self.damage[index].stop

    def _has_all(self, positions: IntColumn, sizes: IntColumn) -> bool:
        """Whether all these records can be read; False also if each needs a check of its own."""
        if self._holes:
            start, stop = min(positions), max(positions) + max(sizes)
            if self.has_damage(start, stop):
                return False
        return self._log.has_all(positions, sizes)

    def _record(self, queue: ConsumeQueue, offset: int) -> memoryview | None:
        """The record of an offset; None, with the damage remembered, if it cannot be read."""
        position, size, _ = queue.entry(offset)
        if size == FILLER_SIZE or (self._holes and self._is_damaged(position)):
            return None
        record = self._log.record(position, size)
        if record is None and position >= self._log.begin:
            self._remember(self._damage_at(queue, offset, position))
        return record

    def _damage_at(self, queue: ConsumeQueue, offset: int, position: int) -> LogDamage:
        """The hole that an offset leads into, up to the next whole record or a bound."""
        stop = self._log.hole_end(position, HOLE_BYTES)
        behind = max(queue.offset_of(stop), offset + 1)
        return LogDamage(
            position, stop, (LostMessages(queue.topic, queue.queue_id, offset, behind),)
        )

    def _repair_entries(self, queue: ConsumeQueue, offsets: Iterable[int]) -> bool:
        """Whether wrong entries were corrected and now lead to their records."""
        has_mended = False
        for offset in offsets:
            position, size, _ = queue.entry(offset)
            if size == FILLER_SIZE or self._is_damaged(position):
                continue
            if position >= self._log.begin and self._log.record(position, size) is None:
                has_mended |= self._repair.repair_entry(queue, offset)
        return has_mended

    # -- by offset ---------------------------------------------------------------------------

    def stored_end(self, topic: str, queue_id: int) -> int:
        """Next offset of a queue, also behind messages that are not confirmed."""
        queue = self._queues.get(topic, queue_id)
        return 0 if queue is None else queue.end

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Least and next offset of a queue; (0, 0) if there is none."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return 0, 0
        end = queue.end if self.confirmed is None else self._confirmed_end(queue)
        return queue.min_offset(self._log.begin), end

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        count_max: int = 32,
        bytes_max: int = 256 * 1024,
        wanted: TagCodeFilter = None,
        scan_max: int = 0,
    ) -> Slice:
        """Records from an offset on; the first always fits.

        `wanted` selects by tag code: a set of codes or a predicate. Such a read examines up to
        `scan_max` entries, or a few hundred if that is more.
        """
        queue = self._queues.get(topic, queue_id)
        if queue is None or (end := self._end(queue, offset)) is None:
            return Slice([], 0, 0, self._nearest(queue, offset))
        scan = count_max if wanted is None else max(count_max, SCAN_MAX, scan_max)
        stop = min(end, offset + scan)
        if offset < queue.checked_from:
            self._repair.ensure(queue, offset, stop)
        if wanted is None and offset >= self._trusted_from(queue):
            # What one producer has sent in a batch, or a topic alone, lies together.
            if (range_ := queue.adjacent_range(offset, stop - offset, bytes_max)) is not None:
                part = self._log.view_range(*range_)
                return Slice([part], stop - offset, len(part), stop)
            extents = queue.extents(offset, stop - offset, bytes_max, least=1)
            if extents.count == stop - offset:
                part = self._log.read_ranges(extents.starts, extents.stops)
                return Slice([part], extents.count, extents.size, stop)
        return self._collect(EntryScan(queue, offset, stop, wanted), count_max, bytes_max)

    def read_block(
        self, topic: str, queue_id: int, offset: int, *, count_max: int, bytes_max: int
    ) -> RecordBlock:
        """Records from an offset on, in one piece of memory."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or (end := self._end(queue, offset)) is None:
            return RecordBlock(b"", [0], self._nearest(queue, offset))
        if offset < queue.checked_from:
            self._repair.ensure(queue, offset, min(end, offset + count_max))
        positions, sizes, _ = queue.columns(offset, min(end - offset, count_max))
        edges = list(accumulate(sizes, initial=0))
        fit = max(bisect_right(edges, bytes_max) - 1, 1)
        if offset >= self._trusted_from(queue) and edges[fit] < FILLER_SIZE:
            extents = queue.extents(offset, fit)
            data = bytes(self._log.read_ranges(extents.starts, extents.stops))
            return RecordBlock(data, edges[: fit + 1], offset + fit)
        if self._repair_entries(queue, range(offset, offset + fit)):
            return self.read_block(
                topic, queue_id, offset, count_max=count_max, bytes_max=bytes_max
            )
        positions, sizes = self._readable(queue, offset, positions[:fit], sizes[:fit])
        starts, stops = merge_adjacent(positions, sizes) if positions else ([], [])
        data = bytes(self._log.read_ranges(starts, stops)) if starts else b""
        return RecordBlock(data, list(accumulate(sizes, initial=0)), offset + fit)

    def _readable(
        self, queue: ConsumeQueue, offset: int, positions: list[int], sizes: list[int]
    ) -> tuple[list[int], list[int]]:
        if self._has_all(positions, sizes):
            return positions, sizes
        picks = [self._record(queue, at) is not None for at in range(offset, offset + len(sizes))]
        return list(compress(positions, picks)), list(compress(sizes, picks))

    def _trusted_from(self, queue: ConsumeQueue) -> int:
        """Entries from this offset on may be handed out without a look at their records."""
        return queue.end if self._holes else queue.checked_from

    def _end(self, queue: ConsumeQueue, offset: int) -> int | None:
        """The end of a queue that has this offset; None if it does not have it."""
        end = queue.end if self.confirmed is None else self._confirmed_end(queue)
        return end if queue.min_offset(self._log.begin) <= offset < end else None

    def _confirmed_end(self, queue: ConsumeQueue) -> int:
        """The end of a queue as readers see it: behind its last record that is confirmed."""
        confirmed, low = self.confirmed, queue.min_offset(self._log.begin)
        assert confirmed is not None, "where all is confirmed the queue's own end holds"
        high, step = queue.end, 1
        # Readers are mostly at the end, so the search goes back from there.
        while high > low and not _ends_by(queue, max(high - step, low), confirmed):
            high, step = max(high - step, low), step * 2
        low = max(high - step, low)
        while low < high:
            middle = (low + high) // 2
            if _ends_by(queue, middle, confirmed):
                low = middle + 1
            else:
                high = middle
        return low

    def _nearest(self, queue: ConsumeQueue | None, offset: int) -> int:
        """Where to continue in a queue that does not have this offset."""
        if queue is None:
            return 0
        end = queue.end if self.confirmed is None else self._confirmed_end(queue)
        return min(max(offset, queue.min_offset(self._log.begin)), end)

    def _collect(self, rows: EntryScan, count_max: int, bytes_max: int) -> Slice:
        queue, pieces = rows.queue, LogExtents()
        sure_from = self._trusted_from(queue)
        while rows.offset < rows.stop and (left := count_max - pieces.count) > 0:
            if rows.wants_all and rows.offset >= sure_from:
                extents = queue.extents(
                    rows.offset,
                    min(rows.stop - rows.offset, left),
                    bytes_max - pieces.size,
                    least=int(not pieces.count),
                )
                if extents.count:
                    pieces.add(extents.starts, extents.stops, extents.count, extents.size)
                    rows.offset += extents.count
                    continue
            offsets, positions, sizes = rows.next_entries(left)
            is_seen = not positions or (offsets[0] >= sure_from and sum(sizes) < FILLER_SIZE)
            if not is_seen and not self._has_all(positions, sizes):
                if self._repair_entries(queue, offsets):
                    rows.offset = offsets[0]
                    continue
                picks = [self._record(queue, at) is not None for at in offsets]
                offsets, positions, sizes = select_rows(picks, offsets, positions, sizes)
            fit = pieces.fitting_count(sizes, left, bytes_max)
            if fit < len(sizes):
                rows.offset = rows.stop = offsets[fit]
                positions, sizes = positions[:fit], sizes[:fit]
            if positions:
                pieces.add_records(positions, sizes)
        parts = [self._log.read_ranges(pieces.starts, pieces.stops)] if pieces.count else []
        return Slice(parts, pieces.count, pieces.size, rows.offset)

    def read_together(
        self,
        topic: str,
        offsets: Mapping[int, int],
        *,
        bytes_max: int = 4 * 1024 * 1024,
        bytes_least: int = 256 * 1024,
    ) -> Slice | None:
        """Unverified records of several queues as they lie in the log, the first one's among them.

        None when other queues' records lie between, or damage is known there.
        """
        requested = {self._queues.get(topic, queue_id): at for queue_id, at in offsets.items()}
        queues = {queue: at for queue, at in requested.items() if queue is not None}
        for queue, at in queues.items():
            if at < queue.checked_from:
                self._repair.ensure(queue, at, at + 4 * CHECK_ENTRIES)
        shared = (
            contiguous_range(self._log, queues, (bytes_least, bytes_max), self.confirmed_position)
            if len(queues) == len(offsets)
            else None
        )
        if shared is None or self.has_damage(shared.start, shared.stop):
            return None
        part = self._log.view_range(shared.start, shared.stop)
        return Slice([part], shared.count, len(part), shared.next_offset)

    # -- by time -----------------------------------------------------------------------------

    def offset_by_time(self, topic: str, queue_id: int, ms: int, *, upper: bool = False) -> int:
        """The first offset stored at `ms` or later; with `upper` the last stored until then."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return 0
        least = queue.min_offset(self._log.begin)
        if upper:
            return max(least, self._first_since(queue, least, ms + 1) - 1)
        return self._first_since(queue, least, ms)

    def _first_since(self, queue: ConsumeQueue, low: int, ms: int) -> int:
        high = queue.end if self.confirmed is None else self._confirmed_end(queue)
        while low < high:
            middle = (low + high) // 2
            stored_ms = self._stored_ms(queue, middle, high)
            if stored_ms is None or stored_ms >= ms:
                high = middle
            else:
                low = middle + 1
        return low

    def _stored_ms(self, queue: ConsumeQueue, offset: int, stop: int) -> int | None:
        for candidate in range(offset, stop):
            position, _, _ = queue.entry(candidate)
            if (stored_ms := self._log.stored_ms(position)) is not None:
                return stored_ms
        return None

    def store_time_at(self, topic: str, queue_id: int, offset: int) -> int:
        """The store time of the message of an offset; -1 if there is none."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or self._end(queue, offset) is None:
            return -1
        stored_ms = self._stored_ms(queue, offset, offset + 1)
        return -1 if stored_ms is None else stored_ms

    # -- by position and by key --------------------------------------------------------------

    def message_at(self, position: int, *, only_confirmed: bool = True) -> bytes | None:
        """The record that begins at a position of the log; None without one.

        Without `only_confirmed` also one that readers do not see yet: for those who have stored it.
        """
        end = self.confirmed_position if only_confirmed else self._log.end
        if not self._log.begin <= position < end:
            return None
        known = self._log.skim_at(position)
        if not known or position + known[0] > end:
            return None
        record = self._log.record(position, known[0])
        return None if record is None else bytes(record)

    def record_at(self, position: int, size: int) -> memoryview | None:
        """The record of that size at a position, of which only the head is checked; or None."""
        if position < self._log.begin or position + size > self.confirmed_position:
            return None
        return self._log.record(position, size)

    @property
    def confirmed_position(self) -> int:
        """Records that end behind this position are hidden; the log's end where none is."""
        return self._log.end if self.confirmed is None else min(self.confirmed, self._log.end)

    def prepare_search(self) -> None:
        """Called before each search by key: a store may have to check its index first."""

    def query(
        self,
        topic: str,
        key: str,
        *,
        count_max: int = 32,
        bytes_max: int = 1 << 62,
        begin_ms: int = 0,
        end_ms: int = 1 << 62,
        before: int = 1 << 62,
    ) -> QueryResult:
        """The newest messages with a key or unique key, in the order of the log.

        Only those stored between two times (inclusive), in front of the position `before`. The
        search ends once the messages have `bytes_max`. If very many messages have the key, the
        oldest are not examined.
        """
        self.prepare_search()
        topic_bytes, key_bytes = topic.encode(), key.encode("utf-8", "surrogatepass")
        left, found_at = bytes_max, dict[int, bytes]()
        key_hash = hash_key(topic_bytes, key_bytes)
        for position in islice(self._index.find(key_hash, begin_ms), QUERY_MAX):
            if len(found_at) >= count_max or left <= 0:
                break
            known = self._log.skim_at(position) if position < before else None
            # Equal hashes are not equal keys.
            if known is None or known[5] != topic_bytes or not _has_key(known[6], key):
                continue
            if not begin_ms <= known[4] <= end_ms:
                continue
            if (record := self.message_at(position)) is not None:
                found_at[position] = record
                left -= len(record)
        positions = sorted(found_at)
        records = [found_at[position] for position in positions]
        return QueryResult(records, positions, self._index.end_ms, self._index.end_position)


def _has_key(properties: bytes, key: str) -> bool:
    return key in map(readable_text, index_keys(properties))


def _ends_by(queue: ConsumeQueue, offset: int, position: int) -> bool:
    begin, size, _ = queue.entry(offset)
    return begin + (0 if size == FILLER_SIZE else size) <= position
