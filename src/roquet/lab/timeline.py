"""Course: one history's facts, drawn from its seed: who comes and goes when, and which messages.

Times are whole microseconds from here on: sums of them are exact, so a history gives the same row
whether it is played alone or among a thousand others.
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
from roquet.rules.latency_penalty import BrokerFault, brokers_to_avoid, penalty_ms, updated_fault
from roquet.rules.queue_selection import by_hash, next_queue
from roquet.wire.java_hash import hash_code

IntArray: TypeAlias = NDArray[np.int64]

MICROS_PER_MS: Final = 1_000
"""Microseconds."""

JOIN, LEAVE, DIE, GONE, REVIEW = "join", "leave", "die", "gone", "look"
"""Members come, close, and die; the broker gives a dead one up; LAG_WEIGHTED looks again."""

MemberEvent: TypeAlias = tuple[str, int]
"""What happens, and to whom: the number of a member, in the order of their coming."""

CHANGE_SPAN: Final = (0.05, 0.95)
"""Changes happen within this part of a history: one at its very end would say nothing."""

NEVER: Final = 1 << 61
"""A time after everything."""


class TopicLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The topic: its queues in order, and which of them are slow."""

    queues: tuple[MessageQueue, ...]
    slow: tuple[bool, ...]
    rooms: tuple[str, ...]


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """What every strategy meets in one history."""

    seed: int
    moments: Sequence[tuple[int, Sequence[MemberEvent]]]
    names: Sequence[str]
    slow: Sequence[bool]
    """Which members are."""
    spans: Sequence[tuple[int, int]]
    """From when until when each member works."""
    commits: Sequence[int]
    """When each member saves its progress first; not all at the same moment."""
    sent: IntArray
    ready: IntArray
    """When it can be had: later than sent where the broker is slow."""
    queue: IntArray
    key: IntArray
    """-1 where there is none."""
    work: IntArray


def seed_of(study_seed: int, number: int) -> int:
    """The own seed of a history, by its number (splitmix64's finish: neighbours share nothing)."""
    mixed = (study_seed * 0x9E3779B97F4A7C15 + number * 0xD1342543DE82EF95 + 1) % 2**64
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
    return (mixed ^ mixed >> 31) >> 1


@lru_cache(maxsize=16)
def topic_layout(scenario: LabScenario) -> TopicLayout:
    """Neighbouring queues on one broker, as a route has them; brokers are in two rooms in turn."""
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
    """The course of one history; the same for the same seed, wherever it is drawn."""
    rng = np.random.Generator(np.random.PCG64(seed))
    cast = _Membership(scenario, rng)
    sent = _send_times(scenario, rng)
    key, queue = _keys_and_queues(scenario, rng, sent)
    slow = np.array(topic_layout(scenario).slow, np.int64) * scenario.slow_broker_ms * MICROS_PER_MS
    normal = rng.standard_normal(scenario.messages) * scenario.sigma - scenario.sigma**2 / 2
    work = np.maximum(np.exp(normal) * (scenario.work_ms * MICROS_PER_MS), 1).astype(np.int64)
    return Timeline(
        seed=seed,
        moments=cast.moments(),
        names=cast.names,
        slow=cast.slow,
        spans=cast.spans,
        commits=cast.commits,
        sent=sent,
        ready=sent + slow[queue],
        queue=queue,
        key=key,
        work=work,
    )


class _Membership:
    """The members of one history, and when they come and go."""

    def __init__(self, scenario: LabScenario, rng: np.random.Generator) -> None:
        self._scenario = scenario
        comers = scenario.members + scenario.joins + scenario.restarts
        self._chances = rng.random(scenario.changes + 1).tolist()
        self._hosts = rng.integers(0, 1 << 24, comers).tolist()
        self._phases = rng.integers(0, scenario.times.save_ms * MICROS_PER_MS, comers).tolist()
        self.names: list[str] = []
        self.slow: list[bool] = []
        self.spans: list[tuple[int, int]] = []
        self.commits: list[int] = []
        self._events: dict[int, list[MemberEvent]] = {}
        self._at_work: list[int] = []
        self._coming: list[tuple[int, int]] = []
        """When members will be there, and which."""
        for number in range(scenario.members):
            self._at_work.append(self._come(0, slow=number < scenario.slow_members))
        for at, kind in self._planned(rng):
            self._happen(at, kind)

    def moments(self) -> list[tuple[int, Sequence[MemberEvent]]]:
        """What happens together, in the order of time; the first members are there from 0."""
        return sorted(self._events.items())

    def _planned(self, rng: np.random.Generator) -> list[tuple[int, str]]:
        """Kinds of change at their times: by chance, and the steps of a rolling restart."""
        given, span = self._scenario, self._scenario.duration_ms * MICROS_PER_MS
        kinds = ["join"] * given.joins + ["leave"] * given.leaves + ["kill"] * given.kills
        kinds += ["crash"] * given.crashes
        kinds = [kinds[n] for n in rng.permutation(len(kinds))]
        first, last = (int(part * span) for part in CHANGE_SPAN)
        times = np.sort(rng.integers(first, last, len(kinds))).tolist()
        planned = list(zip(times, kinds, strict=True))
        for step in range(given.restarts):
            insort(planned, (first + (last - first) * step // given.restarts, "restart"))
        return planned

    def _happen(self, at: int, kind: str) -> None:
        while self._coming and self._coming[0][0] <= at:
            self._at_work.append(self._coming.pop(0)[1])
        if kind == "join":
            self._join(at)
            return
        # Nobody would be left to take over: a group without members says nothing of balance.
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
        """The one that has been there longest goes, and somebody with another name comes back."""
        given = self._scenario
        member = self._at_work[0]
        self._go(at, member, given.times.killed_ms if given.restarts_killed else None)
        self._join(at + given.restart_ms * MICROS_PER_MS, slow=self.slow[member])

    def _go(self, at: int, member: int, delay_ms: int | None) -> None:
        """A member leaves, or dies and is given up after a delay."""
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
    """The room that a member's name tells."""
    return name.partition("@")[2].partition("-")[0]


def _send_times(scenario: LabScenario, rng: np.random.Generator) -> IntArray:
    """When messages are sent: by chance, in the scenario's rhythm."""
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
        # In each history other keys are the frequent ones: where those go is chance, too.
        key = (ranks + int(rng.integers(len(places)))) % len(places)
        return key, places[key]
    key = np.full(scenario.messages, -1, np.int64)
    turn = int(rng.integers(scenario.queues))
    if scenario.slow_brokers:
        return key, _avoiding_slow_brokers(scenario, turn, sent)
    # `next_queue` with nobody at fault: one queue after the other.
    return key, (turn + np.arange(scenario.messages)) % scenario.queues


@lru_cache(maxsize=16)
def _key_distribution(scenario: LabScenario) -> tuple[NDArray[np.float64], IntArray]:
    """How likely each key is, summed up, and the queue of each."""
    if scenario.key_weights:
        weights = np.array(scenario.key_weights, np.float64)
    else:
        weights = np.arange(1, scenario.keys + 1, dtype=np.float64) ** -scenario.zipf
    summed = np.cumsum(weights)
    places = [by_hash(hash_code(f"key-{n}"), scenario.queues) for n in range(len(weights))]
    return summed / summed[-1], np.array(places, np.int64)


def _avoiding_slow_brokers(scenario: LabScenario, turn: int, sent: IntArray) -> IntArray:
    """A producer whose sends go around brokers that were slow, until their penalty is over."""
    of = topic_layout(scenario)
    place = {queue: number for number, queue in enumerate(of.queues)}
    slow = {queue.broker_name for queue, is_slow in zip(of.queues, of.slow, strict=True) if is_slow}
    latency = scenario.slow_broker_ms
    out_ms = penalty_ms(latency)
    faults: dict[str, BrokerFault] = {}
    pending: list[tuple[int, str]] = []
    """Answers under way: when they come, and from whom."""
    found: list[int] = []
    for now_us in sent.tolist():
        now_ms = now_us // MICROS_PER_MS
        known = bisect_right(pending, (now_ms, "~"))
        for at_ms, name in pending[:known]:
            faults[name] = updated_fault(faults.get(name), latency, out_ms, at_ms)
        del pending[:known]
        queue, turn = next_queue(of.queues, turn, at_fault=brokers_to_avoid(faults, now_ms))
        if queue.broker_name in slow:
            pending.append((now_ms + latency, queue.broker_name))
        found.append(place[queue])
    return np.array(found, np.int64)
