"""Observation: decisions of brokers and controller that no client sees, noted for the checks."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from roquet.broker.replication.confirmation.acknowledgements import StatusWait
from roquet.broker.replication.confirmation.set_acknowledgements import SetAcknowledgements
from roquet.broker.replication.role import Role
from roquet.controller.leader_state import LeaderState
from roquet.rules.election.lease import LeaseRequest, LeaseTerms, MasterLease
from roquet.rules.replication.acknowledgement import PutStatus
from roquet.store.replication.replicated_log import ReplicatedLog
from roquet.testing.network import Network
from simulation.patching import wrapped
from simulation.replicated.confirmed_prefix import ConfirmedPrefix
from simulation.replicated.history import AcknowledgedPosition, ReplicatedHistory
from simulation.replicated.scenario import ReplicatedScenario
from simulation.replicated.servers import HOSTS, ReplicatedServers

ROUNDING_MS: Final = 5
"""Added to the time in which a lease ends: clocks are read in whole ms."""


StatusDecision = Callable[[StatusWait, bool], PutStatus | Awaitable[PutStatus]]
"""Gives the status once a wait of a sender has ended, or one that takes longer still."""


def noted(decide: StatusDecision, note: Callable[[int], None]) -> StatusDecision:
    """The decisions; `note` is called with the position of each that promises most."""

    def decide_and_note(wait: StatusWait, reached: bool) -> PutStatus | Awaitable[PutStatus]:
        decision = decide(wait, reached)
        if decision is PutStatus.PUT_OK:
            note(wait.position)
        return decision

    return decide_and_note


class GroupObserver:
    """Notes what brokers confirm, acknowledge and cut, and which leases are granted."""

    def __init__(
        self,
        scenario: ReplicatedScenario,
        servers: ReplicatedServers,
        history: ReplicatedHistory,
        prefix: ConfirmedPrefix,
    ) -> None:
        self._servers = servers
        self._history = history
        self._prefix = prefix
        self._waits_for_all = scenario.waits_for_all
        self._parts: dict[str, tuple[int, int, bool]] = {}
        """Process, epoch and whether it led, of each broker when its log was looked at."""
        terms = LeaseTerms(length_ms=scenario.lease_ms)
        # The controller may count slowly, by as much as clocks may be wrong.
        self._lease_ms = terms.wait_ms * 1_000 // (1_000 - terms.drift_per_mille) + ROUNDING_MS

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Observe for as long as it is entered."""
        with (
            wrapped(SetAcknowledgements, "wait", self._wait),
            wrapped(SetAcknowledgements, "status", self._status),
            wrapped(LeaderState, "grant", self._grant),
            wrapped(ReplicatedLog, "truncate", self._truncate),
        ):
            yield

    def look(self, *, at_whole_logs: bool = False) -> None:
        """Look at what is new in the log of every broker that serves, or at all of each log."""
        for host in HOSTS:
            mode = self._servers.mode(host)
            if mode is None:
                continue
            if at_whole_logs:
                self._prefix.compare_anew(host)
            leads = mode.role.current.is_master
            confirmed = mode.sync_set.confirmed if leads else mode.view.position
            if confirmed:
                self._observe(host, mode.role.current, confirmed)

    def _observe(self, host: str, role: Role, confirmed: int) -> None:
        """Look at a log up to a position; at all of it in a new process, and in a new role."""
        part = self._servers.process(host), role.epoch, role.is_master
        if self._parts.get(host) != part:
            self._parts[host] = part
            self._prefix.compare_anew(host)
        lasting = self._history.lasting(host, confirmed)
        self._prefix.observe(host, partial(self._servers.log_of, host), lasting)

    def _wait(
        self, wait: Any, acknowledgements: SetAcknowledgements, position: int
    ) -> StatusWait | None:
        found: StatusWait | None = wait(acknowledgements, position)
        if found is None:
            return None
        note = partial(self._note_position, *self._place())
        return replace(found, decide=noted(found.decide, note))

    async def _status(
        self, status: Any, acknowledgements: SetAcknowledgements, position: int
    ) -> PutStatus:
        if (waiting := acknowledgements.wait(position)) is not None:
            return await waiting
        place = self._place()
        decision: PutStatus = await status(acknowledgements, position)
        if decision is PutStatus.PUT_OK:
            self._note_position(*place, position)
        return decision

    def _place(self) -> tuple[str, int]:
        """The host that runs now, and the epoch of its role."""
        host = Network.this_host()
        mode = self._servers.mode(host)
        return host, mode.role.current.epoch if mode else 0

    def _note_position(self, host: str, epoch: int, position: int) -> None:
        self._history.decided(
            AcknowledgedPosition(
                host=host, epoch=epoch, position=position, at_ms=self._history.now_ms()
            )
        )
        mode = self._servers.mode(host)
        if self._waits_for_all and mode is not None:
            self._observe(host, mode.role.current, position)

    async def _grant(
        self, grant: Any, state: LeaderState, name: str, request: LeaseRequest
    ) -> MasterLease:
        lease: MasterLease = await grant(state, name, request)
        self._history.granted(request.broker_id, request.epoch, self._lease_ms)
        return lease

    def _truncate(self, truncate: Any, log: ReplicatedLog, position: int) -> None:
        host = Network.this_host()
        mode = self._servers.mode(host)
        if mode is not None and mode.transitions.may_be_elected:
            self._prefix.observe_cut(host, partial(self._servers.log_of, host), position)
        truncate(log, position)
