"""Play: histories under one strategy; a row of measures for each, the same for the same seed."""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from roquet.lab.attempts import Attempts, QueuePauses, SimulatedMessages
from roquet.lab.decisions import LAG_WEIGHTED, POP, known_strategy
from roquet.lab.group import SimulatedGroup
from roquet.lab.measures import GroupCounters, HistoryMeasures, MeasureColumns, compute_measures
from roquet.lab.pop_model import PopModel
from roquet.lab.queue_model import HistoryEvents, QueueModel
from roquet.lab.scenario import LabScenario
from roquet.lab.timeline import (
    DIE,
    JOIN,
    LEAVE,
    MICROS_PER_MS,
    NEVER,
    REVIEW,
    IntArray,
    MemberEvent,
    Timeline,
    draw_timeline,
    topic_layout,
)
from roquet.rules.balance.lag_facts import GAIN_MESSAGES, QueueLag

QUEUE_MODE: Final = "queue"
MESSAGE_MODE: Final = "message"
"""What is shared: queues, each with one owner, or messages, each to whoever is free."""


def simulate(scenario: LabScenario, name: str, seed: int) -> HistoryMeasures:
    """One history under one strategy, or under POP; its mode follows from that."""
    name = known_strategy(name)
    columns = simulate_many(scenario, name, [draw_timeline(scenario, seed)])
    own = {field: values[0] for field, values in columns.items()}
    return HistoryMeasures(scenario=scenario.name, strategy=name, mode=mode_of(name), **own)


def mode_of(name: str) -> str:
    """What a strategy shares."""
    return MESSAGE_MODE if name == POP else QUEUE_MODE


def simulate_many(scenario: LabScenario, name: str, courses: Sequence[Timeline]) -> MeasureColumns:
    """Many histories of one scenario, worked out together; each row as if it were alone."""
    messages = SimulatedMessages.of(courses)
    if name == POP:
        books, tries, pauses = _simulate_pop(scenario, courses, messages.count)
    else:
        books, tries, pauses = _simulate_owned(scenario, name, courses, messages)
    return compute_measures(scenario, courses, messages, books, tries, pauses)


def _simulate_owned(
    scenario: LabScenario, name: str, courses: Sequence[Timeline], messages: SimulatedMessages
) -> tuple[GroupCounters, Attempts, QueuePauses]:
    """Queues with owners."""
    if name == LAG_WEIGHTED:
        courses = [_with_reviews(scenario, course) for course in courses]
    of = topic_layout(scenario)
    groups = [SimulatedGroup(name, of, course, scenario) for course in courses]
    flow = QueueModel(scenario, courses, messages)
    flow.own([group.owners for group in groups])
    for step in range(1 + max(len(course.moments) for course in courses)):
        happening = _events_of_step(courses, step)
        until = np.full(len(courses), NEVER, np.int64)
        for history, at, _ in happening:
            until[history] = at
        flow.run(until)
        _apply_changes(flow, groups, happening, has_lag=name == LAG_WEIGHTED)
    for group in groups:
        group.finish()
    tries, pauses = flow.finish(scenario.duration_ms * MICROS_PER_MS)
    return _counters(scenario, groups), tries, pauses


def _events_of_step(courses: Sequence[Timeline], step: int) -> list[HistoryEvents]:
    return [
        (history, *course.moments[step])
        for history, course in enumerate(courses)
        if step < len(course.moments)
    ]


def _apply_changes(
    flow: QueueModel,
    groups: Sequence[SimulatedGroup],
    happening: Sequence[HistoryEvents],
    *,
    has_lag: bool,
) -> None:
    """Members come and go, rules decide, and queues are divided anew."""
    leaving = flow.happen(happening)
    divided = []
    for history, at, events in happening:
        group = groups[history]
        lag: QueueLag = {}
        if has_lag:
            waiting = flow.lag(history, at).tolist()
            lag = dict(zip(group.queues, waiting, strict=True))
        if group.happen(at, events, lag):
            divided.append((history, at))
    of = np.array(divided, np.int64).reshape(-1, 2)
    flow.divide(of[:, 0], [groups[history].owners for history, _ in divided], of[:, 1], leaving)


def _with_reviews(scenario: LabScenario, course: Timeline) -> Timeline:
    """With the times at which what waits is looked at anew, where so much could ever wait."""
    if scenario.messages < GAIN_MESSAGES:
        return course
    period = scenario.times.review_ms * MICROS_PER_MS
    moments: dict[int, list[MemberEvent]] = {at: list(events) for at, events in course.moments}
    for at in range(period, scenario.duration_ms * MICROS_PER_MS, period):
        moments.setdefault(at, []).append((REVIEW, -1))
    return msgspec.structs.replace(course, moments=sorted(moments.items()))


def _counters(scenario: LabScenario, groups: Sequence[SimulatedGroup]) -> GroupCounters:
    span = scenario.duration_ms * MICROS_PER_MS
    return GroupCounters(
        changes=[group.changes for group in groups],
        moved=[group.moved for group in groups],
        moved_least=[group.least for group in groups],
        moved_fair=[group.fair for group in groups],
        strayed=[group.strayed for group in groups],
        spread_max=[group.spread_max for group in groups],
        queues_max_mean=[group.uneven_us / span for group in groups],
        queues_cv=[group.varied_us / span for group in groups],
        idle_members=[group.idle_us / span for group in groups],
        spare_members=[group.spare_us / span for group in groups],
        unowned_share=[group.unowned_us / span / scenario.queues for group in groups],
    )


def _simulate_pop(
    scenario: LabScenario, courses: Sequence[Timeline], count: int
) -> tuple[GroupCounters, Attempts, QueuePauses]:
    """Messages to whoever is free."""
    games = [PopModel(scenario, course) for course in courses]
    for game in games:
        game.play()
    parts = [game.tries(number * count) for number, game in enumerate(games)]
    tries = Attempts(
        **{
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in Attempts.__struct_fields__
        }
    )
    back = [(number, at) for number, game in enumerate(games) for at in game.returns]
    of: IntArray = np.array(back, np.int64).reshape(-1, 2)
    # No queue stands still; what a dead member had comes again all at once.
    pauses = QueuePauses(history=of[:, 0], begin=of[:, 1], end=of[:, 1])
    return _pop_counters(scenario, courses, games), tries, pauses


def _pop_counters(
    scenario: LabScenario, courses: Sequence[Timeline], games: Sequence[PopModel]
) -> GroupCounters:
    """No queue has an owner, so none moves; what is asked of owners does not apply."""
    count, span = len(courses), scenario.duration_ms * MICROS_PER_MS
    kinds = {JOIN, LEAVE, DIE}
    return GroupCounters(
        changes=[
            sum(kind in kinds for _, events in course.moments for kind, _ in events)
            for course in courses
        ],
        moved=[0] * count,
        moved_least=[0] * count,
        moved_fair=[0.0] * count,
        strayed=[0] * count,
        spread_max=[0] * count,
        queues_max_mean=[None] * count,
        queues_cv=[None] * count,
        idle_members=[game.idle_us / span for game in games],
        spare_members=[game.spare_us / span for game in games],
        unowned_share=[0.0] * count,
    )
