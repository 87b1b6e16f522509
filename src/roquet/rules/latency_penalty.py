"""A latency becomes a penalty; which brokers may be used now.

A broker that answers slowly, or not at all, is out of use for a while: sends go around it as long
as another one is in use. Source: MQFaultStrategy and LatencyFaultToleranceImpl of Apache RocketMQ's
client, whose answers are the golden vectors.
"""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

LATENCIES_MS: Final = (50, 100, 550, 1_800, 3_000, 5_000, 15_000)
"""From each of these on, the penalty at the same place is due."""

PENALTIES_MS: Final = (0, 0, 2_000, 5_000, 6_000, 10_000, 30_000)
"""For how long a broker is out of use."""

ERROR_LATENCY_MS: Final = 10_000
"""An error counts as an answer that took so long."""


class BrokerFault(msgspec.Struct, frozen=True):
    """What is known of one broker."""

    latency_ms: int
    until_ms: int
    """Out of use before this time."""
    reachable: bool = True


BrokerFaults: TypeAlias = Mapping[str, BrokerFault]
"""By broker name; of a broker that is not there nothing bad is known."""


class BrokersToAvoid(msgspec.Struct, frozen=True):
    """Which brokers to go around."""

    out_of_use: frozenset[str]
    unreachable: frozenset[str]


def penalty_ms(latency_ms: int, *, failed: bool = False) -> int:
    """For how long a broker is out of use that took so long, or failed."""
    counted = ERROR_LATENCY_MS if failed else latency_ms
    place = bisect_right(LATENCIES_MS, counted)
    return PENALTIES_MS[place - 1] if place else 0


def updated_fault(
    old: BrokerFault | None, latency_ms: int, out_ms: int, now_ms: int, *, reachable: bool = True
) -> BrokerFault:
    """What is known of a broker after one more answer; a penalty is never made shorter by it."""
    until_ms = 0 if old is None else old.until_ms
    if out_ms > 0:
        until_ms = max(until_ms, now_ms + out_ms)
    return BrokerFault(latency_ms, until_ms, reachable)


def is_in_use(faults: BrokerFaults, name: str, now_ms: int) -> bool:
    """Whether a broker has no penalty to sit out."""
    fault = faults.get(name)
    return fault is None or now_ms >= fault.until_ms


def is_reachable(faults: BrokerFaults, name: str) -> bool:
    """Whether a broker answered when it was last asked."""
    fault = faults.get(name)
    return fault is None or fault.reachable


def brokers_to_avoid(faults: BrokerFaults, now_ms: int) -> BrokersToAvoid | None:
    """Which brokers to go around now; None when there are none."""
    out = frozenset(name for name, fault in faults.items() if now_ms < fault.until_ms)
    unreachable = frozenset(name for name, fault in faults.items() if not fault.reachable)
    return BrokersToAvoid(out, unreachable) if out or unreachable else None
