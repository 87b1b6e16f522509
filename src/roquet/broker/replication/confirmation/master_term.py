"""MasterTermCell: the term in which this broker leads, looked at before each acknowledgement."""

import asyncio
from typing import Final

from roquet.net.clock import Clock, boottime
from roquet.rules.election.lease import MasterTerm

LOOK_MS: Final = 1_000
"""Longest sleep in ms of a wait for the end of a term: a machine that slept wakes up with a term
that is over, though the sleep is not."""


class MasterTermCell:
    """The term of this broker, None while it does not lead or has no lease."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._extended = asyncio.Event()
        self.now_ms = boottime(clock)
        """Time of the clock by which terms end."""
        self.current: MasterTerm | None = None

    def may_acknowledge(self, epoch: int) -> bool:
        """Whether the master of this epoch may say at this moment that a message is stored."""
        term = self.current
        return term is not None and term.may_acknowledge(epoch, self.now_ms())

    def extend(self, term: MasterTerm) -> None:
        """Take over a term that the controller granted; one that ends earlier changes nothing."""
        known = self.current
        if known is None or term.epoch > known.epoch or term.until_ms > known.until_ms:
            self.current = term
            self._extended.set()

    def end(self) -> None:
        """Acknowledge nothing from now on."""
        self.current = None

    async def wait_end(self) -> None:
        """Return once the current term is over, or at once without one."""
        while (term := self.current) is not None:
            left_ms = term.until_ms - self.now_ms()
            if left_ms <= 0:
                return
            await self._clock.sleep(min(left_ms, LOOK_MS))

    async def wait_extended(self) -> None:
        """Return after the next `extend`."""
        self._extended.clear()
        await self._extended.wait()
