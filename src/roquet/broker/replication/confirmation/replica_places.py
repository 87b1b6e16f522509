"""ReplicaPlaces: reports of replicas for the sync-state set, of one connection for each id."""

from collections.abc import Callable
from typing import Final

from roquet.broker.replication.confirmation.sync_set import SyncSet
from roquet.log_records import logger
from roquet.net.clock import Clock
from roquet.rules.replication.sync_state import ReplicaReportFacts, SentFrame, caught_up_ms
from roquet.rules.replication.transfer import ReplicaClaim, may_replace, next_holder

log = logger(__name__)

WARN_AGAIN_MS: Final = 60 * 60 * 1_000
"""Ms between two warnings that connections name one id."""


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
