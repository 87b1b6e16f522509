"""AVG, AVG_BY_CIRCLE and CONFIG: shares by place in the list, and shares by decree."""

from collections.abc import Sequence

from roquet.rules.allocate.assignment import (
    FixedAssignment,
    GroupAssignment,
    MessageQueues,
    Strategy,
)


def average(queues: MessageQueues, members: Sequence[str]) -> GroupAssignment:
    """Neighbouring queues to one member; shares differ by one at most, the first ones are larger.

    Eight queues, three members: 0 1 2 · 3 4 5 · 6 7.
    """
    size, larger = divmod(len(queues), len(members))
    shares: dict[str, MessageQueues] = {}
    start = 0
    for place, member in enumerate(members):
        end = start + size + (place < larger)
        # A member listed twice owns what its first place gives, as in Java.
        shares.setdefault(member, queues[start:end])
        start = end
    return shares


def circle(queues: MessageQueues, members: Sequence[str]) -> GroupAssignment:
    """Queues dealt like cards; shares differ by one at most, the first ones are larger.

    Eight queues, three members: 0 3 6 · 1 4 7 · 2 5. So each member has queues of every broker.
    """
    shares: dict[str, MessageQueues] = {}
    for place, member in enumerate(members):
        shares.setdefault(member, queues[place :: len(members)])
    return shares


def from_config(queues: MessageQueues) -> Strategy:
    """CONFIG: this member has these queues, whatever the topic has and whoever else is there.

    Nothing is guaranteed: the members' lists are an operator's to make whole. That goes for the
    queues of the group's retry topic, too (`%RETRY%` and the group: one on each broker): a failed
    message comes again only where some member's list names its queue, as in Java.
    """
    return ConfigStrategy(tuple(queues))


class ConfigStrategy:
    """CONFIG, and the queues that it was told."""

    def __init__(self, queues: MessageQueues) -> None:
        self.queues = queues

    def __call__(self, _queues: MessageQueues, members: Sequence[str]) -> GroupAssignment:
        """The same for whoever asks."""
        return FixedAssignment(self.queues, members)


def leaves_out(strategy: Strategy | None, topic: str) -> bool:
    """Whether a strategy is a fixed list that names no queue of a topic."""
    return isinstance(strategy, ConfigStrategy) and all(q.topic != topic for q in strategy.queues)
