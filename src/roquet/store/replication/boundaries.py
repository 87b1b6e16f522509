"""Boundaries of a log: the positions at which it may be cut, since no record is divided there."""

from roquet.store.commit_log.log import BLANK_SIZE, CommitLog
from roquet.wire.records.record import MAGIC_BLANK, TOTAL_AND_MAGIC


def is_boundary(commit_log: CommitLog, position: int) -> bool:
    """Whether a record, a blank or a file begins at a position, or the log ends there."""
    if position == commit_log.end or position % commit_log.segments.file_size == 0:
        return True
    record = commit_log.skim_at(position, check_crc=False)
    if record is not None and position + record[0] <= commit_log.end:
        return True
    return has_blank_at(commit_log, position) or position == whole_end(commit_log)


def has_blank_at(commit_log: CommitLog, position: int) -> bool:
    """Whether a blank begins at a position and fills the rest of the file."""
    file = commit_log.segments.file_at(position)
    if file is None or position + BLANK_SIZE > min(commit_log.end, file.start + file.size):
        return False
    at = position - file.start
    return TOTAL_AND_MAGIC.unpack_from(file.view(), at) == (file.size - at, MAGIC_BLANK)


def whole_end(commit_log: CommitLog) -> int:
    """The position behind the last whole record or blank; the log's end unless that is torn."""
    stop, end = commit_log.dispatched, commit_log.end
    for _, position, record in commit_log.walk(stop, end, end, check_crc=False):
        if position + record[0] > end:  # its last bytes are still zeros
            break
        stop = position + record[0]
    return commit_log.behind_blank(stop, end)


def last_record(commit_log: CommitLog, known: int, stop: int) -> tuple[int, int] | None:
    """Position and size of the last whole record in front of `stop`; None without one.

    `known` is the position of a record in front of it, the later the faster; -1 for none.
    """
    start = max(commit_log.begin, commit_log.origin, known)
    found = None
    for _, position, record in commit_log.walk(start, stop, commit_log.end, check_crc=False):
        if position + record[0] <= stop:
            found = position, record[0]
    return found
