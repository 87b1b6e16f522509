"""Queue check: finds consume queues whose files contradict their ends at the last checkpoint.

Only the newest entry of each queue is examined, in 10 us, so that a broker with tens of thousands
of queues still starts at once. The entries in front of it are compared with the log later, by the
scrub and by reads.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from roquet.log_records import logger
from roquet.rules.recovery import RecordRange
from roquet.store.commit_log.log import CommitLog
from roquet.store.consume_queue.queue import ConsumeQueue
from roquet.store.consume_queue.queue_ends import FILE_NAME, QueueEnd, QueueName, unpack_ends
from roquet.store.consume_queue.queues import ConsumeQueues
from roquet.store.filesystem.files import read_if_exists
from roquet.store.layout import ENTRY_SIZE, FILLER_SIZE, CheckpointNote
from roquet.wire.records.record import ENTRY

log = logger(__name__)

LMQ_PREFIX: Final = "%LMQ%"
"""Light message queues of Apache's broker, whose entries lead to records of other topics."""


def load_queue_ends(
    queues: ConsumeQueues,
    directory: Path,
    note: CheckpointNote | None,
    deleted: Mapping[bytes, int],
) -> None:
    """Give queues the ends that belong to the checkpoint with that note, if they are known.

    Queues of topics deleted since are left out. Raises StoreError for an unreadable file.
    """
    path = directory / FILE_NAME
    if (data := read_if_exists(queues.files, path)) is None:
        return
    recorded = unpack_ends(data)
    if note is None:
        log.warning(
            "%s is damaged, or Apache's broker has written it: the queue files themselves show"
            " where they end", directory / "checkpoint",
        )  # fmt: skip
        return
    if recorded is None or recorded.position < note.position:
        state = "damaged" if recorded is None else "older than the checkpoint"
        log.warning("%s is %s: it is ignored and rebuilt", path, state)
        return
    queues.ends.load(
        {n: end for n, end in recorded.ends.items() if end.last >= deleted.get(n[0].encode(), -1)}
    )


def find_faults(
    queues: ConsumeQueues, commit_log: CommitLog, known: Mapping[QueueName, QueueEnd]
) -> dict[QueueName, str]:
    """Each queue that differs from its known end, and how.

    Loaded queues may have got entries since; others must end where they did.
    """
    faults = _unknown_queues(queues, commit_log, known)
    for name, end in known.items():
        queue = queues.loaded.get(name)
        fault = _fault(queues, name, end) if queue is None else _fault_of_loaded(queue, end)
        if fault is None and queues.begins.get(name, 0) > end.begin:
            fault = _fault_of_begin(queues, name, commit_log.begin)
        if fault is not None:
            faults[name] = fault
    return faults


def _fault(queues: ConsumeQueues, name: QueueName, known: QueueEnd) -> str | None:
    place = (known.end - 1) * ENTRY_SIZE
    start = place // queues.file_size * queues.file_size
    path = queues.path(name, start)
    try:
        data = queues.files.peek(path, place - start, 2 * ENTRY_SIZE)
    except FileNotFoundError:
        return f"{path} is missing"
    if len(data) < ENTRY_SIZE:
        return f"{path} is truncated"
    position, size, _ = ENTRY.unpack_from(data)
    if position != known.last or size <= 0:
        return f"its entry of offset {known.end - 1} is damaged"
    if len(data) < 2 * ENTRY_SIZE:
        try:
            following = queues.path(name, start + queues.file_size)
            data += queues.files.peek(following, 0, ENTRY_SIZE)
        except FileNotFoundError:
            return None
    if any(data[ENTRY_SIZE:]):
        return f"it has entries behind its end, from offset {known.end} on"
    return None


def _unknown_queues(
    queues: ConsumeQueues, commit_log: CommitLog, known: Mapping[QueueName, QueueEnd]
) -> dict[QueueName, str]:
    """Queues that neither the recorded ends nor the log know: perhaps copied from elsewhere."""
    faults: dict[QueueName, str] = {}
    for name in queues.names():
        if name not in known and name not in queues.loaded:
            queue = queues.get(*name)
            assert queue is not None
            if is_last_entry_wrong(commit_log, queue):
                faults[name] = "its entries lead to no messages of its own"
            queues.unload(queue)
    return faults


def _fault_of_loaded(queue: ConsumeQueue, known: QueueEnd) -> str | None:
    if queue.end < known.end:
        return f"it ends at offset {queue.end} and had messages up to {known.end - 1}"
    if known.last < 0 or known.end <= queue.begin or queue.entry(known.end - 1)[0] != known.last:
        return f"its entry of offset {known.end - 1} is damaged"
    return None


def _fault_of_begin(queues: ConsumeQueues, name: QueueName, log_begin: int) -> str | None:
    """Why first files are missing; None if retention deleted them.

    After retention, the first remaining entry leads to a record in front of the log's begin, or at
    it.
    """
    first = queues.begins[name] * ENTRY_SIZE
    data = queues.files.peek(queues.path(name, first), 0, ENTRY_SIZE)
    if len(data) == ENTRY_SIZE and ENTRY.unpack(data)[0] <= log_begin:
        return None
    return f"its files in front of offset {queues.begins[name]} are missing"


def lost_in_blanks(
    commit_log: CommitLog, queues: ConsumeQueues, start: int, stop: int
) -> list[RecordRange]:
    """Blanks between two records that took the place of messages: zeros, without a blank's head.

    A file that has no message is damaged anyway: the next one is begun when it has no room left.
    """
    size, lost = commit_log.segments.file_size, list[RecordRange]()
    while start < stop:
        following = start - start % size + size
        if commit_log.is_headless_blank(start) and (
            start % size == 0 or queues.lost_in(start, following)
        ):
            lost.append(RecordRange(start, following))
        start = following
    return lost


def is_last_entry_wrong(commit_log: CommitLog, queue: ConsumeQueue) -> bool:
    """Whether the last entry of a queue certainly leads to no message of its own."""
    if queue.end == queue.begin or queue.topic.startswith(LMQ_PREFIX):
        return False
    position, size, _ = queue.entry(queue.end - 1)
    if size == FILLER_SIZE or position < commit_log.begin:
        return position < 0
    if position + size > commit_log.end:
        return True
    record = commit_log.skim_at(position, check_crc=False)
    if record is None:
        return _is_inside_record(commit_log, position)
    own = (queue.queue_id, queue.end - 1, queue.name)
    return (record[1], record[2], record[5]) != own


def _is_inside_record(commit_log: CommitLog, position: int) -> bool:
    """Whether a position is in the middle of a record, and not in a damaged part of the log.

    Then the record that began there was cut off, and others were written. Walks the file up to the
    position, which may take seconds.
    """
    file_size = commit_log.segments.file_size
    start = max(position // file_size * file_size, commit_log.begin, commit_log.origin)
    end = start
    for _, at, record in commit_log.walk(start, position, commit_log.end, check_crc=False):
        end = at + record[0]
    return end > position
