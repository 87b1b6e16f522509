"""Leadership: one of the controllers that share a store leads, and only that one decides.

A controller whose store does not answer decides nothing new. It goes on to say what it knows for
`SILENCE_MS`; then it says that it does not lead, since another one may. Roles of brokers stay as
they are; masters that hold leases stop when these end (`LeaderState.grant`), and masters without
leases, which are Apache's, go on.
"""

from collections.abc import Callable
from typing import Final

from roquet.controller.leader_state import NOT_LEADER, LeaderState
from roquet.controller.state_store.interface import (
    ControllerIdentity,
    LeadershipView,
    StateStore,
    StateStoreError,
)
from roquet.log_records import logger
from roquet.model.errors import CallRefused
from roquet.net.clock import Clock
from roquet.rules.election.lease import LeaseTerms
from roquet.wire.codes import ResponseCode

log = logger(__name__)

ACQUIRE_MS: Final = 1_000
"""Ms between two attempts to lead, or to go on leading: a quarter of the etcd lease."""

SILENCE_MS: Final = 4_000
"""Ms without an answer of the store after which a leader says that it does not lead: as long as the
etcd lease, after which another controller may lead."""


class Leadership:
    """Whether this controller leads, and who does otherwise."""

    def __init__(
        self, store: StateStore, identity: ControllerIdentity, clock: Clock, terms: LeaseTerms
    ) -> None:
        self.identity = identity
        self.view = LeadershipView(term=None, leader=None, peers=(identity,))
        self.state: LeaderState | None = None
        """None while another controller leads, or nobody."""
        self.on_begin: Callable[[], object] = lambda: None
        self.terms = terms
        self._store = store
        self._clock = clock
        self._answered_ms = clock.monotonic_ms()
        self._complaint = ""
        self._epochs: dict[str, int] = {}

    def leader_state(self) -> LeaderState:
        """The state of the leader; CallRefused if this controller does not lead."""
        if self.state is None:
            raise CallRefused(ResponseCode.CONTROLLER_NOT_LEADER, NOT_LEADER)
        return self.state

    def epoch_known(self, name: str) -> int:
        """Latest epoch of a group in the terms before; 0 without any.

        It is later than the stored one if the store has lost what was written to it.
        """
        return self._epochs.get(name, 0)

    async def step(self, _now_ms: int) -> None:
        """Try to lead, or to go on leading."""
        try:
            await self._acquire()
        except StateStoreError as error:
            self._complain(str(error))
            silent_ms = self._clock.monotonic_ms() - self._answered_ms
            if self.state is not None and silent_ms >= SILENCE_MS:
                self.state.end(f"no answer of the store for {silent_ms} ms")
        else:
            self._answered_ms = self._clock.monotonic_ms()
            if self._complaint:
                log.info("the store of the controller's state answers again")
            self._complaint = ""

    async def _acquire(self) -> None:
        before = self.state
        view = await self._store.acquire(self.identity, in_new_term=before is None)
        if before is not None and before.has_ended:  # while the store was asked
            return
        if view.term is None and view.leader != self.view.leader and view.leader is not None:
            log.info("controller %s leads", view.leader.address)
        if before is not None and before.term != view.term:
            before.end("another controller leads" if view.term is None else "another term began")
        self.view = view
        if self.state is None and view.term is not None:
            await self._begin(view.term)

    async def _begin(self, term: int) -> None:
        groups = await self._store.load(term)
        for name, stored in groups.items():
            self._note_epoch(name, stored.group.master_epoch)
        self.state = LeaderState(self._store, term, groups, self._clock, self.terms)
        self.state.on_end = self._ended
        log.info("this controller leads in term %d with %d groups", term, len(groups))
        self.on_begin()

    def _ended(self, reason: str) -> None:
        if self.state is not None:
            for name in self.state.names:
                group = self.state.group(name)
                self._note_epoch(name, group.master_epoch if group else 0)
        self.state = None
        self.view = LeadershipView(term=None, leader=None, peers=self.view.peers)
        log.warning("this controller does not lead any more: %s", reason)

    def _note_epoch(self, name: str, epoch: int) -> None:
        self._epochs[name] = max(epoch, self.epoch_known(name))

    def _complain(self, text: str) -> None:
        """Log an error of the store once, until it answers again."""
        if not self._complaint:
            log.error("no decisions while the store of the controller's state fails: %s", text)
        self._complaint = text
