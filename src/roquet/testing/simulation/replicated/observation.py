"""Observation: decisions of brokers and controller that no client sees, noted for the checks."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from roquet.broker.replication.confirmation.set_acknowledgements import SetAcknowledgements
from roquet.controller.leader_state import LeaderState
from roquet.rules.election.lease import LeaseRequest, LeaseTerms, MasterLease
from roquet.rules.replication.acknowledgement import PutStatus
from roquet.store.replication.replicated_log import ReplicatedLog
from roquet.testing.network import Network
from roquet.testing.simulation.patching import patched
from roquet.testing.simulation.replicated.confirmed_prefix import ConfirmedPrefix
from roquet.testing.simulation.replicated.history import AcknowledgedPosition, ReplicatedHistory
from roquet.testing.simulation.replicated.scenario import ReplicatedScenario
from roquet.testing.simulation.replicated.servers import HOSTS, ReplicatedServers

ROUNDING_MS: Final = 5
"""Added to the time in which a lease ends: clocks are read in whole ms."""


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
        terms = LeaseTerms(length_ms=scenario.lease_ms)
        # The controller may count slowly, by as much as clocks may be wrong.
        self._lease_ms = terms.wait_ms * 1_000 // (1_000 - terms.drift_per_mille) + ROUNDING_MS

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Observe for as long as it is entered."""
        with ExitStack() as stack:
            for install in (self._acknowledgements, self._leases, self._cuts):
                stack.enter_context(install())
            yield

    def look(self) -> None:
        """Look at the log of every broker that serves."""
        for host in HOSTS:
            mode = self._servers.mode(host)
            if mode is None:
                continue
            leads = mode.role.current.is_master
            confirmed = mode.sync_set.confirmed if leads else mode.view.position
            if confirmed:
                self._prefix.observe(host, self._servers.log_of(host), confirmed)

    @contextmanager
    def _acknowledgements(self) -> Iterator[None]:
        decide = SetAcknowledgements.status

        async def status(acknowledgements: SetAcknowledgements, position: int) -> PutStatus:
            host = Network.this_host()
            mode = self._servers.mode(host)
            epoch = mode.role.current.epoch if mode else 0
            decision = await decide(acknowledgements, position)
            if decision is PutStatus.PUT_OK:
                self._note_position(host, epoch, position)
            return decision

        with patched(SetAcknowledgements, "status", status):
            yield

    def _note_position(self, host: str, epoch: int, position: int) -> None:
        self._history.decided(
            AcknowledgedPosition(
                host=host, epoch=epoch, position=position, at_ms=self._history.now_ms()
            )
        )
        if self._waits_for_all and host in self._servers.brokers:
            self._prefix.observe(host, self._servers.log_of(host), position)

    @contextmanager
    def _leases(self) -> Iterator[None]:
        grant = LeaderState.grant

        async def noted(state: LeaderState, name: str, request: LeaseRequest) -> MasterLease:
            lease = await grant(state, name, request)
            self._history.granted(request.broker_id, request.epoch, self._lease_ms)
            return lease

        with patched(LeaderState, "grant", noted):
            yield

    @contextmanager
    def _cuts(self) -> Iterator[None]:
        truncate = ReplicatedLog.truncate

        def noted(raw: ReplicatedLog, position: int) -> None:
            host = Network.this_host()
            mode = self._servers.mode(host)
            if mode is not None and mode.transitions.may_be_elected:
                self._prefix.observe_cut(host, self._servers.log_of(host), position)
            truncate(raw, position)

        with patched(ReplicatedLog, "truncate", noted):
            yield
