"""Queues that several members pop from: who works on which.

Popping balances by the message, so a queue may have several members. Either all of them work on
everything, or each on its own share and on those of the next few members.
"""

from collections.abc import Sequence

from roquet.model.queue import MessageQueue
from roquet.rules.allocate import GroupAssignment, MessageQueues

ANY_QUEUE = -1
"""The queue id that stands for all queues of a broker."""


def is_shared_by_all(members: int, shared: int) -> bool:
    """Whether so many queues to share make each member work on all of them.

    The rule of the genuine broker: none at all, or as many as there are others.
    """
    return shared <= 0 or shared >= members - 1


def all_queues(queues: MessageQueues) -> MessageQueues:
    """One address for each broker: its queues, whichever they are."""
    brokers = sorted({(queue.topic, queue.broker_name) for queue in queues})
    return [MessageQueue(topic, broker, ANY_QUEUE) for topic, broker in brokers]


def member_pop_queues(
    member: str, queues: MessageQueues, members: Sequence[str], shares: GroupAssignment, shared: int
) -> MessageQueues:
    """What a member pops from: its share and those of the `shared` members behind it in the list.

    With more members than queues each has one, by its place, so that nobody is left without. Queues
    and members are sorted; the shares are those of pulling. Somebody who is not listed has nothing.
    """
    if member not in members:
        return ()
    if is_shared_by_all(len(members), shared):
        return all_queues(queues)
    place = list(members).index(member)
    if len(members) > len(queues):
        return [queues[place % len(queues)]]
    workers = [members[(place + step) % len(members)] for step in range(shared + 1)]
    return [queue for worker in workers for queue in shares.get(worker, ())]
