"""Transfer: where the stream to a replica begins, how fast it flows, and impossible reports.

A replica reports where its log ends. 0 is an empty log: the stream begins at the start of a file,
since files of both logs have the same size and are named by their positions. Source: Apache
RocketMQ 5.5.0, DefaultHAConnection and AutoSwitchHAConnection.
"""

import msgspec


class LogBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Positions of a master's log."""

    first: int
    """Start of the oldest file."""
    end: int
    file_size: int

    @property
    def last_file(self) -> int:
        """Start of the file that holds the end."""
        return self.end - self.end % self.file_size


def is_possible_report(log_end: int, master_end: int) -> bool:
    """Whether a replica of this master can have such a log.

    Apache's master believes every report: a replica of another past counts as in sync, and its
    acknowledgements confirm messages that it does not have (issue 3015 of Apache RocketMQ).
    """
    return 0 <= log_end <= master_end


def transfer_start(log_end: int, bounds: LogBounds, *, from_last_file: bool) -> int | None:
    """Position at which the stream begins after a replica's first report.

    An empty log begins at the last file, always so for masters with a fixed role, or else at the
    oldest one. None: the master no longer has what follows the replica's log, or never had the
    log itself: close the connection.
    """
    if log_end == 0:
        return bounds.last_file if from_last_file else bounds.first
    if not bounds.first <= log_end <= bounds.end:
        return None
    return log_end


SECOND_MS = 1_000


class TransferMeter:
    """Counts the bytes that one connection transfers, by seconds of a monotonic clock."""

    __slots__ = ("_before", "_count", "_second")

    def __init__(self) -> None:
        self._second = 0
        self._count = 0
        self._before = 0

    def add(self, count: int, now_ms: int) -> None:
        """Count bytes that are transferred now."""
        self._turn_to(now_ms)
        self._count += count

    def left(self, per_second_max: int, now_ms: int) -> int:
        """Bytes that may still be transferred in this second."""
        self._turn_to(now_ms)
        return max(per_second_max - self._count, 0)

    def bytes_per_second(self, now_ms: int) -> int:
        """Bytes of the last whole second."""
        self._turn_to(now_ms)
        return self._before

    def _turn_to(self, now_ms: int) -> None:
        second = now_ms // SECOND_MS
        if second != self._second:
            self._before = self._count if second == self._second + 1 else 0
            self._second, self._count = second, 0


def next_second_ms(now_ms: int) -> int:
    """Milliseconds until the next second begins: 1 to 1,000."""
    return SECOND_MS - now_ms % SECOND_MS
