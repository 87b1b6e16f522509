"""Queue selection: in turn, by key, at random, nearby; brokers at fault are avoided."""

from collections.abc import Callable, Collection, Sequence

from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue
from roquet.rules.latency_penalty import BrokersToAvoid


def by_hash(hashed: int, count: int) -> int:
    """Index among `count` queues of a key with this Java hash code.

    Java takes the remainder first and its absolute value after, so the least integer, whose
    absolute value overflows, is safe. The remainder of absolute values is the same number.
    """
    if not count:
        raise _no_queue()
    return abs(hashed) % count


def by_random(random: float, count: int) -> int:
    """Index among `count` queues for a random number in [0, 1)."""
    if not count:
        raise _no_queue()
    return int(random * count)


def in_machine_room(
    queues: Sequence[MessageQueue], room: str, room_of_broker: Callable[[str], str | None]
) -> Sequence[MessageQueue]:
    """Queues of brokers in one machine room; all queues if the room has none."""
    rooms = {name: room_of_broker(name) for name in {queue.broker_name for queue in queues}}
    return [queue for queue in queues if rooms[queue.broker_name] == room] or queues


def next_queue(
    queues: Sequence[MessageQueue],
    turn: int,
    *,
    avoid: str | None = None,
    at_fault: BrokersToAvoid | None = None,
) -> tuple[MessageQueue, int]:
    """The queue whose turn it is, and the following turn.

    `avoid` names the broker that has just failed: its queues are skipped if another broker has any.
    `at_fault` says which brokers are at fault: brokers without a fault come first, then those that
    can be reached, then all, as if nothing were known. The caller keeps the turn; this function has
    no state.
    """
    if not queues:
        raise _no_queue()
    if at_fault is None and avoid is None:
        return queues[turn % len(queues)], turn + 1
    if at_fault is not None:
        for barred in (at_fault.out_of_use, at_fault.unreachable):
            if choice := _first(queues, turn, barred | {avoid}):
                return choice
    elif choice := _first(queues, turn, (avoid,)):
        return choice
    return queues[turn % len(queues)], turn + 1


def _first(
    queues: Sequence[MessageQueue], turn: int, barred: Collection[str | None]
) -> tuple[MessageQueue, int] | None:
    """The first queue from a turn on whose broker is not barred, and the following turn."""
    count = len(queues)
    for at in range(turn, turn + count):
        queue = queues[at % count]
        if queue.broker_name not in barred:
            return queue, at + 1
    return None


def _no_queue() -> UsageError:
    return UsageError("there is no queue to send to")
