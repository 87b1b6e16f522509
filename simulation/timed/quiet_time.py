"""Quiet time: the clock jumps where nothing happens, so that a day takes a second.

    burst ─ quiet ─ due ─ quiet ─ due ─ due ─ burst ─ …    in quiet time the clock jumps

A jump is what a machine sees that was suspended: everything that was due meanwhile is done at once.
So nothing that has to be in time may be due in one: the history knows when something will be.
"""

from typing import Final

from roquet.testing.clock import VirtualClock
from simulation.timed.history import TimedHistory

BEAT_MS: Final = 250
"""How often the workload looks whether there is something to do."""

CALM_MS: Final = 1_000
"""Time after the last line before the clock may jump: answers are under way."""

EARLY_MS: Final = 800
LATE_MS: Final = 1_500
"""No jump ends less than `EARLY_MS` before a due time, or begins less than `LATE_MS` after one."""

FIRST_JUMP_MS: Final = 45_000
JUMP_MS: Final = 90_000
"""Longest jumps: shorter than any silence that would be noticed. Everybody has spoken just after a
jump, but up to half a minute before the first one."""


class QuietTime:
    """Skips time in jumps, as long as no client is at work and nothing is due."""

    def __init__(self, clock: VirtualClock, history: TimedHistory) -> None:
        self._clock = clock
        self._history = history
        self._jumped_ms = 0

    @property
    def is_calm(self) -> bool:
        """Whether no handler runs, and no line was written for a second."""
        history = self._history
        return not history.in_progress and history.now_ms() - history.last_ms > CALM_MS

    def skip(self, next_ms: int) -> None:
        """Let the clock jump once, at most to shortly before `next_ms` or the next due time."""
        history, now_ms = self._history, self._history.now_ms()
        history.dues = [due_ms for due_ms in history.dues if due_ms > now_ms - LATE_MS]
        until_ms = min([next_ms, *history.dues]) - EARLY_MS
        if until_ms > now_ms:
            just_jumped = now_ms - self._jumped_ms < 2 * BEAT_MS
            self._clock.jump(min(until_ms - now_ms, JUMP_MS if just_jumped else FIRST_JUMP_MS))
            self._jumped_ms = history.now_ms()
