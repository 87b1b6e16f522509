"""Check: examines a whole directory without changing it: log, queues and index together."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from roquet.model.errors import StoreError
from roquet.rules.recovery import LogDamage, RecordRange, end_runs, find_log_end, is_torn_tail
from roquet.store.commit_log.log import CommitLog
from roquet.store.config import StoreConfig
from roquet.store.consume_queue.queue import ConsumeQueue
from roquet.store.consume_queue.queue_check import lost_in_blanks
from roquet.store.consume_queue.queues import ConsumeQueues
from roquet.store.consume_queue.rebuild import has_entry
from roquet.store.consume_queue.topic_tombstones import TopicTombstones
from roquet.store.filesystem.files import Files, RealFiles
from roquet.store.filesystem.mapped_file import MapPool
from roquet.store.key_index.dispatch import hash_key
from roquet.store.key_index.index import KeyIndex
from roquet.store.layout import FILLER_SIZE, StoreCheckpoint
from roquet.store.recovery.open_directory import (
    check_format,
    load_log,
    load_queues,
    read_checkpoint,
)
from roquet.wire.records.partial_decode import PartialRecord, index_keys, is_torn, property_value

PROBLEMS_MAX: Final = 100
"""Lines of one report; more would not help its reader."""


class StoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a directory, and its faults."""

    directory: str
    is_closed: bool
    begin: int
    end: int
    records: int
    queues: int
    damage: tuple[LogDamage, ...]
    """Unreadable ranges of the log, and the messages that were there."""
    problems: tuple[str, ...]
    """Contradictions that opening the store does not correct."""
    pending: tuple[str, ...]
    """Traces of a crash, which opening the store will correct."""

    @property
    def verdict(self) -> str:
        """One word: whole, recoverable or damaged."""
        if self.damage or self.problems:
            return "damaged"
        return "recoverable" if self.pending else "whole"


def check(
    directory: Path, config: StoreConfig | None = None, *, files: Files | None = None
) -> StoreReport:
    """Examine a directory that no process is writing to. Raises StoreError if it is no store."""
    files, config = files or RealFiles(), config or StoreConfig()
    listed = files.list(directory)
    if not listed.keys() & {"commitlog", "lock", "checkpoint"}:
        raise StoreError(f"{directory} is not a data directory: there is no commitlog in it")
    check_format(files, directory)
    return _Check(directory, config, files, is_closed="abort" not in listed).run()


class _QueueInLog:
    __slots__ = ("absent", "gaps", "next", "odd", "queue")

    def __init__(self, queue: ConsumeQueue | None, first: int) -> None:
        self.queue = queue
        self.next = first
        self.gaps: list[tuple[int, int]] = []
        """Half-open ranges of offsets without records."""
        self.absent = 0
        """Records without an entry."""
        self.odd = 0
        """Entries that lead elsewhere."""


class _Check:
    def __init__(
        self, directory: Path, config: StoreConfig, files: Files, *, is_closed: bool
    ) -> None:
        self._directory = directory
        self._config = config
        self._files = files
        self._is_closed = is_closed
        self._pool = MapPool(files, config.maps_max or files.maps_max(), writable=False)
        self._queues_in_log: dict[tuple[bytes, int], _QueueInLog] = {}
        self._problems: list[str] = []
        self._pending: list[str] = []
        self._holes: Sequence[RecordRange] = ()
        self._deleted: dict[bytes, int] = {}
        self._faulty: set[tuple[bytes, int]] = set()
        self._records = 0
        self._begin = 0

    def run(self) -> StoreReport:
        """Examine everything."""
        end = 0
        queue_names: Sequence[tuple[str, int]] = ()
        damage: tuple[LogDamage, ...] = ()
        checkpoint, commit_log, queues = self._load()
        if commit_log is not None:
            self._begin = max(commit_log.begin, commit_log.origin)
            with self._reporting():
                self._deleted = TopicTombstones(self._files, self._directory).positions
            queue_names = queues.names()
            self._skip_faulty_queues(queues)
            reach = queues.last_record_end() if self._is_closed else self._begin
            durable = checkpoint.note.position if checkpoint.note else reach
            end = commit_log.end = self._check_log(commit_log, queues, durable)
            if (limit := commit_log.segments.limit) < durable:
                self._problems.append(f"the log's files end at {limit}, the log ended at {durable}")
            damage = tuple(
                LogDamage(hole.start, hole.stop, queues.lost_in(hole.start, hole.stop))
                for hole in self._holes
            )
            self._check_queues(queues, end)
            with self._reporting():
                self._check_index(commit_log)
        if not self._is_closed:
            self._pending.append("the file abort exists: the store was not closed, or is in use")
        return StoreReport(
            directory=str(self._directory),
            is_closed=self._is_closed,
            begin=self._begin,
            end=end,
            records=self._records,
            queues=len(queue_names),
            damage=damage,
            problems=tuple(self._problems[:PROBLEMS_MAX]),
            pending=tuple(self._pending[:PROBLEMS_MAX]),
        )

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Report an unreadable part, and continue with the rest."""
        try:
            yield
        except StoreError as error:
            self._problems.append(str(error))

    def _load(self) -> tuple[StoreCheckpoint, CommitLog | None, ConsumeQueues]:
        """Checkpoint, log and queues; None for an unreadable log."""
        checkpoint, commit_log = StoreCheckpoint(), None
        queues = ConsumeQueues(self._pool, self._directory, 1, 1)
        with self._reporting():
            checkpoint = read_checkpoint(self._files, self._directory)
        with self._reporting():
            commit_log = load_log(self._pool, self._directory, self._config, checkpoint)
            begin = checkpoint.log_begin if checkpoint.note else None
            if begin is not None and begin < commit_log.begin:
                self._problems.append(
                    f"the log lacks its files from position {begin} to {commit_log.begin}, which"
                    " retention did not delete"
                )
        with self._reporting():
            queues = load_queues(self._pool, self._directory, self._config, checkpoint)
        return checkpoint, commit_log, queues

    def _skip_faulty_queues(self, queues: ConsumeQueues) -> None:
        for topic, queue_id in queues.names():
            name, fault = (topic, queue_id), queues.faults.get((topic, queue_id))
            if fault is None:
                try:
                    queues.get(*name)
                except StoreError as error:
                    fault = str(error)
            if fault is not None:
                self._faulty.add((topic.encode(), queue_id))
                queues.leave_out(name)
                self._report(f"{_name(topic.encode(), queue_id)} is rebuilt when opened: {fault}")

    # -- the log -----------------------------------------------------------------------------

    def _check_log(self, commit_log: CommitLog, queues: ConsumeQueues, durable: int) -> int:
        """Compare every record with its queue; gives where the log ends."""
        begin, limit = self._begin, commit_log.segments.limit
        runs, run_start, end = list[RecordRange](), begin, begin
        last: PartialRecord | None = None
        for expected, position, record in commit_log.walk(begin, limit, limit, check_crc=True):
            lost = lost_in_blanks(commit_log, queues, end, min(expected, durable))
            run_start = end_runs(runs, run_start, lost)
            if expected != position:
                is_over = is_torn_tail(expected, durable)
                runs.append(
                    RecordRange(
                        run_start,
                        max(run_start, end, min(expected, durable)) if is_over else expected,
                    )
                )
                run_start = position
                if is_over:
                    end = position + record[0]
                    break
            self._check_record(queues, position, record)
            end, last = position + record[0], record
        else:
            if last is not None and end > durable and is_torn(last[5], last[6]):
                end -= last[0]
            stop = commit_log.behind_blank(end, durable)
            run_start = end_runs(runs, run_start, lost_in_blanks(commit_log, queues, end, stop))
            end = stop
        runs.append(RecordRange(run_start, end))
        verdict = find_log_end(runs, begin, durable)
        self._holes = verdict.damage
        if verdict.cut:
            self._pending.append(
                f"records behind a torn one, at {verdict.cut[0].start}, will be dropped"
            )
        elif self._is_torn_at(commit_log, verdict.end):
            self._pending.append(f"an unfinished write is left at {verdict.end}")
        return verdict.end

    def _is_torn_at(self, commit_log: CommitLog, end: int) -> bool:
        file = commit_log.segments.file_at(end)
        if file is None or commit_log.is_blank_at(end, 0):
            return False
        data_end = self._files.data_end(file.path, file.size)
        return bool(bytes(file.view()[end - file.start : data_end]).strip(b"\x00"))

    def _check_record(self, queues: ConsumeQueues, position: int, record: PartialRecord) -> None:
        size, queue_id, offset, sys_flag, _, topic, _ = record
        self._records += 1
        if not has_entry(sys_flag) or position < self._deleted.get(topic, 0):
            return
        if (topic, queue_id) in self._faulty:
            return
        seen = self._queues_in_log.get((topic, queue_id))
        if seen is None:
            queue = queues.get(topic.decode(errors="replace"), queue_id)
            first = offset if queue is None else min(offset, queue.offset_of(self._begin))
            seen = self._queues_in_log[topic, queue_id] = _QueueInLog(queue, first)
        if offset > seen.next:
            seen.gaps.append((seen.next, offset))
        seen.next = max(seen.next, offset + 1)
        queue = seen.queue
        if queue is None or offset >= queue.end:
            seen.absent += 1
        elif offset >= queue.begin and queue.entry(offset)[:2] != (position, size):
            seen.odd += 1

    # -- queues ------------------------------------------------------------------------------

    def _check_queues(self, queues: ConsumeQueues, end: int) -> None:
        for (topic, queue_id), seen in self._queues_in_log.items():
            name = _name(topic, queue_id)
            if seen.odd:
                self._report(f"{name} has {seen.odd} entries that lead elsewhere")
            if seen.absent:
                self._report(f"{name} lacks {seen.absent} entries")
        for topic_text, queue_id in queues.names():
            queue = queues.get(topic_text, queue_id)
            if queue is not None:
                known = self._queues_in_log.get((topic_text.encode(), queue_id))
                self._check_offsets(queue, known, end)

    def _check_offsets(self, queue: ConsumeQueue, seen: _QueueInLog | None, end: int) -> None:
        """Report offsets that a queue has and the log does not."""
        name, behind = _name(queue.name, queue.queue_id), queue.offset_of(end)
        if behind < queue.end:
            self._report(f"{name} has {queue.end - behind} entries that lead behind the log's end")
        if seen is None:
            gaps = [(queue.offset_of(self._begin), behind)]
        else:
            gaps = [*seen.gaps, (seen.next, behind)]
        for first, stop in gaps:
            odd = [o for o in range(max(first, queue.begin), stop) if not self._is_lost(queue, o)]
            if odd:
                self._problems.append(
                    f"{name} has no records for {len(odd)} offsets, from {odd[0]}"
                )

    def _is_lost(self, queue: ConsumeQueue, offset: int) -> bool:
        """Whether it is known why an offset has no record."""
        position, size, _ = queue.entry(offset)
        return size == FILLER_SIZE or self._is_in_hole(position)

    def _report(self, text: str) -> None:
        """Report a contradiction: if the store was not closed, opening corrects it."""
        (self._problems if self._is_closed else self._pending).append(text)

    # -- index -------------------------------------------------------------------------------

    def _check_index(self, commit_log: CommitLog) -> None:
        index = KeyIndex(self._pool, self._directory / "index", self._config)
        if fault := index.load(self._files.list(self._directory / "index")):
            self._report(f"{fault}: the index is rebuilt from there when opened")
        odd = 0
        for key_hash, position in _index_entries(index):
            if position >= commit_log.begin and not self._is_in_hole(position):
                record = commit_log.skim_at(position, check_crc=False)
                odd += record is None or all(
                    hash_key(record[5], key) != key_hash for key in _keys(record[6])
                )
        if odd:
            self._report(f"the index has {odd} entries that lead to records without their key")

    def _is_in_hole(self, position: int) -> bool:
        return any(hole.start <= position < hole.stop for hole in self._holes)


def _index_entries(index: KeyIndex) -> Iterator[tuple[int, int]]:
    for file in index.files:
        for number in range(1, file.next):
            key_hash, position, _, _ = file.entry(number)
            yield key_hash, position


def _keys(properties: bytes) -> list[bytes]:
    """All keys that may lead to a record: Apache RocketMQ 5.5 indexes tags as well."""
    tag = property_value(properties, b"TAGS")
    return [*index_keys(properties), b"T#" + tag] if tag else index_keys(properties)


def _name(topic: bytes, queue_id: int) -> str:
    return f"{topic.decode(errors='replace')} queue {queue_id}"
