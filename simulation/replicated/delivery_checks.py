"""Checks of a replicated group's deliveries, once it has healed and everything was due.

undelivered   a message that was acknowledged for later, or committed, is not in its topic
early         it came before its time
rolled-back   a message was delivered whose transaction was rolled back
unhandled     an order was neither handled by the group that pops, nor given up as a dead letter

A message may be there twice: each delivery is at least once.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from typing import Final

import msgspec

from roquet.model.names import dlq_topic
from roquet.wire.records.record import Record
from simulation.replicated.deliveries import LATER, POPPERS
from simulation.replicated.history import DeferredMessage

EARLY_MS: Final = 1
"""Ms by which a delivery may seem to be early: times are read in whole ms."""


class DeliveredMessages(msgspec.Struct, frozen=True):
    """Deliveries in the log of a healed group's master."""

    later: Mapping[str, Sequence[int]]
    """Times in ms, by the body of the deferred message."""
    dead: Set[str]
    """Bodies of dead letters."""


class DeliveryOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the checks read."""

    deferred: Mapping[str, DeferredMessage]
    rolled_back: Set[str]
    acknowledged: Collection[str]
    """Bodies of orders."""
    settled: Set[str]
    """Bodies of orders that a consumer has popped and acknowledged."""
    stored: DeliveredMessages
    is_in_time: bool
    """Whether no broker's clock was wrong."""


def delivered_messages(records: Sequence[Record], start_ms: int) -> DeliveredMessages:
    """The deliveries of a log; `start_ms` is the wall time of the start."""
    later = defaultdict[str, list[int]](list)
    dead = set[str]()
    for record in records:
        if record.topic == LATER:
            later[record.body.decode()].append(record.stored_ms - start_ms)
        elif record.topic == dlq_topic(POPPERS):
            dead.add(record.body.decode())
    return DeliveredMessages(later, dead)


def findings(outcome: DeliveryOutcome) -> list[str]:
    """Every broken promise."""
    return [*undelivered(outcome), *early(outcome), *rolled_back(outcome), *unhandled(outcome)]


def undelivered(outcome: DeliveryOutcome) -> Iterator[str]:
    """Messages that never came."""
    for message in outcome.deferred.values():
        if message.body not in outcome.stored.later:
            yield (
                f"undelivered: {message.body} was acknowledged by {message.host} at "
                f"{message.at_ms} for {message.due_ms}, and never came"
            )


def early(outcome: DeliveryOutcome) -> Iterator[str]:
    """Messages that came too early."""
    for message in outcome.deferred.values() if outcome.is_in_time else ():
        first_ms = min(outcome.stored.later.get(message.body, [message.due_ms]))
        if first_ms < message.due_ms - EARLY_MS:
            yield f"early: {message.body} came at {first_ms}, and was due at {message.due_ms}"


def rolled_back(outcome: DeliveryOutcome) -> Iterator[str]:
    """Messages that must not have come."""
    for body in sorted(outcome.rolled_back & outcome.stored.later.keys()):
        yield f"rolled-back: {body} was delivered"


def unhandled(outcome: DeliveryOutcome) -> Iterator[str]:
    """Orders that the group which pops has never handled."""
    for body in outcome.acknowledged:
        if body not in outcome.settled and body not in outcome.stored.dead:
            yield f"unhandled: {body} was never popped, or never came again"
