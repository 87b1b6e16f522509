"""Play: histories under one strategy; a row of measures for each, the same for the same seed."""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from roquet.rules.waiting_work import GAIN_MESSAGES, Lag
from roquet.spark.lab.answers import LAG_WEIGHTED, POP, strategy
from roquet.spark.lab.course import (
    DIE,
    JOIN,
    LEAVE,
    LOOK,
    MS,
    NEVER,
    Course,
    Event,
    Numbers,
    draw,
    layout,
)
from roquet.spark.lab.flow import Flow, Happening
from roquet.spark.lab.group import Group
from roquet.spark.lab.handled import Messages, Pauses, Tries
from roquet.spark.lab.measures import Books, Columns, Row, measured
from roquet.spark.lab.popping import Popping
from roquet.spark.lab.scenario import Scenario

QUEUE: Final = "queue"
MESSAGE: Final = "message"
"""What is shared: queues, each with one owner, or messages, each to whoever is free."""


def play(scenario: Scenario, name: str, seed: int) -> Row:
    """One history under one strategy, or under POP; its mode follows from that."""
    name = strategy(name)
    columns = play_many(scenario, name, [draw(scenario, seed)])
    own = {field: values[0] for field, values in columns.items()}
    return Row(scenario=scenario.name, strategy=name, mode=mode_of(name), **own)


def mode_of(name: str) -> str:
    """What a strategy shares."""
    return MESSAGE if name == POP else QUEUE


def play_many(scenario: Scenario, name: str, courses: Sequence[Course]) -> Columns:
    """Many histories of one scenario, worked out together; each row as if it were alone."""
    messages = Messages.of(courses)
    if name == POP:
        books, tries, pauses = _popped(scenario, courses, messages.count)
    else:
        books, tries, pauses = _owned(scenario, name, courses, messages)
    return measured(scenario, courses, messages, books, tries, pauses)


def _owned(
    scenario: Scenario, name: str, courses: Sequence[Course], messages: Messages
) -> tuple[Books, Tries, Pauses]:
    """Queues with owners."""
    if name == LAG_WEIGHTED:
        courses = [_looked_at(scenario, course) for course in courses]
    of = layout(scenario)
    groups = [Group(name, of, course, scenario) for course in courses]
    flow = Flow(scenario, courses, messages)
    flow.own([group.owners for group in groups])
    for step in range(1 + max(len(course.moments) for course in courses)):
        happening = _at_step(courses, step)
        until = np.full(len(courses), NEVER, np.int64)
        for history, at, _ in happening:
            until[history] = at
        flow.run(until)
        _change(flow, groups, happening, has_lag=name == LAG_WEIGHTED)
    for group in groups:
        group.finish()
    tries, pauses = flow.finish(scenario.duration_ms * MS)
    return _books(scenario, groups), tries, pauses


def _at_step(courses: Sequence[Course], step: int) -> list[Happening]:
    return [
        (history, *course.moments[step])
        for history, course in enumerate(courses)
        if step < len(course.moments)
    ]


def _change(
    flow: Flow, groups: Sequence[Group], happening: Sequence[Happening], *, has_lag: bool
) -> None:
    """Members come and go, rules decide, and queues are divided anew."""
    leaving = flow.happen(happening)
    divided = []
    for history, at, events in happening:
        group = groups[history]
        lag: Lag = {}
        if has_lag:
            waiting = flow.lag(history, at).tolist()
            lag = dict(zip(group.queues, waiting, strict=True))
        if group.happen(at, events, lag):
            divided.append((history, at))
    of = np.array(divided, np.int64).reshape(-1, 2)
    flow.divide(of[:, 0], [groups[history].owners for history, _ in divided], of[:, 1], leaving)


def _looked_at(scenario: Scenario, course: Course) -> Course:
    """With the times at which what waits is looked at anew, where so much could ever wait."""
    if scenario.messages < GAIN_MESSAGES:
        return course
    period = scenario.times.review_ms * MS
    moments: dict[int, list[Event]] = {at: list(events) for at, events in course.moments}
    for at in range(period, scenario.duration_ms * MS, period):
        moments.setdefault(at, []).append((LOOK, -1))
    return msgspec.structs.replace(course, moments=sorted(moments.items()))


def _books(scenario: Scenario, groups: Sequence[Group]) -> Books:
    span = scenario.duration_ms * MS
    return Books(
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


def _popped(
    scenario: Scenario, courses: Sequence[Course], count: int
) -> tuple[Books, Tries, Pauses]:
    """Messages to whoever is free."""
    games = [Popping(scenario, course) for course in courses]
    for game in games:
        game.play()
    parts = [game.tries(number * count) for number, game in enumerate(games)]
    tries = Tries(
        **{
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in Tries.__struct_fields__
        }
    )
    back = [(number, at) for number, game in enumerate(games) for at in game.returns]
    of: Numbers = np.array(back, np.int64).reshape(-1, 2)
    # No queue stands still; what a dead member had comes again all at once.
    pauses = Pauses(history=of[:, 0], begin=of[:, 1], end=of[:, 1])
    return _books_of_popping(scenario, courses, games), tries, pauses


def _books_of_popping(
    scenario: Scenario, courses: Sequence[Course], games: Sequence[Popping]
) -> Books:
    """No queue has an owner, so none moves; what is asked of owners does not apply."""
    count, span = len(courses), scenario.duration_ms * MS
    kinds = {JOIN, LEAVE, DIE}
    return Books(
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
