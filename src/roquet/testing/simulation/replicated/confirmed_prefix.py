"""ConfirmedPrefix: the log up to where anybody has ever called it confirmed, byte for byte.

broker 1   ════════════════════╪══════── end
broker 2   ═══════════════╪════── end               ╪ confirmed, or shown to consumers
known      ════════════════════╡                     longest prefix, equal for all
"""

from itertools import count

from roquet.testing.simulation.replicated.history import ReplicatedHistory


class ConfirmedPrefix:
    """The longest confirmed prefix of the group's log; what differs from it is a finding."""

    def __init__(self, history: ReplicatedHistory) -> None:
        self._history = history
        self.content = b""

    def observe(self, host: str, log: bytes, confirmed: int) -> None:
        """Compare a broker's log up to its confirmed position, and take over what is new."""
        end = min(confirmed, len(log))
        shared = min(end, len(self.content))
        if log[:shared] != self.content[:shared]:
            at = first_difference(log, self.content)
            self._history.break_promise(
                f"fork: {host} calls {confirmed} bytes confirmed, and byte {at} is another one "
                "than was confirmed before"
            )
        elif end > len(self.content):
            self.content = log[:end]

    def observe_cut(self, host: str, log: bytes, position: int) -> None:
        """Note that a broker cuts its log at a position, and what it has until then."""
        end = min(len(log), len(self.content))
        if position < end and log[:end] == self.content[:end]:
            self._history.break_promise(
                f"cut: {host} cuts its log at {position}, and up to {end} it was confirmed"
            )

    def forget(self, position: int) -> None:
        """Expect no more than what is in front of a position."""
        self.content = self.content[:position]


def first_difference(one: bytes, other: bytes) -> int:
    """Index of the first byte that differs; the shorter length if there is none."""
    return next(
        (at for at, a, b in zip(count(), one, other, strict=False) if a != b),
        min(len(one), len(other)),
    )
