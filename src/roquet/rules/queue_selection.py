"""Queue selection: in turn, by key, at random, nearby; brokers that were slow are avoided.

Source of the penalties: MQFaultStrategy and LatencyFaultToleranceImpl of Apache RocketMQ's client.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue

LATENCIES_MS: Final = (50, 100, 550, 1_800, 3_000, 5_000, 15_000)
"""Lower bounds of latency; the penalty at the same index applies."""

PENALTIES_MS: Final = (0, 0, 2_000, 5_000, 6_000, 10_000, 30_000)
"""How long a broker is avoided."""

ERROR_LATENCY_MS: Final = 10_000
"""An error counts as a reply with this latency."""


class BrokerFault(msgspec.Struct, frozen=True):
    """Last latency and penalty of one broker."""

    latency_ms: int
    until_ms: int
    """The broker is avoided before this time."""
    reachable: bool = True


BrokerFaults: TypeAlias = Mapping[str, BrokerFault]
"""By broker name; a broker that is missing has no penalty."""


class BrokersToAvoid(msgspec.Struct, frozen=True):
    """Brokers to avoid: those with a penalty, and those that cannot be reached."""

    out_of_use: frozenset[str]
    unreachable: frozenset[str]


def penalty_ms(latency_ms: int, *, failed: bool = False) -> int:
    """How long to avoid a broker that took this long, or failed."""
    counted = ERROR_LATENCY_MS if failed else latency_ms
    index = bisect_right(LATENCIES_MS, counted)
    return PENALTIES_MS[index - 1] if index else 0


def updated_fault(
    old: BrokerFault | None, latency_ms: int, out_ms: int, now_ms: int, *, reachable: bool = True
) -> BrokerFault:
    """State of a broker after one more reply; a reply never shortens a penalty."""
    until_ms = 0 if old is None else old.until_ms
    if out_ms > 0:
        until_ms = max(until_ms, now_ms + out_ms)
    return BrokerFault(latency_ms, until_ms, reachable)


def is_in_use(faults: BrokerFaults, name: str, now_ms: int) -> bool:
    """Whether a broker has no penalty now."""
    fault = faults.get(name)
    return fault is None or now_ms >= fault.until_ms


def is_reachable(faults: BrokerFaults, name: str) -> bool:
    """Whether a broker answered when it was asked last."""
    fault = faults.get(name)
    return fault is None or fault.reachable


def brokers_to_avoid(faults: BrokerFaults, now_ms: int) -> BrokersToAvoid | None:
    """Brokers to avoid now; None if there are none."""
    out = frozenset(name for name, fault in faults.items() if now_ms < fault.until_ms)
    unreachable = frozenset(name for name, fault in faults.items() if not fault.reachable)
    return BrokersToAvoid(out, unreachable) if out or unreachable else None


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
