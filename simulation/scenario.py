"""Scenario: the cluster and the faults that a seed draws before anything runs.

Drawn whole beforehand, so that it can be printed, and so that a bug in the client or the broker
cannot change what happens to it. Each workload adds what is sent.
"""

from enum import Enum

import msgspec

from roquet.model.errors import UsageError


class Fault(Enum):
    """Events that a simulated cluster has to survive; the value is its text in findings."""

    JOIN = "joins"
    """A consumer joins the group."""
    LEAVE = "leaves"
    """A consumer stops in good order."""
    KILL = "is killed"
    """A consumer's process dies: the others see its connections end."""
    SILENCE = "falls silent"
    """A consumer's machine is gone: its connections stay open, and nothing comes."""
    PARTITION = "is parted from"
    """A consumer and a broker cannot reach each other."""
    SLOW = "is slow"
    """Bytes from and to a broker take long."""
    CRASH = "crashes"
    """A broker's process dies, and is started again after a while."""
    HEAL = "all heal"
    """Partitions and slow links end."""
    PRODUCER_CRASH = "the producer's process dies"
    """The producer's process dies; a new one takes over."""


class FaultEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A fault at a time.

    `consumer` and `broker` are any numbers: modulo the count of those that live then, they choose
    the one that it happens to.
    """

    at_ms: int
    """Since the start of the simulation, as all its times."""
    fault: Fault
    consumer: int = 0
    broker: int = 0
    down_ms: int = 0
    """Time until a broker that crashes is started again."""

    def __str__(self) -> str:
        return f"{self.at_ms} ms: {self.consumer} {self.fault.value} {self.broker}"


class ClusterScenario(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a scenario that is the same for every workload."""

    seed: int
    brokers: int
    queues: int
    """Of the topic, on each broker."""
    members: int
    """Consumers of the group at the start."""
    handling_ms: tuple[int, int]
    """Least and most time that a handler takes."""
    network_ms: tuple[int, int]
    """Least and most time that bytes are under way."""
    events: tuple[FaultEvent, ...]


def check_seed(seed: int) -> None:
    """Raise `UsageError` for a negative seed."""
    if seed < 0:
        raise UsageError(f"a seed is a number from 0 on, not {seed}")
