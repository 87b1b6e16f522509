"""Measures: one row of numbers for each history and strategy, computed for many at a time."""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from roquet.lab.attempts import Attempts, QueuePauses, SimulatedMessages
from roquet.lab.scenario import LabScenario
from roquet.lab.timeline import MICROS_PER_MS, NEVER, IntArray, Timeline

SECOND_US: Final = 1_000_000
BURST_US: Final = 5 * SECOND_US
"""The window of the peak rate after a pause; a shorter one would hold few messages."""

FloatArray = NDArray[np.float64]


class HistoryMeasures(msgspec.Struct, frozen=True, kw_only=True):
    """The measures of one history under one strategy; None where one does not apply.

    "Over time" means the average weighted by duration.
    """

    scenario: str = ""
    history: int = 0
    strategy: str = ""
    mode: str = ""
    changes: int
    """Members that joined or left."""
    moved: int
    """Queues that changed their owner, in all changes together."""
    moved_least: int
    """The fewest moves that would have kept shares even at each change."""
    moved_fair: float
    """1/n of the queues, n being the members, summed over the changes."""
    strayed: int
    """Queues that moved between two members that were there before and after."""
    spread_max: int
    """The largest share minus the smallest, in queues, after any change."""
    queues_max_mean: float | None
    """The largest share of queues over the mean, over time."""
    queues_cv: float | None
    """The coefficient of variation of the shares, over time."""
    load_max_mean: float
    """Messages per second of the busiest member, over the mean of all members."""
    load_cv: float
    """The coefficient of variation of the members' messages per second."""
    idle_members: float
    """Members without a queue to take messages from, over time."""
    spare_members: float
    """Members beyond the number of queues, over time."""
    unowned_share: float
    """The part of the queues without an owner, over time."""
    paused_s: float
    """Seconds in which queues paused, added up over all queues."""
    pause_max_s: float
    """The longest pause."""
    doubled: float
    """The share of messages that were begun more than once."""
    burst: float | None
    """The highest rate in the five seconds after a pause, over the mean rate; None for no pause."""
    disordered: float
    """The share of messages begun before an earlier one of the same key had ended."""
    lost_work: float
    """The share of the members' time in which they had nothing to do while messages waited."""
    slow_latency: float | None
    """The mean latency of a slow member's messages, over that of the others."""
    p50_ms: float
    """Latency, from the send until the message was handled: median, 99th percentile, maximum."""
    p99_ms: float
    max_ms: float
    stranded: int
    """Messages that no member handled."""


MeasureColumns: TypeAlias = dict[str, Sequence[Any]]
"""Fields of `HistoryMeasures`, each with a value for every history."""


def compute_measures(
    scenario: LabScenario,
    timelines: Sequence[Timeline],
    messages: SimulatedMessages,
    counters: MeasureColumns,
    attempts: Attempts,
    pauses: QueuePauses,
) -> MeasureColumns:
    """Compute all measures of the histories of one scenario under one strategy.

    `counters` are those of members and queues, which are counted during the simulation.
    """
    first = attempts.first(len(messages.sent))
    seen = _Histories(scenario, timelines, messages, attempts)
    return {
        **counters,
        **_load_balance(seen),
        **_pause_seconds(seen, pauses),
        "doubled": _doubled_share(seen),
        "burst": _burst_ratio(seen, pauses),
        "disordered": _disordered_share(seen, first.begin, first.end),
        "lost_work": _lost_work(seen, first.begin),
        **_latencies(seen, first.end, first.member),
    }


class _Histories:
    """The input of all measures, as arrays over histories, members, messages and attempts."""

    def __init__(
        self,
        scenario: LabScenario,
        timelines: Sequence[Timeline],
        messages: SimulatedMessages,
        attempts: Attempts,
    ) -> None:
        self.scenario, self.messages, self.attempts = scenario, messages, attempts
        self.histories = len(timelines)
        self.members = max(len(timeline.names) for timeline in timelines)
        self.end = scenario.duration_ms * MICROS_PER_MS
        spans = np.zeros((self.histories, self.members, 2), np.int64)
        self.slow = np.zeros((self.histories, self.members), bool)
        for number, timeline in enumerate(timelines):
            spans[number, : len(timeline.spans)] = timeline.spans
            self.slow[number, : len(timeline.slow)] = timeline.slow
        self.spans = np.minimum(spans, self.end)
        self.whose = np.repeat(np.arange(self.histories), messages.count)
        self.history = attempts.message // messages.count

    def over_messages(self, flags: NDArray[np.bool_]) -> FloatArray:
        """The share of each history's messages for which a flag is set."""
        shares: FloatArray = flags.reshape(self.histories, -1).mean(axis=1)
        return shares


def _load_balance(seen: _Histories) -> dict[str, list[float]]:
    """Balance of the members' messages per second; members there for under 5 % do not count."""
    place = seen.history * seen.members + seen.attempts.member
    size = seen.histories * seen.members
    begun = np.bincount(place[seen.attempts.begin < seen.end], minlength=size)
    spans = seen.spans[:, :, 1] - seen.spans[:, :, 0]
    counts = spans >= seen.end // 20
    # Where no member was there long enough, all count.
    counts |= ~counts.any(axis=1, keepdims=True) & (spans > 0)
    rate = np.where(counts, begun.reshape(spans.shape) / np.maximum(spans, 1), 0)
    number = counts.sum(axis=1)
    mean = rate.sum(axis=1) / number
    square = (np.where(counts, rate - mean[:, None], 0) ** 2).sum(axis=1) / number
    mean = np.maximum(mean, 1e-12)
    return {
        "load_max_mean": (rate.max(axis=1) / mean).tolist(),
        "load_cv": (np.sqrt(square) / mean).tolist(),
    }


def _pause_seconds(seen: _Histories, pauses: QueuePauses) -> dict[str, list[float]]:
    begin, end = np.minimum(pauses.begin, seen.end), np.minimum(pauses.end, seen.end)
    total = np.bincount(pauses.history, end - begin, seen.histories)
    longest = np.zeros(seen.histories, np.int64)
    np.maximum.at(longest, pauses.history, end - begin)
    return {"paused_s": (total / SECOND_US).tolist(), "pause_max_s": (longest / SECOND_US).tolist()}


def _doubled_share(seen: _Histories) -> list[float]:
    begun = np.bincount(seen.attempts.message, minlength=len(seen.messages.sent))
    shares: list[float] = seen.over_messages(begun > 1).tolist()
    return shares


def _burst_ratio(seen: _Histories, pauses: QueuePauses) -> list[float | None]:
    """The most messages begun in BURST_US after the end of a pause, over their mean number."""
    span = max(int(seen.attempts.begin.max(initial=0)), int(pauses.end.max(initial=0)), seen.end)
    span += BURST_US + 1
    begun = np.sort(seen.history * span + seen.attempts.begin)
    start = pauses.history * span + pauses.end
    count = np.searchsorted(begun, start + BURST_US) - np.searchsorted(begun, start)
    count = np.where(pauses.end < seen.end, count, -1)
    most = np.full(seen.histories, -1)
    np.maximum.at(most, pauses.history, count)
    mean = seen.messages.count / seen.end * BURST_US
    return [None if m < 0 else m / mean for m in most.tolist()]


def _disordered_share(seen: _Histories, begin: IntArray, end: IntArray) -> list[float]:
    """The share of messages begun while an earlier one of their key had not ended."""
    key = seen.messages.key
    if key[0] < 0:
        return [0.0] * seen.histories
    handled = np.flatnonzero(end < NEVER)
    line = seen.whose[handled] * (int(key.max()) + 1) + key[handled]
    order = np.argsort(line, kind="stable")
    handled, line = handled[order], line[order]
    first = np.diff(line, prepend=-1) != 0
    # A running maximum of ends, kept apart by lifting each line above the one before it.
    lift = np.cumsum(first) * (int(end[handled].max(initial=0)) + 1)
    latest = np.maximum.accumulate(end[handled] + lift)
    before = np.roll(latest, 1) - lift
    flags = np.zeros(len(key), bool)
    flags[handled] = ~first & (begin[handled] < before)
    shares: list[float] = seen.over_messages(flags).tolist()
    return shares


def _lost_work(seen: _Histories, begin: IntArray) -> list[float]:
    """Member time that was idle while messages waited, over all members' time.

    At each moment no more members count as idle than messages wait.
    """
    attempts, spans = seen.attempts, seen.spans.reshape(-1, 2)
    there = np.repeat(np.arange(seen.histories), seen.members)
    whose = np.concatenate([seen.whose, seen.whose, seen.history, seen.history, there, there])
    at = np.concatenate(
        [seen.messages.ready, begin, attempts.begin, attempts.end, spans[:, 0], spans[:, 1]]
    )
    at = np.minimum(at, seen.end)
    message, attempt, member = (
        np.ones(len(begin), int),
        np.ones(len(attempts.begin), int),
        len(there),
    )
    waits = np.concatenate([message, -message, 0 * attempt, 0 * attempt, np.zeros(2 * member, int)])
    idle = np.ones(member, int)
    idles = np.concatenate([0 * message, 0 * message, -attempt, attempt, idle, -idle])
    order = np.argsort(whose * (seen.end + 1) + at)
    whose, at = whose[order], at[order]
    # Both sums return to 0 at the end of each history, so they run on into the next one.
    waiting, free = np.cumsum(waits[order]), np.cumsum(idles[order])
    span = np.diff(at, append=0)
    span[np.flatnonzero(np.diff(whose, append=-1))] = 0
    lost = np.bincount(whose, np.clip(np.minimum(waiting, free), 0, None) * span, seen.histories)
    there_us = (seen.spans[:, :, 1] - seen.spans[:, :, 0]).sum(axis=1)
    shares: list[float] = (lost / there_us).tolist()
    return shares


def _latencies(seen: _Histories, end: IntArray, member: IntArray) -> dict[str, list[float | None]]:
    taken = np.where(end < NEVER, end - seen.messages.sent, NEVER).reshape(seen.histories, -1)
    ordered = np.sort(taken, axis=1)
    handled = (taken < NEVER).sum(axis=1)
    rank = {"p50_ms": 50, "p99_ms": 99, "max_ms": 100}
    latencies: dict[str, list[float | None]] = {
        name: _percentile_ms(ordered, np.maximum(-(-handled * percent // 100), 1) - 1, handled)
        for name, percent in rank.items()
    }
    latencies["slow_latency"] = _slow_latency(seen, taken, member)
    latencies["stranded"] = (seen.messages.count - handled).tolist()
    return latencies


def _percentile_ms(ordered: IntArray, place: IntArray, handled: IntArray) -> list[float | None]:
    latency_ms = np.take_along_axis(ordered, place[:, None], 1)[:, 0] / MICROS_PER_MS
    values: list[float | None] = np.where(handled > 0, latency_ms, 0.0).tolist()
    return values


def _slow_latency(seen: _Histories, taken: IntArray, member: IntArray) -> list[float | None]:
    if not seen.scenario.slow_members:
        return [None] * seen.histories
    by = member.reshape(seen.histories, -1)
    slow = np.take_along_axis(seen.slow, np.maximum(by, 0), 1) & (by >= 0)
    others = ~slow & (by >= 0)
    sums = [np.where(flags, taken, 0).sum(axis=1) for flags in (slow, others)]
    counts = [flags.sum(axis=1) for flags in (slow, others)]
    known = (counts[0] > 0) & (counts[1] > 0)
    means = [total / np.maximum(count, 1) for total, count in zip(sums, counts, strict=True)]
    ratio = means[0] / np.maximum(means[1], 1e-9)
    return [float(r) if k else None for r, k in zip(ratio, known, strict=True)]
