"""Which queue to send to: in turn, by key, by chance, nearby; around brokers at fault."""

from collections.abc import Callable, Collection, Sequence

from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue
from roquet.rules.latency_penalty import BrokersToAvoid


def by_hash(hashed: int, count: int) -> int:
    """The place among `count` queues of a key with this Java hash code.

    Java takes the remainder first and its absolute value after: so the least integer, which has no
    positive twin, is safe. Of absolute values the remainder is the same.
    """
    if not count:
        raise _no_queue()
    return abs(hashed) % count


def by_random(chance: float, count: int) -> int:
    """The place among `count` queues that a chance from 0 to 1 (without it) falls on."""
    if not count:
        raise _no_queue()
    return int(chance * count)


def in_machine_room(
    queues: Sequence[MessageQueue], room: str, room_of_broker: Callable[[str], str | None]
) -> Sequence[MessageQueue]:
    """The queues of brokers in one room; all of them when it has none."""
    rooms = {name: room_of_broker(name) for name in {queue.broker_name for queue in queues}}
    return [queue for queue in queues if rooms[queue.broker_name] == room] or queues


def next_queue(
    queues: Sequence[MessageQueue],
    turn: int,
    *,
    avoid: str | None = None,
    usable: BrokersToAvoid | None = None,
) -> tuple[MessageQueue, int]:
    """The queue whose turn it is, and the turn after it.

    `avoid` names the broker that has just failed: its queues are passed over when another broker
    has any. `usable` says which brokers are at fault: those in use come first, then those that can
    be reached, then all, as if nothing were known. The caller keeps the turn; nothing here is
    changed by a choice.
    """
    if not queues:
        raise _no_queue()
    if usable is None and avoid is None:
        return queues[turn % len(queues)], turn + 1
    if usable is not None:
        for barred in (usable.out_of_use, usable.unreachable):
            if found := _first(queues, turn, barred | {avoid}):
                return found
    elif found := _first(queues, turn, (avoid,)):
        return found
    return queues[turn % len(queues)], turn + 1


def _first(
    queues: Sequence[MessageQueue], turn: int, barred: Collection[str | None]
) -> tuple[MessageQueue, int] | None:
    """The first queue from a turn on whose broker is not barred, and the turn after it."""
    count = len(queues)
    for at in range(turn, turn + count):
        queue = queues[at % count]
        if queue.broker_name not in barred:
            return queue, at + 1
    return None


def _no_queue() -> UsageError:
    return UsageError("there is no queue to send to")
