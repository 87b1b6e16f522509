"""ConfirmedPrefix: the log up to where anybody has ever called it confirmed, byte for byte.

broker 1   ════════════════════╪══════── end
broker 2   ═══════════════╪════── end               ╪ confirmed, or shown to consumers
known      ════════════════════╡                     longest prefix, equal for all
"""

from collections.abc import Callable
from itertools import count

from roquet.wire.records.record import MAGIC_BLANK, TOTAL_AND_MAGIC
from simulation.replicated.history import ReplicatedHistory

LogReader = Callable[[int], bytes]
"""Reads a broker's log from a position to its end; nothing from a position that it does not hold.
"""


class ConfirmedPrefix:
    """The longest confirmed prefix of the group's log; what differs from it is a finding.

    What was compared is not compared again until `compare_anew`.
    """

    def __init__(self, history: ReplicatedHistory) -> None:
        self._history = history
        self.content = bytearray()
        self._compared: dict[str, int] = {}
        """Position up to which a broker's log is known to be equal, by host."""

    def compare_anew(self, host: str) -> None:
        """Compare a broker's log from its begin the next time: it may be another one."""
        self._compared.pop(host, None)

    def observe(self, host: str, log: LogReader, confirmed: int) -> None:
        """Compare a broker's log up to its confirmed position, and take over what is new."""
        start = self._start(host)
        if confirmed <= start:
            return
        new = log(start)[: confirmed - start]
        if not self._is_equal(new, start):
            at = start + first_difference(new, self.content[start:])
            self._history.break_promise(
                f"fork: {host} calls {confirmed} bytes confirmed, and byte {at} is another one "
                "than was confirmed before"
            )
            return
        self.content += new[len(self.content) - start :]
        self._compared[host] = start + len(new)

    def observe_cut(self, host: str, log: LogReader, position: int) -> None:
        """Note that a broker cuts its log at a position, and what it has until then."""
        start = self._start(host)
        rest = log(start)
        end = min(start + len(rest), len(self.content))
        is_equal = position < end and self._is_equal(rest, start)
        if is_equal and is_blank(self.content[position:]):
            self._drop(position)
        elif is_equal:
            self._history.break_promise(
                f"cut: {host} cuts its log at {position}, and up to {end} it was confirmed"
            )
        self._compared[host] = min(start, position)

    def forget(self, epoch: int, position: int) -> None:
        """Expect no more of logs up to an epoch than what is in front of a position."""
        self._history.forget(epoch, position)
        self._drop(position)

    def _drop(self, position: int) -> None:
        del self.content[position:]
        self._compared = {host: min(at, position) for host, at in self._compared.items()}

    def _start(self, host: str) -> int:
        return min(self._compared.get(host, 0), len(self.content))

    def _is_equal(self, data: bytes, start: int) -> bool:
        """Whether bytes from a position on are those of the prefix, as far as that goes."""
        return self.content.startswith(data[: len(self.content) - start], start)


def is_blank(rest: bytes | bytearray) -> bool:
    """Whether the rest of a prefix is the blank at a file's end: it has no message.

    A master whose log ended behind it, and that stored nothing there, begins in front of it when it
    is started again, as Apache's broker does.
    """
    size = len(rest)
    return size >= TOTAL_AND_MAGIC.size and TOTAL_AND_MAGIC.unpack_from(rest) == (size, MAGIC_BLANK)


def first_difference(one: bytes | bytearray, other: bytes | bytearray) -> int:
    """Index of the first byte that differs; the shorter length if there is none."""
    return next(
        (at for at, a, b in zip(count(), one, other, strict=False) if a != b),
        min(len(one), len(other)),
    )
