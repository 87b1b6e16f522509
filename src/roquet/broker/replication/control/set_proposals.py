"""SetProposals: changes of the sync-state set, asked of the controller one at a time.

wanted ≠ members ──▶ 1001 ──▶ adopted
                      │  └──▶ refused: withdrawn
                      └─────▶ no answer: asked again, since the change may have been made
                                 └──▶ refused from then on: the master resigns

A request without an answer may be carried out however late, so refusals of later ones do not take
the change back. If its new member is gone for good, nothing would be acknowledged any more: then
only a new epoch settles it, in which the controller refuses the old request.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from roquet.broker.replication.confirmation.sync_set import SyncSet
from roquet.broker.replication.control.controller_client import ControllerClient
from roquet.broker.replication.control.failover import Failover
from roquet.log_records import logger
from roquet.model.errors import CallError, CallRefused, StoreError
from roquet.net.clock import Clock
from roquet.rules.replication.sync_state import SyncState
from roquet.wire.codes import ResponseCode

log = logger(__name__)

PAUSE_MS: Final = 1_000
"""Ms between two tries of a change that was not made."""

REFUSALS_MAX: Final = 3
"""Refusals in a row, a second apart, after which a change that may have been made is settled by an
election. A member that was started again is accepted before; senders wait for that long."""

REFUSALS: Final = frozenset(
    {
        ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
        ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
        ResponseCode.CONTROLLER_INVALID_MASTER,
        ResponseCode.CONTROLLER_INVALID_REPLICAS,
        ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
        ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
    }
)
"""Codes after which the request has certainly changed nothing."""


class SetProposals:
    """Asks for the set that there should be, in the term of this broker."""

    def __init__(
        self,
        sync_set: SyncSet,
        client: ControllerClient,
        clock: Clock,
        failover: Failover,
        behind_max_ms: Callable[[], int],
        flush: Callable[[], Awaitable[None]],
    ) -> None:
        """Propose nothing before this broker leads; `flush` brings the log to the disk."""
        self._set = sync_set
        self._client = client
        self._clock = clock
        self._failover = failover
        self._behind_max_ms = behind_max_ms
        self._flush = flush
        self._is_unanswered = False
        """Whether a request of this proposal may still be carried out, however late: then it is not
        taken back in this epoch."""
        self._refusals = 0
        """Refusals in a row of a request that may be carried out all the same."""
        self._complained = False

    async def serve(self) -> None:
        """Ask whenever the set should change, forever."""
        while True:
            await self._set.changed.wait()
            self._set.changed.clear()
            if not await self.step():
                await self._clock.sleep(PAUSE_MS)
                self._set.changed.set()

    def check(self, _now_ms: int = 0) -> None:
        """Look whether members are too long behind; every checkSyncStateSetPeriod."""
        self._set.changed.set()

    async def step(self) -> bool:
        """Ask for one change, if there should be one; False if it has to be tried again."""
        term = self._failover.standing.leading
        if term is None:
            self._forget()
            return True
        state = self._set.state
        wanted = state.proposed or self._set.wanted(self._behind_max_ms())
        if wanted == state.members:
            return True
        if state.proposed is None:
            self._forget()
            if not state.members <= wanted and not await self._may_leave(term, state, wanted):
                return False
            self._set.propose(wanted)
        return await self._ask(term, state.version, wanted)

    async def _ask(self, term: tuple[int, int], version: int, wanted: frozenset[int]) -> bool:
        """Ask for a set that is proposed, and take over the answer; False without one."""
        master, epoch = term
        try:
            answer = await self._client.alter_set(master, epoch, version, wanted)
        except CallError as error:
            if self._failover.standing.leading == term:
                self._failed(epoch, wanted, error)
            return False
        if self._failover.standing.leading != term:
            return True
        members = frozenset(answer.sync_state_set)
        if master not in members:
            text = f"the controller answers with a set {sorted(members)} without its master"
            self._failed(epoch, wanted, CallError(text, definite=False))
            return False
        self._forget()
        self._complained = False
        self._set.adopt(members, answer.sync_state_set_epoch)
        log.info("in sync are %s", sorted(self._set.state.members))
        return True

    def _forget(self) -> None:
        """Begin another proposal."""
        self._is_unanswered, self._refusals = False, 0

    async def _may_leave(
        self, term: tuple[int, int], state: SyncState, wanted: frozenset[int]
    ) -> bool:
        """Bring the log to the disk before members leave; whether these then may be the set.

        Those who leave may be the only ones besides this broker that have messages which are
        acknowledged and in memory alone here. Once they have left, this broker would lead without
        these after a loss of its power. Meanwhile others may have caught up, been lost, or
        acknowledged messages that a new member does not have.
        """
        try:
            await self._flush()
        except StoreError as error:
            log.warning("members of the set cannot leave it: %s", error)
            return False
        is_as_before = self._failover.standing.leading == term and self._set.state == state
        is_wanted = is_as_before and self._set.wanted(self._behind_max_ms()) == wanted
        return is_wanted and self._set.keep_acknowledged(wanted)

    def _failed(self, epoch: int, wanted: frozenset[int], error: CallError) -> None:
        if not self._complained:
            self._complained = True
            log.warning("the controller has not made the set %s: %s", sorted(wanted), error)
        self._failover.notice()
        if not _is_refusal(error):
            self._is_unanswered, self._refusals = True, 0
        elif not self._is_unanswered:
            self._set.withdraw()
        elif isinstance(error, CallRefused):
            self._refused_again(epoch, wanted)

    def _refused_again(self, epoch: int, wanted: frozenset[int]) -> None:
        """Count the refusals of a change that may have been made, and resign after some.

        Again with each further one: something else may have taken the first resignation back.
        """
        self._refusals += 1
        if self._refusals == REFUSALS_MAX:
            log.warning(
                "whether the set %s was made cannot be known in epoch %d: another one is asked for",
                sorted(wanted), epoch,
            )  # fmt: skip
        if self._refusals >= REFUSALS_MAX:
            self._failover.resign(epoch)


def _is_refusal(error: CallError) -> bool:
    """Whether this request certainly changes nothing: it never left, or was refused for a reason.

    A refusal with another code than the controller's own may come after the change, and so may
    those of a controller that stopped to lead meanwhile.
    """
    if isinstance(error, CallRefused):
        return error.code in REFUSALS
    return error.definite
