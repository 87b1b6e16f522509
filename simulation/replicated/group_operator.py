"""GroupOperator: has a broker elected where only one may be, and that one must not lead.

A broker whose machine was lost, and that was elected before anybody knew, waits for an operator.
All other members of its set have what was acknowledged; so the longest log of the others is taken,
once all brokers serve. Messages that nobody acknowledged are lost with that: also those that
consumers have seen because the broker was alone.
"""

import asyncio
from functools import partial
from typing import Final

from roquet.model.errors import CallRefused
from simulation.replicated.confirmed_prefix import ConfirmedPrefix
from simulation.replicated.history import ReplicatedHistory
from simulation.replicated.scenario import ReplicatedScenario
from simulation.replicated.servers import HOSTS, ReplicatedServers, host_of

LOOK_MS: Final = 500
"""Ms between two looks."""

PATIENCE_MS: Final = 8_000
"""Time after which nobody expects any more that the group helps itself."""


class GroupOperator:
    """Operator of one group."""

    def __init__(
        self,
        scenario: ReplicatedScenario,
        servers: ReplicatedServers,
        history: ReplicatedHistory,
        prefix: ConfirmedPrefix,
    ) -> None:
        self._members = scenario.members
        self._servers = servers
        self._history = history
        self._prefix = prefix
        self._stuck_since_ms: int | None = None

    async def live(self) -> None:
        """Look, forever."""
        while True:
            await asyncio.sleep(LOOK_MS / 1_000)
            now_ms = self._history.now_ms()
            if not self._is_stuck():
                self._stuck_since_ms = None
                continue
            if self._stuck_since_ms is None:
                self._stuck_since_ms = now_ms
            if now_ms - self._stuck_since_ms >= PATIENCE_MS and self._all_serve():
                await self._elect()

    def _is_stuck(self) -> bool:
        """Whether the only member of the set refuses to lead."""
        in_sync = [*self._servers.group.in_sync] if self._history.states else []
        mode = self._servers.mode(host_of(in_sync[0])) if len(in_sync) == 1 else None
        return mode is not None and not mode.transitions.may_be_elected

    def _all_serve(self) -> bool:
        has_all = all(self._servers.mode(host) is not None for host in HOSTS)
        return has_all and not self._servers.down and not self._servers.frozen.hosts

    async def _elect(self) -> None:
        """Have the best of the others elected."""
        others = [*self._members - self._servers.group.in_sync]
        winner = max(others, key=self._log_of)
        controllers, before = self._servers.controllers, self._servers.group.master_epoch
        attempt = self._history.attempt(winner, before, partial(self._forget, before))
        electing = self._servers.hosts.run(controllers.leader, controllers.elect(winner))
        await asyncio.wait([electing])
        if electing.cancelled() or isinstance(electing.exception(), CallRefused):
            attempt.has_failed = True  # it may be stored yet
        elif electing.result() is None:
            self._history.withdraw_attempt(attempt)

    def _forget(self, epoch: int) -> None:
        self._prefix.forget(epoch, self._history.acknowledged_position)

    def _log_of(self, number: int) -> tuple[int, int]:
        mode = self._servers.mode(host_of(number))
        if mode is None:
            return -1, -1
        facts = mode.transitions.facts()
        return facts.epoch, facts.end
