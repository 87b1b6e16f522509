"""Timeline of a failover: states of brokers, acknowledgements and pauses, by pure functions.

Times are ms since the demo began.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import pairwise
from typing import Final

import msgspec

SILENT_MS: Final = 800
"""Without an answer for so long a broker counts as silent from its last answer on."""


class BrokerState(Enum):
    """State of a broker as its answers show it."""

    LEADS = "master"
    """It takes messages."""
    FENCED = "master without a lease"
    """It does not know of another master, and takes no messages."""
    FOLLOWS = "replica"


class BrokerSample(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of one broker at one time."""

    at_ms: int
    broker: str
    state: BrokerState
    epoch: int = 0
    """The latest of its log."""
    confirmed: int = 0
    """Messages that it shows to consumers: those that the sync-state set has."""
    in_sync: int = 0
    """Replicas in the sync-state set, by a master."""


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """A flight that a broker has acknowledged."""

    row: int
    queue_id: int
    offset: int
    at_ms: int
    broker: str


class MasterFault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of the master, and how senders got over it."""

    name: str
    """`killed`, `frozen` or `parted`."""
    at_ms: int
    mended_ms: int
    before: str
    """Broker that led."""
    after: str
    """Broker that acknowledged next; the same one if nobody took over."""
    pause_ms: int
    """Longest time without an acknowledgement."""


class StateSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Half-open time [start_ms, end_ms) in which a broker was in one state."""

    broker: str
    state: BrokerState
    start_ms: int
    end_ms: int


class FailoverTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was seen."""

    brokers: Sequence[str]
    arrived_ms: Sequence[int]
    """When each flight came to the producer."""
    acknowledged: Sequence[Acknowledgement]
    samples: Sequence[BrokerSample]
    faults: Sequence[MasterFault]
    moments: Sequence[tuple[int, str]]
    """Faults and mends, by time."""
    end_ms: int


def state_of(*, is_master: bool, takes_messages: bool) -> BrokerState:
    """State of a broker by what it says of itself and what it refuses."""
    if not is_master:
        return BrokerState.FOLLOWS
    return BrokerState.LEADS if takes_messages else BrokerState.FENCED


def leader(samples: Mapping[str, BrokerSample], now_ms: int) -> BrokerSample | None:
    """The latest answer of the broker that leads; None while none does.

    A master that was replaced may not know it yet: of several the one of the latest epoch leads.
    """
    leading = [
        sample
        for sample in samples.values()
        if sample.state is BrokerState.LEADS and now_ms - sample.at_ms < SILENT_MS
    ]
    return max(leading, key=lambda sample: sample.epoch, default=None)


def longest_pause(times_ms: Sequence[int], start_ms: int) -> int:
    """Longest time without an event from a time on; events before it do not count."""
    later = [start_ms, *sorted(ms for ms in times_ms if ms >= start_ms)]
    return max((after - before for before, after in pairwise(later)), default=0)


def state_spans(samples: Sequence[BrokerSample], end_ms: int) -> list[StateSpan]:
    """Spans of each broker's states; times in which it was silent are in none."""
    spans: list[StateSpan] = []
    for broker in sorted({sample.broker for sample in samples}):
        own = [sample for sample in samples if sample.broker == broker]
        for sample, following in zip(own, [*own[1:], None], strict=True):
            next_ms = end_ms if following is None else following.at_ms
            until_ms = next_ms if next_ms - sample.at_ms <= SILENT_MS else sample.at_ms
            _extend(spans, sample, until_ms)
    return [span for span in spans if span.end_ms > span.start_ms]


def _extend(spans: list[StateSpan], sample: BrokerSample, until_ms: int) -> None:
    """Add the time from a sample on, to the last span if that is of the same broker and state."""
    start_ms = sample.at_ms
    last = spans[-1] if spans else None
    if last and (last.broker, last.state, last.end_ms) == (sample.broker, sample.state, start_ms):
        start_ms = spans.pop().start_ms
    spans.append(
        StateSpan(broker=sample.broker, state=sample.state, start_ms=start_ms, end_ms=until_ms)
    )


def confirmed_curve(samples: Sequence[BrokerSample], broker: str) -> list[tuple[float, float]]:
    """Seconds and confirmed messages of one broker; NaN where it was silent, which cuts a curve."""
    curve: list[tuple[float, float]] = []
    before_ms: int | None = None
    for sample in samples:
        if sample.broker != broker:
            continue
        if before_ms is not None and sample.at_ms - before_ms > SILENT_MS:
            curve.append((before_ms / 1000, float("nan")))
        curve.append((sample.at_ms / 1000, float(sample.confirmed)))
        before_ms = sample.at_ms
    return curve
