"""Simulate: histories under one strategy, with a row of measures each; reproducible by seed."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from roquet.lab.attempts import Attempts, QueuePauses, SimulatedMessages
from roquet.lab.decisions import LAG_WEIGHTED, POP, known_strategy
from roquet.lab.group import SimulatedGroup
from roquet.lab.measures import HistoryMeasures, MeasureColumns, compute_measures
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
from roquet.rules.balance.rebalance_cost import GAIN_MESSAGES, QueueLag

QUEUE_MODE: Final = "queue"
MESSAGE_MODE: Final = "message"
"""Modes of consumption: each queue has one owner, or each message goes to a member that is free."""


def simulate(scenario: LabScenario, name: str, seed: int) -> HistoryMeasures:
    """Simulate one history under a strategy, or under POP."""
    name = known_strategy(name)
    columns = simulate_many(scenario, name, [draw_timeline(scenario, seed)])
    own = {field: values[0] for field, values in columns.items()}
    return HistoryMeasures(scenario=scenario.name, strategy=name, mode=mode_of(name), **own)


def mode_of(name: str) -> str:
    """The mode of a strategy."""
    return MESSAGE_MODE if name == POP else QUEUE_MODE


def simulate_many(
    scenario: LabScenario, name: str, timelines: Sequence[Timeline]
) -> MeasureColumns:
    """Simulate many histories of one scenario together; rows are as if each were alone."""
    messages = SimulatedMessages.of(timelines)
    if name == POP:
        outcome = _simulate_pop(scenario, timelines, messages.count)
    else:
        outcome = _simulate_owned(scenario, name, timelines, messages)
    return compute_measures(scenario, timelines, messages, *outcome)


class _Outcome(NamedTuple):
    """The result of a model for all histories."""

    counters: MeasureColumns
    attempts: Attempts
    pauses: QueuePauses


def _simulate_owned(
    scenario: LabScenario, name: str, timelines: Sequence[Timeline], messages: SimulatedMessages
) -> _Outcome:
    if name == LAG_WEIGHTED:
        timelines = [_with_reviews(scenario, timeline) for timeline in timelines]
    layout = topic_layout(scenario)
    groups = [SimulatedGroup(name, layout, timeline, scenario) for timeline in timelines]
    model = QueueModel(scenario, timelines, messages)
    model.assign_first([group.owners for group in groups])
    for step in range(1 + max(len(timeline.events) for timeline in timelines)):
        changes = _events_of_step(timelines, step)
        until = np.full(len(timelines), NEVER, np.int64)
        for history, at, _ in changes:
            until[history] = at
        model.run(until)
        _apply_changes(model, groups, changes, has_lag=name == LAG_WEIGHTED)
    for group in groups:
        group.finish()
    attempts, pauses = model.finish(scenario.duration_ms * MICROS_PER_MS)
    return _Outcome(_counters(scenario, groups), attempts, pauses)


def _events_of_step(timelines: Sequence[Timeline], step: int) -> list[HistoryEvents]:
    return [
        HistoryEvents(history, *timeline.events[step])
        for history, timeline in enumerate(timelines)
        if step < len(timeline.events)
    ]


def _apply_changes(
    model: QueueModel,
    groups: Sequence[SimulatedGroup],
    changes: Sequence[HistoryEvents],
    *,
    has_lag: bool,
) -> None:
    """Apply the events of one step, and reassign the queues of the histories they change."""
    leaving = model.apply(changes)
    reassigned = []
    for history, at, events in changes:
        group = groups[history]
        lag: QueueLag = {}
        if has_lag:
            waiting = model.lag(history, at).tolist()
            lag = dict(zip(group.queues, waiting, strict=True))
        if group.apply(at, events, lag):
            reassigned.append((history, at))
    rows = np.array(reassigned, np.int64).reshape(-1, 2)
    owners = [groups[history].owners for history, _ in reassigned]
    model.reassign(rows[:, 0], owners, rows[:, 1], leaving)


def _with_reviews(scenario: LabScenario, timeline: Timeline) -> Timeline:
    """Add the periodic reviews of the lag, if enough messages for a move could ever wait."""
    if scenario.messages < GAIN_MESSAGES:
        return timeline
    period = scenario.times.review_ms * MICROS_PER_MS
    events: dict[int, list[MemberEvent]] = {at: list(events) for at, events in timeline.events}
    for at in range(period, scenario.duration_ms * MICROS_PER_MS, period):
        events.setdefault(at, []).append((REVIEW, -1))
    return msgspec.structs.replace(timeline, events=sorted(events.items()))


def _counters(scenario: LabScenario, groups: Sequence[SimulatedGroup]) -> MeasureColumns:
    span = scenario.duration_ms * MICROS_PER_MS
    return {
        "changes": [group.changes for group in groups],
        "moved": [group.moved for group in groups],
        "moved_least": [group.least for group in groups],
        "moved_fair": [group.moved_fair for group in groups],
        "strayed": [group.strayed for group in groups],
        "spread_max": [group.spread_max for group in groups],
        "queues_max_mean": [group.uneven_us / span for group in groups],
        "queues_cv": [group.varied_us / span for group in groups],
        "idle_members": [group.idle_us / span for group in groups],
        "spare_members": [group.spare_us / span for group in groups],
        "unowned_share": [group.unowned_us / span / scenario.queues for group in groups],
    }


def _simulate_pop(scenario: LabScenario, timelines: Sequence[Timeline], count: int) -> _Outcome:
    models = [PopModel(scenario, timeline) for timeline in timelines]
    for model in models:
        model.play()
    parts = [model.attempts(number * count) for number, model in enumerate(models)]
    attempts = Attempts(
        **{
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in Attempts.__struct_fields__
        }
    )
    returns = [(number, at) for number, model in enumerate(models) for at in model.returns]
    rows: IntArray = np.array(returns, np.int64).reshape(-1, 2)
    # No queue pauses; the messages that a dead member had popped return all at once.
    pauses = QueuePauses(history=rows[:, 0], begin=rows[:, 1], end=rows[:, 1])
    return _Outcome(_pop_counters(scenario, timelines, models), attempts, pauses)


def _pop_counters(
    scenario: LabScenario, timelines: Sequence[Timeline], models: Sequence[PopModel]
) -> MeasureColumns:
    """Counters of pop consumption: queues have no owner, so none moves."""
    count, span = len(timelines), scenario.duration_ms * MICROS_PER_MS
    kinds = {JOIN, LEAVE, DIE}
    return {
        "changes": [
            sum(kind in kinds for _, events in timeline.events for kind, _ in events)
            for timeline in timelines
        ],
        **dict.fromkeys(("moved", "moved_least", "strayed", "spread_max"), [0] * count),
        **dict.fromkeys(("moved_fair", "unowned_share"), [0.0] * count),
        **dict.fromkeys(("queues_max_mean", "queues_cv"), [None] * count),
        "idle_members": [model.idle_us / span for model in models],
        "spare_members": [model.spare_us / span for model in models],
    }
