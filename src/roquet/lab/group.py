"""Group: the members of one history as the broker knows them, and the owner of each queue."""

from bisect import bisect_left
from collections.abc import Sequence

from roquet.lab.decisions import (
    NO_LAG,
    NOBODY,
    AssignmentDecision,
    GroupChange,
    OwnerIndexes,
    decide,
)
from roquet.lab.scenario import LabScenario
from roquet.lab.timeline import DIE, JOIN, MICROS_PER_MS, REVIEW, MemberEvent, Timeline, TopicLayout
from roquet.model.queue import MessageQueue
from roquet.rules.balance.rebalance_cost import QueueLag, is_worth_moving


class SimulatedGroup:
    """Applies changes one by one, and counts moves and imbalance over time."""

    def __init__(
        self, strategy: str, layout: TopicLayout, timeline: Timeline, scenario: LabScenario
    ) -> None:
        self._strategy = strategy
        self._layout = layout
        self._timeline = timeline
        first = sorted((timeline.names[n], n) for n in range(scenario.members))
        self._names = [name for name, _ in first]
        self._numbers = [number for _, number in first]
        """Numbers of the members that the broker knows, in the order of their names."""
        self._end = scenario.duration_ms * MICROS_PER_MS
        self.changes = self.moved = self.least = self.strayed = 0
        self.spread_max = 0
        self.moved_fair = 0.0
        """1/n of the queues, n being the members, summed over the changes."""
        self._since = 0
        self.idle_us = self.spare_us = self.unowned_us = 0
        self.uneven_us = self.varied_us = 0.0
        self._decision = self._decide(GroupChange(owners=(NOBODY,) * len(layout.queues)))

    @property
    def queues(self) -> Sequence[MessageQueue]:
        """The topic's queues, in order."""
        return self._layout.queues

    @property
    def owners(self) -> list[int]:
        """The number of each queue's owner, or NOBODY."""
        numbers = self._numbers
        return [NOBODY if p == NOBODY else numbers[p] for p in self._decision.owners]

    def apply(self, at: int, events: Sequence[MemberEvent], lag: QueueLag = NO_LAG) -> bool:
        """Apply the events of one time; True when queues were reassigned."""
        is_reassigned = False
        for kind, member in events:
            if kind == DIE:
                continue
            self._accumulate(at)
            if kind == REVIEW:
                is_reassigned |= self._review(lag)
            else:
                self._change(kind, member, lag)
                is_reassigned = True
        return is_reassigned

    def finish(self) -> None:
        """Count the last decision until the end of the history."""
        self._accumulate(self._end)

    def _change(self, kind: str, member: int, lag: QueueLag) -> None:
        name, owners = self._timeline.names[member], self._decision.owners
        place = bisect_left(self._names, name)
        if kind == JOIN:
            self._names.insert(place, name)
            self._numbers.insert(place, member)
        among = len(self._names)
        if kind == JOIN:
            made = self._decide(GroupChange(owners=owners, newcomer=place), lag)
        else:
            made = self._decide(GroupChange(owners=owners, leaver=place), lag)
            del self._names[place], self._numbers[place]
        self._decision = made
        self.changes += 1
        self.moved += made.moved
        self.least += made.least
        self.strayed += made.strayed
        self.moved_fair += len(owners) / among
        self.spread_max = max(self.spread_max, made.spread)

    def _review(self, lag: QueueLag) -> bool:
        """Reassign by the current lag, where that is worth the moves."""
        owners = self._decision.owners
        made = self._decide(GroupChange(owners=owners), lag)
        if not made.moved or not is_worth_moving(
            self._shares(owners), self._shares(made.owners), lag
        ):
            return False
        self._decision = made
        self.moved += made.moved
        return True

    def _shares(self, owners: OwnerIndexes) -> dict[str, list[MessageQueue]]:
        shares: dict[str, list[MessageQueue]] = {}
        for queue, place in zip(self.queues, owners, strict=True):
            shares.setdefault(self._names[place], []).append(queue)
        return shares

    def _decide(self, change: GroupChange, lag: QueueLag = NO_LAG) -> AssignmentDecision:
        return decide(self._strategy, self._layout, self._names, change, lag)

    def _accumulate(self, at: int) -> None:
        """Add up the imbalance since the last call, weighted by its duration."""
        at = min(at, self._end)
        span, made = at - self._since, self._decision
        if not span:
            return
        self._since = at
        self.uneven_us += span * made.max_mean
        self.varied_us += span * made.cv
        self.idle_us += span * made.idle
        self.spare_us += span * max(len(self._names) - len(made.owners), 0)
        self.unowned_us += span * made.unowned
