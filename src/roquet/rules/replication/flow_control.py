"""Flow control: how much of the log a replica may be sent in a second.

Bytes are counted by whole seconds. Source: Apache RocketMQ 5.5.0, FlowMonitor.
"""

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
