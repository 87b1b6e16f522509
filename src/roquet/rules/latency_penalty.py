"""Latency penalties: how long sends avoid a broker that was slow or failed.

A broker that answers slowly, or not at all, is avoided for a while, as long as another broker can
be used. Source: MQFaultStrategy and LatencyFaultToleranceImpl of Apache RocketMQ's client, whose
answers are the golden vectors.
"""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

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
