"""Pop sharing: which queues a member pops from, when several members share queues.

Popping balances by the message, so a queue may have several members. Either every member works on
all queues, or each on its own share and on those of the next few members.
"""

from collections.abc import Sequence

from roquet.model.queue import MessageQueue
from roquet.rules.allocate import GroupAssignment, MessageQueues

ANY_QUEUE = -1
"""Queue id that stands for all queues of a broker."""


def is_shared_by_all(members: int, shared: int) -> bool:
    """Whether this number of shared queues makes each member work on all of them.

    Apache's rule: no number set, or as many as there are other members.
    """
    return shared <= 0 or shared >= members - 1


def all_queues(queues: MessageQueues) -> MessageQueues:
    """One address with ANY_QUEUE for each broker."""
    brokers = sorted({(queue.topic, queue.broker_name) for queue in queues})
    return [MessageQueue(topic, broker, ANY_QUEUE) for topic, broker in brokers]


def member_pop_queues(
    member: str, queues: MessageQueues, members: Sequence[str], shares: GroupAssignment, shared: int
) -> MessageQueues:
    """Queues that a member pops from: its share and those of the next `shared` members.

    With more members than queues each has one, by its index, so that nobody is left without. Queues
    and members are sorted; the shares are those of pulling. A member that is not listed has no
    queues.
    """
    if member not in members:
        return ()
    if is_shared_by_all(len(members), shared):
        return all_queues(queues)
    index = list(members).index(member)
    if len(members) > len(queues):
        return [queues[index % len(queues)]]
    sharing = [members[(index + step) % len(members)] for step in range(shared + 1)]
    return [queue for other in sharing for queue in shares.get(other, ())]
