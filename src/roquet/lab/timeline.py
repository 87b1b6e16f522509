"""Timeline: the facts of one history, drawn from its seed: membership changes and messages.

Times are whole microseconds, so sums are exact and a history gives the same row whether it is
simulated alone or among a thousand others.
"""

from bisect import bisect_right, insort
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from roquet.lab.scenario import LabScenario
from roquet.model.queue import MessageQueue
from roquet.rules.queue_selection import (
    BrokerFault,
    brokers_to_avoid,
    by_hash,
    next_queue,
    penalty_ms,
    updated_fault,
)
from roquet.wire.java_hash import hash_code

IntArray: TypeAlias = NDArray[np.int64]

MICROS_PER_MS: Final = 1_000

JOIN, LEAVE, DIE, GONE, REVIEW = "join", "leave", "die", "gone", "look"
"""Kinds of events: a member joins, closes or dies; the broker drops a dead member; LAG_WEIGHTED
reviews the lag."""

MemberEvent: TypeAlias = tuple[str, int]
"""A kind of event, and the number of the member, counted in the order of joining."""

CHANGE_SPAN: Final = (0.05, 0.95)
"""The part of a history in which changes happen: one at the very end would have no effect."""

NEVER: Final = 1 << 61
"""A time after all others."""


class TopicLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The topic's queues in order, which of them are slow, and the machine rooms of brokers."""

    queues: tuple[MessageQueue, ...]
    slow: tuple[bool, ...]
    rooms: tuple[str, ...]


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one history, the same for every strategy; times are in microseconds."""

    seed: int
    events: Sequence[tuple[int, Sequence[MemberEvent]]]
    names: Sequence[str]
    slow: Sequence[bool]
    """For each member whether it is slow."""
    spans: Sequence[tuple[int, int]]
    """When each member begins and ends to work."""
    commits: Sequence[int]
    """When each member first commits its progress; members differ."""
    sent: IntArray
    """When each message is sent; likewise the following arrays have one item for each message."""
    ready: IntArray
    """When it can be pulled: later than `sent` on a slow broker."""
    queue: IntArray
    key: IntArray
    """The number of its key; -1 for none."""
    work: IntArray
    """How long a member that is not slow handles it."""


def seed_of(study_seed: int, number: int) -> int:
    """The seed of a history, by its number (splitmix64's finalizer, so seeds are unrelated)."""
    mixed = (study_seed * 0x9E3779B97F4A7C15 + number * 0xD1342543DE82EF95 + 1) % 2**64
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
    return (mixed ^ mixed >> 31) >> 1


@lru_cache(maxsize=16)
def topic_layout(scenario: LabScenario) -> TopicLayout:
    """The queues broker by broker, as in a route; brokers are in two machine rooms by turns."""
    rooms = tuple(f"room{n + 1}" for n in range(min(scenario.brokers, 2)))
    size, larger = divmod(scenario.queues, scenario.brokers)
    queues: list[MessageQueue] = []
    slow: list[bool] = []
    named = sorted(
        (f"{rooms[n % len(rooms)]}@broker-{chr(ord('a') + n)}", n) for n in range(scenario.brokers)
    )
    for name, n in named:
        count = size + (n < larger)
        queues += [MessageQueue("Orders", name, number) for number in range(count)]
        slow += [n < scenario.slow_brokers] * count
    return TopicLayout(queues=tuple(queues), slow=tuple(slow), rooms=rooms)


def draw_timeline(scenario: LabScenario, seed: int) -> Timeline:
    """Draw the timeline of one history; equal seeds give equal timelines on every machine."""
    rng = np.random.Generator(np.random.PCG64(seed))
    members = _Membership(scenario, rng)
    sent = _send_times(scenario, rng)
    key, queue = _keys_and_queues(scenario, rng, sent)
    slow = np.array(topic_layout(scenario).slow, np.int64) * scenario.slow_broker_ms * MICROS_PER_MS
    normal = rng.standard_normal(scenario.messages) * scenario.sigma - scenario.sigma**2 / 2
    work = np.maximum(np.exp(normal) * (scenario.work_ms * MICROS_PER_MS), 1).astype(np.int64)
    return Timeline(
        seed=seed,
        events=members.events(),
        names=members.names,
        slow=members.slow,
        spans=members.spans,
        commits=members.commits,
        sent=sent,
        ready=sent + slow[queue],
        queue=queue,
        key=key,
        work=work,
    )


class _Membership:
    """Draws the members of one history, and when they join and leave."""

    def __init__(self, scenario: LabScenario, rng: np.random.Generator) -> None:
        self._scenario = scenario
        count = scenario.members + scenario.joins + scenario.restarts
        self._chances = rng.random(scenario.changes + 1).tolist()
        self._hosts = rng.integers(0, 1 << 24, count).tolist()
        self._phases = rng.integers(0, scenario.times.save_ms * MICROS_PER_MS, count).tolist()
        self.names: list[str] = []
        self.slow: list[bool] = []
        self.spans: list[tuple[int, int]] = []
        self.commits: list[int] = []
        self._events: dict[int, list[MemberEvent]] = {}
        self._at_work: list[int] = []
        self._coming: list[tuple[int, int]] = []
        """Members that will join, as sorted pairs of time and number."""
        for number in range(scenario.members):
            self._at_work.append(self._come(0, slow=number < scenario.slow_members))
        for at, kind in self._planned(rng):
            self._apply(at, kind)

    def events(self) -> list[tuple[int, Sequence[MemberEvent]]]:
        """Events by time, in order; the initial members are there from the start."""
        return sorted(self._events.items())

    def _planned(self, rng: np.random.Generator) -> list[tuple[int, str]]:
        """Times and kinds of change: random ones, and the steps of a rolling restart."""
        scenario, span = self._scenario, self._scenario.duration_ms * MICROS_PER_MS
        kinds = ["join"] * scenario.joins + ["leave"] * scenario.leaves
        kinds += ["kill"] * scenario.kills + ["crash"] * scenario.crashes
        kinds = [kinds[n] for n in rng.permutation(len(kinds))]
        first, last = (int(part * span) for part in CHANGE_SPAN)
        times = np.sort(rng.integers(first, last, len(kinds))).tolist()
        planned = list(zip(times, kinds, strict=True))
        for step in range(scenario.restarts):
            insort(planned, (first + (last - first) * step // scenario.restarts, "restart"))
        return planned

    def _apply(self, at: int, kind: str) -> None:
        while self._coming and self._coming[0][0] <= at:
            self._at_work.append(self._coming.pop(0)[1])
        if kind == "join":
            self._join(at)
            return
        # The last member stays: a group without members says nothing about balance.
        if len(self._at_work) < 2:
            return
        times = self._scenario.times
        if kind == "restart":
            self._restart(at)
            return
        place = int(self._chances.pop() * len(self._at_work))
        delay = {"leave": None, "kill": times.killed_ms, "crash": times.silent_ms}[kind]
        self._go(at, self._at_work[place], delay)

    def _restart(self, at: int) -> None:
        """The oldest member goes, and later another one with a new name joins in its place."""
        scenario = self._scenario
        member = self._at_work[0]
        self._go(at, member, scenario.times.killed_ms if scenario.restarts_killed else None)
        self._join(at + scenario.restart_ms * MICROS_PER_MS, slow=self.slow[member])

    def _go(self, at: int, member: int, delay_ms: int | None) -> None:
        """A member leaves; or it dies, and the broker drops it after a delay."""
        self._at_work.remove(member)
        self.spans[member] = (self.spans[member][0], at)
        if delay_ms is None:
            self._note(at, LEAVE, member)
        else:
            self._note(at, DIE, member)
            self._note(at + delay_ms * MICROS_PER_MS, GONE, member)

    def _join(self, at: int, *, slow: bool = False) -> None:
        number = self._come(at, slow=slow)
        self._note(at, JOIN, number)
        insort(self._coming, (at, number))

    def _come(self, at: int, *, slow: bool) -> int:
        number = len(self.names)
        host = self._hosts[number]
        room = number % len(topic_layout(self._scenario).rooms) + 1
        address = f"10.{host >> 16}.{host >> 8 & 255}.{host & 255}"
        self.names.append(f"{address}@room{room}-{host % 30_000 + 1}#{number:06d}")
        self.slow.append(slow)
        self.spans.append((at, NEVER))
        self.commits.append(at + self._phases[number])
        return number

    def _note(self, at: int, kind: str, member: int) -> None:
        self._events.setdefault(at, []).append((kind, member))


def room_of_member(name: str) -> str:
    """The machine room in a member's name."""
    return name.partition("@")[2].partition("-")[0]


def _send_times(scenario: LabScenario, rng: np.random.Generator) -> IntArray:
    """When messages are sent: at random, with the scenario's rhythm."""
    chances = np.sort(rng.random(scenario.messages))
    if scenario.rhythm:
        edges = np.cumsum((0.0, *scenario.rhythm))
        parts = np.linspace(0, 1, len(edges))
        chances = np.interp(chances, edges / edges[-1], parts)
    return (chances * (scenario.duration_ms * MICROS_PER_MS)).astype(np.int64)


def _keys_and_queues(
    scenario: LabScenario, rng: np.random.Generator, sent: IntArray
) -> tuple[IntArray, IntArray]:
    """The key and the queue of each message."""
    if scenario.keyed:
        likely, places = _key_distribution(scenario)
        ranks = np.searchsorted(likely, rng.random(scenario.messages), "right")
        # The frequent keys differ between histories, and with them the queues they go to.
        key = (ranks + int(rng.integers(len(places)))) % len(places)
        return key, places[key]
    key = np.full(scenario.messages, -1, np.int64)
    turn = int(rng.integers(scenario.queues))
    if scenario.slow_brokers:
        return key, _avoiding_slow_brokers(scenario, turn, sent)
    # `next_queue` without slow brokers: one queue after the other.
    return key, (turn + np.arange(scenario.messages)) % scenario.queues


@lru_cache(maxsize=16)
def _key_distribution(scenario: LabScenario) -> tuple[NDArray[np.float64], IntArray]:
    """The cumulative probability of the keys, and the queue of each key."""
    if scenario.key_weights:
        weights = np.array(scenario.key_weights, np.float64)
    else:
        weights = np.arange(1, scenario.keys + 1, dtype=np.float64) ** -scenario.zipf
    summed = np.cumsum(weights)
    places = [by_hash(hash_code(f"key-{n}"), scenario.queues) for n in range(len(weights))]
    return summed / summed[-1], np.array(places, np.int64)


def _avoiding_slow_brokers(scenario: LabScenario, turn: int, sent: IntArray) -> IntArray:
    """The queues of a producer that avoids brokers that were slow, until their penalty is over."""
    of = topic_layout(scenario)
    place = {queue: number for number, queue in enumerate(of.queues)}
    slow = {queue.broker_name for queue, is_slow in zip(of.queues, of.slow, strict=True) if is_slow}
    latency = scenario.slow_broker_ms
    out_ms = penalty_ms(latency)
    faults: dict[str, BrokerFault] = {}
    pending: list[tuple[int, str]] = []
    """Pending replies: when they arrive, and from which broker."""
    chosen: list[int] = []
    for now_us in sent.tolist():
        now_ms = now_us // MICROS_PER_MS
        known = bisect_right(pending, (now_ms, "~"))
        for at_ms, name in pending[:known]:
            faults[name] = updated_fault(faults.get(name), latency, out_ms, at_ms)
        del pending[:known]
        queue, turn = next_queue(of.queues, turn, at_fault=brokers_to_avoid(faults, now_ms))
        if queue.broker_name in slow:
            pending.append((now_ms + latency, queue.broker_name))
        chosen.append(place[queue])
    return np.array(chosen, np.int64)
