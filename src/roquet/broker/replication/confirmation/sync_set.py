"""SyncSet: the sync-state set of a master, and the position that all of its members have.

    report of a member ──▶ position that all have ──▶ acknowledgements are sent
                                   │ on this disk, with synchronous flush
                                   └──▶ confirmed position ──▶ consumers see it
    report of another that has caught up ──▶ joins once the controller has said yes
    connection lost, too long behind ──▶ leaves once the controller has said yes

While a change is proposed the members before and after it have to acknowledge. With synchronous
flush, and while the set is too small for messages to be taken, a master that has lost its power may
be elected again, with what was on its disk: so consumers see no message that is not there, and no
progress is told to replicas that rests on one.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from roquet.log_records import logger
from roquet.net.async_watermark import AsyncWatermark
from roquet.net.clock import Clock
from roquet.rules.replication.acknowledgement import (
    ALL_OF_THE_SET,
    confirmed_position,
    replicated_position,
)
from roquet.rules.replication.sync_state import (
    ReplicaReportFacts,
    SentFrame,
    SyncState,
    can_be_replaced,
    caught_up_ms,
    may_join,
    members_in_time,
)
from roquet.rules.replication.transfer import ReplicaClaim, may_replace, next_holder

log = logger(__name__)

NO_MEMBERS: Final = SyncState(members=frozenset(), version=0)

WARN_AGAIN_MS: Final = 60 * 60 * 1_000
"""Ms between two warnings that connections name one id."""


class SyncSet:
    """Sync-state set of the master of one epoch; without members while this broker is none."""

    def __init__(
        self,
        clock: Clock,
        end: Callable[[], int],
        needed: Callable[[], int],
        on_confirmed: Callable[[int | None], object],
        *,
        flushed: Callable[[], int],
        only_flushed: Callable[[int], bool],
    ) -> None:
        """Begin without members.

        `needed` is the number of logs that have to hold a message, or ALL_OF_THE_SET.
        `on_confirmed` is called with the position up to which consumers may read; None: all.
        `flushed` is the position up to which this disk has the log; `confirm` has to be called when
        it grows. `only_flushed` says whether consumers may see no more than that while the set has
        so many members.
        """
        self._clock = clock
        self._end = end
        self._needed = needed
        self._on_confirmed = on_confirmed
        self._flushed = flushed
        self._only_flushed = only_flushed
        self._reports: dict[int, ReplicaReportFacts] = {}
        self._caught_up: dict[int, int] = {}
        self._master = 0
        self._epoch_start = 0
        self._confirmed = 0
        self._mark = AsyncWatermark(clock=clock)
        self._replicated = AsyncWatermark(clock=clock)
        self.state = NO_MEMBERS
        self.changed = asyncio.Event()
        """Set when the members that there should be may have changed."""

    def begin(self, master: int, state: SyncState, epoch_start: int) -> None:
        """Lead from now on; all of the log up to the start of the epoch is confirmed."""
        self.end_term()
        self._master, self._epoch_start, self.state = master, epoch_start, state
        self._confirmed = epoch_start
        self._mark = AsyncWatermark(epoch_start, clock=self._clock)
        self._replicated = AsyncWatermark(epoch_start, clock=self._clock)
        self.confirm()

    def end_term(self) -> None:
        """Lead no more: acknowledgements that wait are not sent."""
        self.state = NO_MEMBERS
        self._reports.clear()
        self._caught_up.clear()
        self._mark.release()
        self._replicated.release()

    @property
    def confirmed(self) -> int:
        """Position up to which all members have the log, and consumers may see it."""
        return self._end() if self._shows_all else self._confirmed

    @property
    def is_alone(self) -> bool:
        """Whether this broker leads, and nobody besides it has to acknowledge."""
        return len(self.state.acknowledging) == 1

    @property
    def shows_flushed(self) -> bool:
        """Whether consumers see no more than this disk has."""
        return self._only_flushed(self.state.size_min)

    @property
    def _shows_all(self) -> bool:
        return self.is_alone and not self.shows_flushed

    @property
    def can_be_replaced(self) -> bool:
        """Whether another member could be elected, with all that was acknowledged."""
        reports = {one: facts.report for one, facts in self._reports.items()}
        return can_be_replaced(
            self.state, self._master, reports, needed=self._needed(), acknowledged=self.acknowledged
        )

    async def reach(self, position: int, deadline_ms: int) -> bool:
        """Wait until as many members as needed have the log up to a position.

        False when the deadline, a monotonic time, comes first, or this broker leads no more.
        """
        if not self.needs_reports:
            self.confirm()  # no report has to come
        mark = self.acknowledged_mark
        return await mark.reach(position, deadline_ms) and mark is self.acknowledged_mark

    @property
    def acknowledged(self) -> int:
        """Position up to which as many members as needed have the log."""
        return self._end() if self.is_alone else self.acknowledged_mark.value

    @property
    def waiting(self) -> int:
        """Coroutines in `reach`."""
        return self._mark.waiting + self._replicated.waiting

    @property
    def needs_reports(self) -> bool:
        """Whether a member besides this broker has to acknowledge."""
        return not self.is_alone and self._needed() != 1

    @property
    def acknowledged_mark(self) -> AsyncWatermark:
        """The watermark that `reach` waits for; another one after a change of term or settings."""
        return self._mark if self._needed() == ALL_OF_THE_SET else self._replicated

    def confirm(self) -> None:
        """Compute the confirmed position again: the log has grown, or a report or a flush came."""
        if not self.state.members:
            return
        end, others = self._end(), self.state.acknowledging - {self._master}
        reports = {one: facts.report for one, facts in self._reports.items()}
        position = confirmed_position(self._mark.value, end, reports, others)
        self._mark.advance(position)
        sets = {self.state.members, self.state.proposed or self.state.members}
        self._replicated.advance(min(self.held_by(each, self._needed()) for each in sets))
        shown = min(position, self._flushed()) if self.shows_flushed else position
        self._confirmed = max(self._confirmed, shown)
        self._on_confirmed(None if self._shows_all else self._confirmed)

    def reported(self, replica: ReplicaReportFacts, last: SentFrame) -> None:
        """Note where a replica's log ends; `last` is the last frame that it was sent."""
        if not self.state.members:
            return
        now_ms = self._clock.monotonic_ms()
        self._reports[replica.broker_id] = replica
        time_ms = caught_up_ms(replica.report, self._end(), last, now_ms)
        if time_ms is not None:
            self._caught_up[replica.broker_id] = time_ms
        if replica.broker_id in self.state.acknowledging:
            self.confirm()
        elif time_ms is not None:
            self.changed.set()

    def disconnected(self, broker_id: int) -> None:
        """Note that a replica's connection has ended."""
        if self._reports.pop(broker_id, None) is not None:
            self._caught_up.pop(broker_id, None)
            self.changed.set()

    def wanted(self, behind_max_ms: int) -> frozenset[int]:
        """Members that there should be: those that caught up within the last `behind_max_ms`."""
        oldest_ms = self._clock.monotonic_ms() - behind_max_ms
        kept = members_in_time(self.state, self._master, self._caught_up, oldest_ms)
        # A master that is alone acknowledges its whole log: who joins has to have all of that.
        confirmed = max(self._mark.value, self._end() if self.is_alone else 0)
        joining = {
            facts.broker_id
            for facts in self._reports.values()
            if self._caught_up.get(facts.broker_id, oldest_ms - 1) >= oldest_ms
            and may_join(facts, self.state, confirmed=confirmed, epoch_start=self._epoch_start)
        }
        return kept | joining

    def keep_acknowledged(self, members: frozenset[int]) -> bool:
        """Whether these members, without others, keep all that was acknowledged.

        Of fewer than have to hold a message all do. One of them may be elected once the others have
        left, so as many as have to must have a message that those who leave have as well. A master
        without others has to have it on its disk.
        """
        needed = self._needed()
        if len(members) == 1 and needed != 1 and self.acknowledged_mark.value > self._flushed():
            return False
        if needed == ALL_OF_THE_SET:
            return True
        return self.held_by(members, min(needed, len(members))) >= self._replicated.value

    def held_by(self, members: frozenset[int], needed: int) -> int:
        """Position up to which so many of these members, the master among them, have the log."""
        reports = {one: facts.report for one, facts in self._reports.items()}
        return replicated_position(needed, self._end(), reports, members - {self._master})

    def propose(self, members: frozenset[int]) -> None:
        """Ask for these members: until the answer is known both sets have to acknowledge."""
        if self.state.proposed is None:
            self.confirm()  # while the master is alone, all of its log counts
            self.state = self.state.propose(members)
            self.confirm()  # from now on consumers see no more than the new members have

    def adopt(self, members: frozenset[int], version: int) -> None:
        """Take over what the controller says; a version that is known changes nothing."""
        self.state = self.state.adopt(members, version)
        self.confirm()
        self.changed.set()

    def withdraw(self) -> None:
        """Note that the controller has certainly refused the change."""
        self.state = self.state.withdraw()
        self.confirm()


class ReplicaPlaces:
    """Connections that have reported, by the id that they name; one of each id counts."""

    def __init__(
        self,
        sync_set: SyncSet,
        clock: Clock,
        end: Callable[[], int],
        patience_ms: Callable[[], int],
    ) -> None:
        """Begin without any; `end` is where the master's log ends."""
        self._sync_set = sync_set
        self._clock = clock
        self._end = end
        self._patience_ms = patience_ms
        self._claims: dict[int, dict[int, ReplicaClaim]] = {}
        self._holders: dict[int, int] = {}
        self._warned_ms: int | None = None

    def report(self, connection: int, facts: ReplicaReportFacts, sent: SentFrame) -> None:
        """Note a report; it counts if the connection holds the id that it names."""
        broker_id, now_ms = facts.broker_id, self._clock.monotonic_ms()
        claims = self._claims.setdefault(broker_id, {})
        known = claims.get(connection)
        time_ms = caught_up_ms(facts.report, self._end(), sent, now_ms)
        if time_ms is None and known is not None:
            time_ms = known.caught_up_ms
        claim = claims[connection] = ReplicaClaim(facts=facts, sent=sent, caught_up_ms=time_ms)
        holder = self._holders.setdefault(broker_id, connection)
        if holder != connection:
            self._warn(broker_id, now_ms)
            if not may_replace(claims[holder], claim, now_ms, self._patience_ms()):
                return
            self._holders[broker_id] = connection
        self._sync_set.reported(facts, sent)

    def forget(self, connection: int, broker_id: int) -> None:
        """Forget a connection that has ended; another one that names the id gets its place."""
        claims = self._claims.get(broker_id, {})
        claims.pop(connection, None)
        if not self.is_holder(connection, broker_id):
            return
        del self._holders[broker_id]
        if (heir := next_holder(claims)) is None:
            del self._claims[broker_id]
            self._sync_set.disconnected(broker_id)
            return
        self._holders[broker_id], claim = heir, claims[heir]
        oldest_ms = self._clock.monotonic_ms() - self._patience_ms()
        if claim.caught_up_ms is not None and claim.caught_up_ms >= oldest_ms:
            self._sync_set.reported(claim.facts, claim.sent)
        else:  # it may be dead: it counts from its next report on
            self._sync_set.disconnected(broker_id)

    def is_holder(self, connection: int, broker_id: int) -> bool:
        """Whether a connection counts as the replica of an id."""
        return self._holders.get(broker_id) == connection

    def is_contested(self, broker_id: int) -> bool:
        """Whether several connections name an id."""
        return len(self._claims.get(broker_id, ())) > 1

    def _warn(self, broker_id: int, now_ms: int) -> None:
        if self._warned_ms is None or now_ms - self._warned_ms >= WARN_AGAIN_MS:
            self._warned_ms = now_ms
            log.warning(
                "two connections say that they are replica %d: the first one counts while it lives;"
                " a copy of its directory must not run, nor strangers reach this port",
                broker_id,
            )
