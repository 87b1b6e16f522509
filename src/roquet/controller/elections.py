"""Elections: a group whose master is lost gets another one, as soon as the lease rules allow it.

broker lost, or a scan ──▶ no living master? ──▶ elect ──▶ stored ──▶ brokers are told
                                                   │
                                                   └─ the lease runs: again when it is over
"""

import asyncio
from typing import Final

from roquet.controller.leader_state import LeaderState
from roquet.controller.leadership import Leadership
from roquet.controller.liveness import LiveBroker, Liveness
from roquet.controller.role_notices import RoleNotices
from roquet.log_records import logger
from roquet.model.errors import CallRefused
from roquet.net.clock import Clock
from roquet.rules.election.elect import (
    ElectionFacts,
    ElectionRequest,
    ElectionResult,
    elect,
    election_reason,
    needs_election,
)
from roquet.rules.election.group import Refusal, RefusalCode, ReplicaGroup

log = logger(__name__)

RETRY_MS: Final = 200
"""Ms between two attempts where heartbeats are waited for, which come every second."""

CATCH_UP_MS: Final = 3_000
"""Ms after the end of a lease in which a broker that an operator names may catch up: the others'
next heartbeats say what it needs, and its own that it has it. Meanwhile nobody takes messages."""

FAILED_MS: Final = 1_000
"""Ms between two attempts to store an election."""

PAUSE_MS_MIN: Final = 5
"""Shortest pause between two scans, so that many losses at once cost one scan."""

WALK_PAUSES: Final = 10
PAUSE_MS_MAX: Final = 300
"""A pause is ten times as long as the walk over all brokers was, up to this: thousands of false
heartbeats, each of which asks for a scan, must not take the time of the true ones."""

NAMES_MAX: Final = 100
"""Names of brokers that are looked at before others have their turn."""


class Elections:
    """Elections of this controller, while it leads."""

    def __init__(
        self, leadership: Leadership, liveness: Liveness, notices: RoleNotices, clock: Clock
    ) -> None:
        self.elects_unclean = False
        """Whether a broker outside the set is elected rather than nobody."""
        self.notifies = True
        """Whether brokers are told of elections."""
        self.scan_ms = 1_000
        """Longest time between two scans."""
        self._leadership = leadership
        self._liveness = liveness
        self._notices = notices
        self._clock = clock
        self._wanted = asyncio.Event()
        self._walk_ms = 0
        """Ms that the last walk over all brokers took."""
        self._outdated: dict[str, int] = {}
        """Latest epoch for which it was logged that a group's state is older."""
        self._waiting: dict[str, int] = {}
        """Members that a group waits for before somebody is elected, as it was logged."""
        liveness.on_change = self.trigger
        leadership.on_begin = self.trigger

    def trigger(self) -> None:
        """Scan at once."""
        self._wanted.set()

    async def serve(self) -> None:
        """Scan when brokers come or go, an attempt is to be repeated, or the interval is over."""
        while True:
            pause_ms = min(WALK_PAUSES * self._walk_ms, PAUSE_MS_MAX)
            await self._clock.sleep(max(PAUSE_MS_MIN, pause_ms))
            self._wanted.clear()
            try:
                pause_ms = await self.scan()
            except Exception:
                log.exception("a scan for lost masters failed; it is tried again")
                pause_ms = FAILED_MS
            try:
                async with asyncio.timeout(pause_ms / 1000):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    async def scan(self) -> int:
        """Elect masters where they are missing; returns the ms until the next scan is due."""
        now_ms = self._clock.monotonic_ms()
        self._liveness.expire(now_ms)
        state = self._leadership.state
        due = [now_ms + self.scan_ms]
        if (expiry_ms := self._liveness.next_expiry_ms()) is not None:
            due.append(expiry_ms)
        if state is not None:
            await self._report_outdated(state)
        self._walk_ms = self._clock.monotonic_ms() - now_ms
        if state is not None:
            for name in state.names:
                due += await self._replace_lost_master(state, name)
        return max(min(due) - self._clock.monotonic_ms(), 0)

    def epoch_known(self, name: str, *, of_members: bool = False) -> int:
        """Latest epoch of a group that this controller has heard or read of.

        With `of_members` only members count that `LeaderState.may_tell_epochs`, as they always do
        once the stored state has proved to be the latest one.
        """
        latest = self._latest(name, of_members=of_members)
        heard = 0 if latest is None else latest.epoch
        return max(heard, self._leadership.epoch_known(name))

    def is_outdated(self, name: str, *, of_members: bool = False) -> bool:
        """Whether the stored state of a group was lost or is old: its brokers know a later epoch.

        Nothing of it may be changed then but by removing the whole group: in a further epoch it
        would look like the latest state.
        """
        state = self._leadership.leader_state()
        group = state.group(name)
        known = self.epoch_known(name, of_members=of_members)
        return known > (group.master_epoch if group else 0)

    def is_impossible(self, name: str, broker_id: int, epoch: int) -> bool:
        """Whether a broker tells of an epoch to which certainly nobody was elected."""
        state = self._leadership.state
        group = None if state is None else state.group(name)
        if state is None or group is None or group.is_removed or epoch <= group.master_epoch:
            return False
        return state.is_latest(name) and not state.may_tell_epochs(name, broker_id)

    def _latest(self, name: str, *, of_members: bool = False) -> LiveBroker | None:
        """The live broker of a group that tells of the latest epoch."""
        state = self._leadership.state
        group = None if state is None else state.group(name)
        if state is None or group is None or group.is_removed:
            return self._liveness.latest(name, "")
        if not of_members and not state.is_latest(name):
            return self._liveness.latest(name, group.cluster)
        live = self._liveness.live(group).items()
        tellers = [broker for key, broker in live if state.may_tell_epochs(name, key)]
        return max(tellers, key=lambda one: one.epoch, default=None)

    async def _report_outdated(self, state: LeaderState) -> None:
        """Log, once for each epoch, that brokers are in a later epoch than their group's state.

        Names of which no broker lives and nothing is stored are forgotten.
        """
        names = {*self._liveness.names, *state.names}
        self._outdated = {name: self._outdated[name] for name in names & self._outdated.keys()}
        for number, name in enumerate(names, 1):
            if number % NAMES_MAX == 0:
                await asyncio.sleep(0)
            group, epoch = state.group(name), self.epoch_known(name)
            stored = group.master_epoch if group else 0
            if epoch > max(stored, self._outdated.get(name, 0)):
                self._outdated[name] = epoch
                latest = self._latest(name)
                is_heard = latest is not None and latest.epoch == epoch
                teller = latest.site.address if latest and is_heard else "an earlier term"
                log.error(
                    "group %s is in epoch %d (so says %s), the stored state in epoch %d: it was "
                    "lost or is old, nobody is elected; restore it, or see cleanBrokerMetadata; "
                    "stop a broker that is not of this group",
                    name, epoch, teller, stored,
                )  # fmt: skip

    async def _replace_lost_master(self, state: LeaderState, name: str) -> list[int]:
        """Elect if the group's master is lost; returns when to try again, or nothing."""
        group = state.group(name)
        if group is None or not needs_election(group, self._liveness.live(group)):
            return []
        try:
            result = await self.elect(state, name, ElectionRequest())
        except CallRefused as error:
            log.warning("no election in group %s: %s", name, error)
            return [self._clock.monotonic_ms() + FAILED_MS]
        except Exception:  # a fault: the other groups must not pay for it
            log.exception("the election in group %s failed", name)
            return []
        if result.retry_ms is None:
            return []
        return [max(result.retry_ms, self._clock.monotonic_ms() + RETRY_MS)]

    async def elect(
        self, state: LeaderState, name: str, request: ElectionRequest
    ) -> ElectionResult:
        """Elect a master, store the result and tell the brokers. Raises CallRefused.

        A refusal by the rules is part of the result.
        """
        return await state.finish(self._elect(state, name, request))

    async def elect_designated(
        self, state: LeaderState, name: str, request: ElectionRequest
    ) -> ElectionResult:
        """Elect the broker that an operator names; waits until the master's lease is over.

        Where it may lack acknowledged messages it waits also until that broker has what the others
        have. Meanwhile the lease is not prolonged; it is again if that does not come about.
        """
        result = await self.elect(state, name, request)
        if result.retry_ms is None:
            return result
        until_ms = max(result.retry_ms, self._clock.monotonic_ms()) + CATCH_UP_MS
        state.withhold(name, until_ms + RETRY_MS)
        try:
            while result.retry_ms is not None:
                pause_ms = result.retry_ms - self._clock.monotonic_ms()
                await self._clock.sleep(pause_ms if pause_ms > 0 else RETRY_MS)
                if self._clock.monotonic_ms() >= until_ms:
                    break
                if request.unclean and (refused := _elected_since(state, result.group)):
                    return refused
                result = await self.elect(state, name, request)
        finally:
            state.withhold(name, self._clock.monotonic_ms())
        return result

    async def _elect(
        self, state: LeaderState, name: str, request: ElectionRequest
    ) -> ElectionResult:
        async with state.lock(name):
            group = state.group(name)
            if group is None or group.is_removed:
                remark = f"there is no broker of the name {name}"
                raise CallRefused(RefusalCode.BROKER_NEED_TO_BE_REGISTERED, remark)
            request = self._request(state, group, request)
            result = elect(group, request, self._facts(state, group))
            await state.save(name, result.group)
        self._report(name, group, result, election_reason(group, request))
        if result.refusal is None:
            self._tell(result.group)
        return result

    def _request(
        self, state: LeaderState, group: ReplicaGroup, request: ElectionRequest
    ) -> ElectionRequest:
        asker = request.asker
        live = self._liveness.live(group).get(asker) if asker is not None else None
        releases = live is not None and live.releases_lease
        return ElectionRequest(
            asker=asker,
            designated=request.designated,
            restarted=asker is not None and (releases or state.has_restarted(group.name, asker)),
            unclean=request.unclean or (self.elects_unclean and asker is None),
            epoch=request.epoch,
        )

    def _facts(self, state: LeaderState, group: ReplicaGroup) -> ElectionFacts:
        return ElectionFacts(
            live=self._liveness.candidates(group),
            lease=state.lease(group.name),
            now_ms=self._clock.monotonic_ms(),
            epoch_known=self.epoch_known(group.name),
        )

    def _report(self, name: str, group: ReplicaGroup, result: ElectionResult, reason: str) -> None:
        after = result.group
        self._report_missing(name, group, result.missing)
        if result.refusal is None:
            log.warning("group %s: broker %s leads in epoch %d: %s",
                        name, after.master, after.master_epoch, reason)  # fmt: skip
            if result.is_unclean:
                self._report_loss(name, after.master, group)
        elif after != group:
            log.error("group %s has no master: no member of its set %s lives",
                      name, sorted(after.in_sync))  # fmt: skip

    def _report_missing(self, name: str, group: ReplicaGroup, missing: int) -> None:
        """Log, once as long as it is so, that an election waits for members of the set."""
        if missing and missing != self._waiting.get(name):
            log.error(
                "group %s: nobody is elected: %d more of its set %s must be alive, since messages "
                "were acknowledged before all of it had them; see 'roquet cluster elect --unclean'",
                name, missing, sorted(group.in_sync),
            )  # fmt: skip
        self._waiting.pop(name, None)
        if missing:
            self._waiting[name] = missing

    def _report_loss(self, name: str, winner: int | None, group: ReplicaGroup) -> None:
        candidate = self._liveness.candidates(group).get(winner) if winner is not None else None
        end = "unknown" if candidate is None else f"{candidate.end:,}"
        log.error(
            "group %s: broker %s leads without all that its set %s had: acknowledged messages "
            "beyond position %s of the log are lost", name, winner, sorted(group.in_sync), end,
        )  # fmt: skip

    def _tell(self, group: ReplicaGroup) -> None:
        if self.notifies:
            live = self._liveness.live(group)
            self._notices.send(
                group, [one.address for key, one in group.replicas.items() if key in live]
            )


def _elected_since(state: LeaderState, before: ReplicaGroup) -> ElectionResult | None:
    """The refusal of an unclean election if somebody was elected since it was asked for.

    What that broker has need not be lost: the operator looks again. None: nobody was.
    """
    group = state.group(before.name)
    if group is None or group.master is None or group.master_epoch == before.master_epoch:
        return None
    remark = (
        f"Failed to elect a new master: broker {group.master} was elected in epoch"
        f" {group.master_epoch} meanwhile; look whether it leads, and ask again"
    )
    refusal = Refusal(RefusalCode.ELECT_MASTER_FAILED, remark)
    return ElectionResult(group=group, refusal=refusal)
