"""Send retry: which failed sends are tried again, and at which broker; `backoff` has the pauses.

    failed send ──▶ network failure, TRANSIENT ──▶ any broker; the same one after a pause
                    OTHER_BROKER ────────────────▶ another broker
                    STALE_QUEUE ─────────────────▶ a queue of a fresh route
                    any other refusal ───────────▶ raised
    with replicas:  network failure, TRANSIENT ──▶ the next master, by a fresh route, until the
                                                   deadline

Source: `DefaultMQProducer.retryResponseCodes` of Apache RocketMQ 5, and GO_AWAY of its remoting
client. This layer does not import `wire.codes.ResponseCode`: a test compares the numbers.
"""

from collections.abc import Set
from enum import Enum, auto
from typing import Final

from roquet.model.errors import CallError, CallRefused

NOT_DONE: Final = frozenset({2, 14, 1500})
"""SYSTEM_BUSY, SERVICE_NOT_AVAILABLE, GO_AWAY: the broker has done nothing, and may accept the same
request in a moment."""

TRANSIENT: Final = NOT_DONE | {1}
"""Refusals that may pass: SYSTEM_ERROR as well, which leaves open whether anything was done."""

LESS_DURABLE: Final = frozenset({10, 11, 12})
"""FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT: the message is stored, less durably
than its broker promises, and a new master may lack it. Transient for the Spark sink, unless a write
accepts that."""

OTHER_BROKER: Final = frozenset({16, 17, 204, 205})
"""NO_PERMISSION, TOPIC_NOT_EXIST, NO_BUYER_ID, NOT_IN_CURRENT_UNIT: refusals that another broker
may not share."""

STALE_QUEUE: Final = frozenset({29})
"""INVALID_PARAMETER: the broker has no such queue, or the request is wrong in another way."""

STALE_ROUTE: Final = STALE_QUEUE | {17}
"""INVALID_PARAMETER, TOPIC_NOT_EXIST: refusals that an outdated route causes."""


class Retry(Enum):
    """Where another try of a failed send may succeed."""

    ANY_BROKER = auto()
    """At any broker, including the one that failed."""
    OTHER_BROKER = auto()
    """At any broker but the one that refused."""
    FRESH_ROUTE = auto()
    """At a queue of a fresh route, if that does not have the refused queue any more."""
    NOWHERE = auto()
    """At no broker: the refusal is final."""


def retry_of(error: CallError, transient: Set[int] = TRANSIENT) -> Retry:
    """Where another try may succeed after an error; `transient` has the refusals that may pass."""
    if not isinstance(error, CallRefused) or error.code in transient:
        return Retry.ANY_BROKER
    if error.code in OTHER_BROKER:
        return Retry.OTHER_BROKER
    return Retry.FRESH_ROUTE if error.code in STALE_QUEUE else Retry.NOWHERE


def is_transient(error: CallError, transient: Set[int] = TRANSIENT) -> bool:
    """Whether the same request may succeed at the same broker after a pause."""
    return retry_of(error, transient) is Retry.ANY_BROKER


def is_retryable(error: CallError) -> bool:
    """Whether another try may succeed without a fresh route."""
    return retry_of(error) in {Retry.ANY_BROKER, Retry.OTHER_BROKER}


def may_be_failover(error: CallError) -> bool:
    """Whether a broker that has replicas may be the master no more, or not yet.

    A fresh route names the master, or will soon. A replica refuses sends as a busy master does
    (SYSTEM_BUSY, SERVICE_NOT_AVAILABLE), and a new master with too few replicas in sync by
    SYSTEM_ERROR.
    """
    return is_transient(error)


def needs_fresh_route(error: CallError, *, has_replicas: bool = False) -> bool:
    """Whether the route may be outdated.

    The broker is gone, does not know topic or queue, or may not be the master of its replicas.
    """
    if has_replicas and may_be_failover(error):
        return True
    return not isinstance(error, CallRefused) or error.code in STALE_ROUTE
