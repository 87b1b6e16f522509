"""Queue repair: entries of consume queues are compared with the log's records and corrected.

The scrub compares every entry. Readers do not wait for it: when a read first comes to entries that
this process has not written, a block of them is checked as a whole, and compared with the log if it
cannot be right.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from operator import add, le
from typing import Final

from roquet.log_records import logger
from roquet.model.errors import StoreError
from roquet.rules.recovery import RecordRange
from roquet.store.commit_log.log import CommitLog
from roquet.store.consume_queue.queue import ConsumeQueue
from roquet.store.consume_queue.queue_check import LMQ_PREFIX, lost_in_blanks
from roquet.store.consume_queue.queue_ends import QueueName
from roquet.store.consume_queue.queues import ConsumeQueues
from roquet.store.consume_queue.rebuild import SCHEDULE_TOPIC, EntryTagCodes, has_entry
from roquet.store.consume_queue.topic_tombstones import TopicTombstones
from roquet.store.layout import FILLER_SIZE
from roquet.wire.records.partial_decode import PartialRecord
from roquet.wire.records.record import RECORD_SIZE_MIN

log = logger(__name__)

CHECK_ENTRIES: Final = 1024
"""Entries checked together, in a fifth of a millisecond."""

LOADS_MAX: Final = 100
"""Queues loaded in one step of a scrub: each takes a tenth of a millisecond."""

WALK_BYTES: Final = 8 * 1024 * 1024
"""Bytes of the log that one read may scan to correct entries; then it has to be tried again."""


class QueueRepair:
    """Compares consume queues with the log."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        deleted: TopicTombstones,
        delay_levels_ms: Sequence[int],
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._deleted = deleted
        self._code_of = EntryTagCodes(delay_levels_ms)
        self._known: dict[tuple[bytes, int], ConsumeQueue | None] = {}
        self._loaded: list[ConsumeQueue] = []
        self._loads = 0
        self._corrected: dict[QueueName, tuple[int, int]] = {}
        """Queues with corrected entries: how many, and the first one."""
        self._in_progress: dict[tuple[ConsumeQueue, int], Iterator[None]] = {}

    # -- one record after the other ----------------------------------------------------------

    def compare(self, position: int, record: PartialRecord) -> bool:
        """Correct a record's entry if it is wrong; False once a step has loaded enough queues."""
        _, queue_id, _, sys_flag, _, topic, _ = record
        if not has_entry(sys_flag) or position < self._deleted.positions.get(topic, 0):
            return True
        try:
            queue = self._known[topic, queue_id]
        except KeyError:
            queue = self._known[topic, queue_id] = self._look_up(topic, queue_id)
        if queue is not None:
            self._correct(queue, position, record)
        return self._loads < LOADS_MAX

    def _look_up(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        name = topic.decode(errors="replace"), queue_id
        is_new = name not in self._queues.loaded
        queue = self._queues.get(*name)
        if is_new and queue is not None:
            self._loads += 1
            self._loaded.append(queue)
        return queue

    def _correct(self, queue: ConsumeQueue, position: int, record: PartialRecord) -> None:
        size, _, offset, _, stored_ms, topic, properties = record
        if not queue.begin <= offset < queue.checked_from:
            return
        entry = queue.entry(offset)
        code = self._code_of(topic, properties, stored_ms)
        # The stored delivery time of a delayed message is better than a computed one.
        is_code = entry[2] == code or (entry[2] > 0 and queue.name == SCHEDULE_TOPIC)
        if entry[:2] == (position, size) and is_code:
            return
        if entry[0] != position and self.leads_to_record(queue, offset):
            return  # two records claim this offset: it belongs to the first one
        self._overwrite(queue, offset, (position, size, code))

    def _overwrite(self, queue: ConsumeQueue, offset: int, entry: tuple[int, int, int]) -> None:
        try:
            queue.overwrite(offset, *entry)
        except StoreError as error:  # it stays as it is, and the next check finds it again
            log.warning("consume queue %s/%d is damaged: %s", queue.topic, queue.queue_id, error)
            return
        name = queue.topic, queue.queue_id
        count, first = self._corrected.get(name, (0, offset))
        self._corrected[name] = count + 1, min(first, offset)

    def end_step(self, *, is_over: bool = False) -> None:
        """Log the corrections; when the scrub is over, unload queues that nobody else uses."""
        for (topic, queue_id), (count, first) in self._corrected.items():
            log.warning(
                "consume queue %s/%d: %d entries from offset %d on did not lead to their messages;"
                " they are corrected from the log", topic, queue_id, count, first,
            )  # fmt: skip
        self._corrected.clear()
        self._loads = 0
        if is_over:
            self._known.clear()
            for queue in self._loaded:
                is_there = self._queues.loaded.get((queue.topic, queue.queue_id)) is queue
                if is_there and queue.checked_from == queue.end:
                    self._queues.unload(queue)
            self._loaded.clear()

    def leads_to_record(self, queue: ConsumeQueue, offset: int) -> bool:
        """Whether an entry leads to a whole record of its own."""
        position, size, _ = queue.entry(offset)
        if not self._log.begin <= position < self._log.end:
            return False
        record = self._log.skim_at(position, check_crc=False)
        own = (size, queue.queue_id, offset, queue.name)
        return record is not None and (*record[:3], record[5]) == own

    def lost_in_blanks(self, start: int, stop: int) -> Sequence[RecordRange]:
        """The zeros between two positions that took the place of messages, not of a blank."""
        return lost_in_blanks(self._log, self._queues, start, stop)

    # -- what a reader comes to --------------------------------------------------------------

    def ensure(self, queue: ConsumeQueue, offset: int, stop: int) -> None:
        """Check the entries of the offsets [offset, stop) before they are read.

        Raises StoreError while a repair takes longer: the entries must not be read yet.
        """
        stop = min(stop, queue.checked_from)
        for number in range(offset // CHECK_ENTRIES, (stop - 1) // CHECK_ENTRIES + 1):
            if number not in queue.checked_blocks:
                self._look_at(queue, number)

    def _look_at(self, queue: ConsumeQueue, number: int) -> None:
        first = max(number * CHECK_ENTRIES, queue.min_offset(self._log.begin))
        stop = min((number + 1) * CHECK_ENTRIES, queue.checked_from)
        if first < stop and not self._is_sound(queue, first, stop):
            key = queue, number
            work = self._in_progress.setdefault(key, self._correct_range(queue, first, stop))
            if next(work, self) is not self:
                raise StoreError(
                    f"consume queue {queue.topic}/{queue.queue_id} is damaged near offset {first}:"
                    " it is being corrected from the log, try again"
                )
            del self._in_progress[key]
            self.end_step()
        queue.checked_blocks.add(number)

    def repair_entry(self, queue: ConsumeQueue, offset: int) -> bool:
        """Correct one entry that leads nowhere; True if it leads to its record now."""
        for _ in self._correct_range(queue, offset, offset + 1):
            pass
        self.end_step()
        return self.leads_to_record(queue, offset)

    def _is_sound(self, queue: ConsumeQueue, first: int, stop: int) -> bool:
        """Whether entries are in order and the first, middle and last lead to their records."""
        if queue.topic.startswith(LMQ_PREFIX):
            return True
        behind, at, real = 0, first, list[int]()
        while at < stop:
            positions, sizes, _ = queue.columns(at, stop - at)
            picks = [n for n, size in enumerate(sizes) if size != FILLER_SIZE]
            real += [at + n for n in picks]
            at += len(sizes)
            if len(picks) < len(sizes):
                positions, sizes = [positions[n] for n in picks], [sizes[n] for n in picks]
            if not picks:  # only offsets whose records are lost
                continue
            stops = list(map(add, positions, sizes))
            if min(sizes) < RECORD_SIZE_MIN or positions[0] < behind:
                return False
            if not all(map(le, stops, islice(positions, 1, None))):
                return False
            behind = stops[-1]
            if behind > self._log.end:
                return False
        samples = {real[0], real[len(real) // 2], real[-1]} if real else set[int]()
        return all(self.leads_to_record(queue, offset) for offset in samples)

    def _correct_range(self, queue: ConsumeQueue, first: int, stop: int) -> Iterator[None]:
        """Correct entries from the log between the nearest correct ones."""
        low, high = (
            self._nearest_correct(queue, first, -1),
            self._nearest_correct(queue, stop - 1, 1),
        )
        start, position, seen = low, low, dict[int, int]()
        for _, position, record in self._log.walk(low, high, high, check_crc=True):
            _, queue_id, offset, sys_flag, _, topic, _ = record
            if topic == queue.name and queue_id == queue.queue_id and has_entry(sys_flag):
                self._correct(queue, position, record)
                seen.setdefault(offset, position)
            if position - start >= WALK_BYTES:
                start = position
                yield
        after = high
        for offset in range(stop - 1, first - 1, -1):
            entry = queue.entry(offset)
            if offset in seen:
                after = seen[offset]
            elif not (low <= entry[0] < after and entry[1] > 0):
                # The record is lost: the offset stays, and leads nowhere.
                self._overwrite(queue, offset, (after, FILLER_SIZE, 0))

    def _nearest_correct(self, queue: ConsumeQueue, offset: int, step: int) -> int:
        """The record position of the nearest correct entry on one side of an offset."""
        at, least = offset + step, max(queue.begin, queue.min_offset(self._log.begin))
        while least <= at < queue.end:
            if self.leads_to_record(queue, at):
                return queue.entry(at)[0]
            step *= 2
            at += step
        return self._log.begin if step < 0 else self._log.end
