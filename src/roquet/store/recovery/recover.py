"""Recovery: bring log, queues and index to a consistent state after a stop or a crash.

    1. where to begin    our note in the checkpoint, or its times as Apache's broker uses them
    2. walk the log      each whole record gets its queue entry again, unless it has it
    3. judge             rules.recovery says where the log ends and which bytes are damage
    4. truncate          log and queues end there; zeros follow, so that nothing old comes back
    5. check queues      those whose files contradict their known ends are rebuilt from the log
    6. the index         back to the state of the note; the dispatcher adds the rest

A second recovery changes nothing: it writes only what is missing.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from roquet.log_records import logger
from roquet.model.errors import StoreError
from roquet.rules.recovery import (
    RecordRange,
    UncleanStop,
    end_runs,
    find_log_end,
    first_file_to_scan,
    is_torn_tail,
)
from roquet.store.commit_log.log import CommitLog
from roquet.store.consume_queue.queue_check import find_faults, is_last_entry_wrong, lost_in_blanks
from roquet.store.consume_queue.queue_ends import QueueEnd, QueueName
from roquet.store.consume_queue.queues import ConsumeQueues
from roquet.store.consume_queue.rebuild import QueueRebuilder
from roquet.store.key_index.index import KeyIndex
from roquet.store.key_index.index_check import drop_misleading_files, lacks_keys
from roquet.store.layout import CheckpointNote, StoreCheckpoint
from roquet.wire.records.partial_decode import PartialRecord, is_torn

log = logger(__name__)

LOGGED_QUEUES_MAX: Final = 20
"""Damaged queues that are logged by name; more lines would not help the reader."""


class ScanStart(msgspec.Struct, frozen=True):
    """Where a scan begins, and what it may rely on."""

    position: int
    durable: int
    safe_ms: int = 0
    """Records stored until this time were durable as well; 0 when only `durable` is known."""


class RecoveryResult(msgspec.Struct, frozen=True):
    """The state of the log after recovery."""

    end: int
    durable: int
    damage: Sequence[RecordRange]
    index_from: int
    """The position from which the index has to continue."""


def recover(
    commit_log: CommitLog,
    queues: ConsumeQueues,
    index: KeyIndex,
    checkpoint: StoreCheckpoint,
    *,
    is_clean: bool,
    delay_levels_ms: Sequence[int],
    deleted: Mapping[bytes, int] = MappingProxyType({}),
) -> RecoveryResult:
    """Make log, queues and index agree. Raises StoreError for a log whose end is missing."""
    known = dict(queues.ends.by_name) if queues.ends.has_checkpoint else None
    remove_deleted_queues(queues, deleted)
    for name in queues.faults:
        queues.clear(name)
    start = choose_start(commit_log, queues, checkpoint, is_clean=is_clean)
    rebuilder = QueueRebuilder(queues, delay_levels_ms, deleted=deleted)
    scan = _Scan(commit_log, queues, rebuilder, start)
    scan.run()
    end = scan.finish(checkpoint.note.last_record if checkpoint.note else -1)
    if not is_clean:
        scan.rebuilder.truncate_others(start.position, scan.damage)
    if scan.rebuilder.cut:
        log.warning(
            "%d messages that consume queues led to are not in the log: they were not durable when"
            " this store was last used, or files of the log were lost since", scan.rebuilder.cut,
        )  # fmt: skip
    damaged = dict.fromkeys(scan.rebuilder.lacking, "it lacks entries")
    damaged |= (
        _wrong_last_entries(commit_log, queues)
        if known is None
        else find_faults(queues, commit_log, known)
    )
    if damaged := damaged | queues.faults:
        only = QueueRebuilder(
            queues, delay_levels_ms, is_whole_log=True, deleted=deleted, only=damaged
        )
        _rebuild_queues(commit_log, queues, damaged, known or {}, only)
    return RecoveryResult(
        end=end,
        durable=min(max(start.durable, commit_log.begin), end),
        damage=scan.damage,
        index_from=rewind_index(index, commit_log, checkpoint, is_clean=is_clean),
    )


def _wrong_last_entries(commit_log: CommitLog, queues: ConsumeQueues) -> dict[QueueName, str]:
    """Damaged queues and their faults, found without knowing where queues ended."""
    faults: dict[QueueName, str] = {}
    for queue in queues.visit_all():
        if is_last_entry_wrong(commit_log, queue):
            faults[queue.topic, queue.queue_id] = f"its entry of offset {queue.end - 1} is damaged"
        queues.ends.note(queue)
    return faults


def _rebuild_queues(
    commit_log: CommitLog,
    queues: ConsumeQueues,
    damaged: Mapping[QueueName, str],
    known: Mapping[QueueName, QueueEnd],
    rebuilder: QueueRebuilder,
) -> None:
    for count, (name, fault) in enumerate(damaged.items()):
        if count < LOGGED_QUEUES_MAX:
            log.warning("consume queue %s/%d is rebuilt from the log: %s", *name, fault)
        queues.clear(name)
    if len(damaged) > LOGGED_QUEUES_MAX:
        log.warning("%d more consume queues are rebuilt", len(damaged) - LOGGED_QUEUES_MAX)
    for _, position, record in commit_log.walk(
        commit_log.begin, commit_log.end, commit_log.end, check_crc=True
    ):
        rebuilder.put(position, record)
    rebuilder.finish(())
    rebuilder.restore_ends({name: known[name] for name in damaged if name in known})


def remove_deleted_queues(queues: ConsumeQueues, deleted: Mapping[bytes, int]) -> None:
    """Delete the queues of deleted topics again if a loss of power brought them back."""
    for topic, position in deleted.items():
        name = topic.decode()
        known_queues = [queues.get(name, queue_id) for queue_id in queues.ids(name)]
        used_queues = [
            queue for queue in known_queues if queue is not None and queue.end > queue.begin
        ]
        if used_queues and all(queue.entry(queue.end - 1)[0] < position for queue in used_queues):
            log.warning("the queues of deleted topic %s came back: they are deleted again", name)
            queues.remove(name)


def choose_start(
    commit_log: CommitLog, queues: ConsumeQueues, checkpoint: StoreCheckpoint, *, is_clean: bool
) -> ScanStart:
    """Where the scan begins: as late as is safe."""
    note, segments = checkpoint.note, commit_log.segments
    if note is None:
        return _start_by_times(commit_log, queues, checkpoint, is_clean=is_clean)
    if note.last_record < 0:  # the log was empty then, and may have begun anywhere since
        begin = max(segments.begin, commit_log.origin)
        return ScanStart(begin, begin)
    if not segments.begin <= note.position <= segments.limit:
        raise _incomplete_error(commit_log, note.position)
    position = note.position
    if not _matches_log(commit_log, note.last_record, position):
        # Somebody changed the last file; the scan still finds the durable records there.
        position = max(segments.begin, (position - 1) // segments.file_size * segments.file_size)
    if not queues.ends.has_checkpoint and position > segments.begin:
        log.warning("the ends of consume queues are unknown: the whole log is read to find them")
        position = segments.begin
    if not queues.topics():
        if queues.ends.by_name:
            log.warning("%s is empty: all consume queues are rebuilt", queues.directory)
        position = segments.begin
    return ScanStart(position, note.position)


def _matches_log(commit_log: CommitLog, last_record: int, position: int) -> bool:
    if last_record < commit_log.begin:
        return True
    record = commit_log.skim_at(last_record)
    is_at_file = position % commit_log.segments.file_size == 0
    return record is not None and (is_at_file or last_record + record[0] == position)


def _start_by_times(
    commit_log: CommitLog, queues: ConsumeQueues, checkpoint: StoreCheckpoint, *, is_clean: bool
) -> ScanStart:
    """Where Apache's broker would begin, for a directory that it wrote last."""
    files = commit_log.segments.files
    if not files:
        if is_clean and (durable := queues.last_record_end()):
            raise _incomplete_error(commit_log, durable)
        return ScanStart(0, 0)
    records = [commit_log.skim_at(file.start) for file in files]
    firsts = tuple(record[4] if record else None for record in records)
    index = 0
    if queues.topics() and is_clean:
        index = max((i for i, ms in enumerate(firsts) if ms is not None), default=0)
    elif queues.topics():
        index = first_file_to_scan(
            UncleanStop(firsts, min(checkpoint.log_ms, checkpoint.queues_ms))
        )
    start = max(files[index].start, commit_log.origin)
    durable = queues.last_record_end() if is_clean else start
    if durable > commit_log.segments.limit:
        raise _incomplete_error(commit_log, durable)
    return ScanStart(start, durable, checkpoint.log_ms)


def _incomplete_error(commit_log: CommitLog, position: int) -> StoreError:
    directory, begin = commit_log.segments.directory, commit_log.begin
    return StoreError(
        f"{directory} holds positions {begin} to {commit_log.segments.limit}, but messages were"
        f" kept up to {position}: restore the files that are missing; to go on without them,"
        f" remove {directory.parent / 'checkpoint'} and put an empty file abort beside it"
    )


class _Scan:
    """One walk over the log's end: finds whole records and the log's end, and feeds the queues."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        rebuilder: QueueRebuilder,
        start: ScanStart,
    ) -> None:
        self._log, self._queues = commit_log, queues
        self.rebuilder = rebuilder
        self._start = start
        self._durable = start.durable
        self._runs: list[RecordRange] = []
        self._blanks: list[int] = []
        """Positions from which on a file holds nothing, and the log goes on in the next one."""
        self.damage: tuple[RecordRange, ...] = ()

    def run(self) -> None:
        """Walk the log from the start to its last file."""
        begin, limit = self._start.position, self._log.segments.limit
        run_start = run_stop = begin
        put, last = self.rebuilder.put, None
        # Zeros up to the end of a file in the middle are known to be harmless only if they are old.
        blank_until = limit if self._start.safe_ms else self._durable
        for expected, position, record in self._log.walk(begin, limit, blank_until, check_crc=True):
            if run_stop < expected:
                run_start = self._pass_blank(run_start, run_stop, expected)
            if expected != position:
                if self._is_over(expected, position, record):
                    # A blank with nothing behind it is overwritten.
                    self._runs.append(
                        RecordRange(
                            run_start, max(run_start, run_stop, min(expected, self._durable))
                        )
                    )
                    run_start, run_stop = position, position + record[0]
                    break
                self._runs.append(RecordRange(run_start, expected))
                run_start = position
            # The last one may be torn although it looks whole: it is put when another follows.
            if last is not None:
                put(*last)
            last = (position, record)
            run_stop = position + record[0]
        else:
            stop = self._log.behind_blank(run_stop, self._durable)
            if run_stop < stop:
                run_start = self._pass_blank(run_start, run_stop, stop)
            run_stop = stop
        self._runs.append(RecordRange(run_start, run_stop))
        self._finish(last)

    def _pass_blank(self, run_start: int, start: int, stop: int) -> int:
        """Note a blank; gives where the run of whole records begins that goes on behind it."""
        durable = min(stop, self._durable)
        lost = lost_in_blanks(self._log, self._queues, start, durable)
        if not lost or lost[0].start != start:
            self._blanks.append(start)
        return end_runs(self._runs, run_start, lost)

    def _is_over(self, gap_start: int, position: int, record: PartialRecord) -> bool:
        """Whether a hole is the log's end: it is not if a record behind it was durable."""
        if record[4] <= self._start.safe_ms:
            self._durable = max(self._durable, position)
        return is_torn_tail(gap_start, self._durable)

    def _finish(self, last: tuple[int, PartialRecord] | None) -> None:
        if last is None:
            return
        position, record = last
        if position + record[0] > self._durable and is_torn(record[5], record[6]):
            self._runs = [
                RecordRange(run.start, min(run.stop, position))
                for run in self._runs
                if run.start <= position
            ]
            return
        self.rebuilder.put(position, record)

    def finish(self, last_record: int) -> int:
        """End log and queues where the rule says; gives that position."""
        verdict = find_log_end(self._runs, self._start.position, self._durable)
        self.damage = verdict.damage
        if verdict.cut:
            log.warning(
                "the log ends at %d in a torn record; records behind it, at %d, were never"
                " called durable and are dropped", verdict.end, verdict.cut[0].start,
            )  # fmt: skip
        self.rebuilder.finish(verdict.damage)
        if (missing := self._log.leads_on(verdict.end)) is not None:
            log.error(
                "%s leads on to %s, which is missing: its messages are lost unless it is put back"
                " before this store is used", self._log.segments.files[-1].path, missing.name,
            )  # fmt: skip
        if self._log.truncate(verdict.end):
            self._log.sync_tail()
        restored = [
            position
            for position in self._blanks
            if position < verdict.end and self._log.restore_blank(position)
        ]
        self._log.rewrite(min(self._start.durable, *restored, verdict.end))
        self._log.last = self.rebuilder.last if self.rebuilder.last >= 0 else last_record
        self._log.checked_from = self._start.position
        return verdict.end


def rewind_index(
    index: KeyIndex, commit_log: CommitLog, checkpoint: StoreCheckpoint, *, is_clean: bool
) -> int:
    """Remove index entries of a lost end of the log; gives where the index has to continue."""
    note = checkpoint.note
    is_as_noted = note is not None and _rewind(index, note, is_clean=is_clean)
    count = len(index.files)
    drop_misleading_files(index, commit_log)
    if note is not None and is_as_noted and len(index.files) == count:
        position = min(note.index_position, commit_log.end)
        if not lacks_keys(index, commit_log, position):
            return position
    if note is None and not is_clean:
        # As Apache's broker does: files that were not durable are rebuilt.
        for file in [file for file in index.files if file.end_ms > checkpoint.index_ms]:
            index.drop(file)
    return max(index.end_position, commit_log.begin)


def _rewind(index: KeyIndex, note: CheckpointNote, *, is_clean: bool) -> bool:
    """Bring the index back to the state of the note; False when it holds less than that."""
    for file in [file for file in index.files if file.name > note.index_name]:
        index.drop(file)
    if not index.files:
        return note.index_name == 0
    newest = index.files[-1]
    if newest.name != note.index_name:
        return False
    if newest.next < note.index_count:
        index.drop(newest)
        return False
    is_sound = newest.next == note.index_count or newest.rewind(note.index_count)
    # A loss of power may keep slots and lose the head that counts their entries.
    if not is_sound or not (is_clean or newest.newest() < note.index_count):
        newest.rebuild_slots()
    return True
