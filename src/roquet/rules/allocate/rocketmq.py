"""AVG, AVG_BY_CIRCLE and CONFIG: RocketMQ's strategies by index and by fixed list."""

from collections.abc import Sequence

from roquet.rules.allocate.assignment import (
    FixedAssignment,
    GroupAssignment,
    MessageQueues,
    Strategy,
)


def average(queues: MessageQueues, members: Sequence[str]) -> GroupAssignment:
    """Consecutive queues to each member; shares differ by at most one, the first ones are larger.

    Eight queues, three members: 0 1 2 · 3 4 5 · 6 7.
    """
    size, larger = divmod(len(queues), len(members))
    shares: dict[str, MessageQueues] = {}
    start = 0
    for index, member in enumerate(members):
        end = start + size + (index < larger)
        # A member listed twice owns the share of its first index, as in Java.
        shares.setdefault(member, queues[start:end])
        start = end
    return shares


def circle(queues: MessageQueues, members: Sequence[str]) -> GroupAssignment:
    """Queues dealt like cards; shares differ by at most one, the first ones are larger.

    Eight queues, three members: 0 3 6 · 1 4 7 · 2 5. So each member has queues of every broker.
    """
    shares: dict[str, MessageQueues] = {}
    for index, member in enumerate(members):
        shares.setdefault(member, queues[index :: len(members)])
    return shares


def from_config(queues: MessageQueues) -> Strategy:
    """CONFIG: a fixed list of queues for this member, whatever queues and members exist.

    Nothing is guaranteed: it is the operator's task to make the members' lists complete. That
    includes the queues of the group's retry topic (`%RETRY%` and the group: one on each broker): a
    failed message is retried only if some member's list names its queue, as in Java.
    """
    return ConfigStrategy(tuple(queues))


class ConfigStrategy:
    """CONFIG with its list of queues."""

    def __init__(self, queues: MessageQueues) -> None:
        self.queues = queues

    def __call__(self, _queues: MessageQueues, members: Sequence[str]) -> GroupAssignment:
        """The list of queues, for every member."""
        return FixedAssignment(self.queues, members)


def leaves_out(strategy: Strategy | None, topic: str) -> bool:
    """Whether a strategy is a fixed list without a queue of this topic."""
    return isinstance(strategy, ConfigStrategy) and all(q.topic != topic for q in strategy.queues)
