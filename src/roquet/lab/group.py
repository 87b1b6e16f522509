"""Group: one history's members as the broker knows them, and who of them has which queue."""

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
from roquet.rules.balance.lag_facts import QueueLag, is_worth_moving


class SimulatedGroup:
    """Members and owners, from change to change; what is counted on the way."""

    def __init__(
        self, strategy: str, layout: TopicLayout, course: Timeline, scenario: LabScenario
    ) -> None:
        self._strategy = strategy
        self._layout = layout
        self._course = course
        first = sorted((course.names[n], n) for n in range(scenario.members))
        self._names = [name for name, _ in first]
        self._numbers = [number for _, number in first]
        """The members that the broker knows, in the order of their names."""
        self._end = scenario.duration_ms * MICROS_PER_MS
        self.changes = self.moved = self.least = self.strayed = 0
        self.spread_max = 0
        self.fair = 0.0
        """What 1/n of the queues would be, summed over changes."""
        self._since = 0
        self.idle_us = self.spare_us = self.unowned_us = 0
        self.uneven_us = self.varied_us = 0.0
        self._decision = self._decided(GroupChange(owners=(NOBODY,) * len(layout.queues)))

    @property
    def queues(self) -> Sequence[MessageQueue]:
        """The topic's, in order."""
        return self._layout.queues

    @property
    def owners(self) -> list[int]:
        """The number of each queue's owner."""
        numbers = self._numbers
        return [NOBODY if p == NOBODY else numbers[p] for p in self._decision.owners]

    def happen(self, at: int, events: Sequence[MemberEvent], lag: QueueLag = NO_LAG) -> bool:
        """Take what happens at a time; whether queues were divided anew."""
        divided = False
        for kind, member in events:
            if kind == DIE:
                continue
            self._weigh(at)
            if kind == REVIEW:
                divided |= self._looked(lag)
            else:
                self._changed(kind, member, lag)
                divided = True
        return divided

    def finish(self) -> None:
        """Weigh what was last decided, until the end."""
        self._weigh(self._end)

    def _changed(self, kind: str, member: int, lag: QueueLag) -> None:
        name, owners = self._course.names[member], self._decision.owners
        place = bisect_left(self._names, name)
        if kind == JOIN:
            self._names.insert(place, name)
            self._numbers.insert(place, member)
        among = len(self._names)
        if kind == JOIN:
            made = self._decided(GroupChange(owners=owners, came=place), lag)
        else:
            made = self._decided(GroupChange(owners=owners, went=place), lag)
            del self._names[place], self._numbers[place]
        self._decision = made
        self.changes += 1
        self.moved += made.moved
        self.least += made.least
        self.strayed += made.strayed
        self.fair += len(owners) / among
        self.spread_max = max(self.spread_max, made.spread)

    def _looked(self, lag: QueueLag) -> bool:
        """What waits may have changed: divide anew where that is worth it."""
        owners = self._decision.owners
        made = self._decided(GroupChange(owners=owners), lag)
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

    def _decided(self, change: GroupChange, lag: QueueLag = NO_LAG) -> AssignmentDecision:
        return decide(self._strategy, self._layout, self._names, change, lag)

    def _weigh(self, at: int) -> None:
        """How even it was since the last time, and for how long."""
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
