"""Timelines written by hand: messages, their queues and the events of members."""

from collections.abc import Sequence

import numpy as np

from roquet.lab.scenario import LabScenario, ScenarioTimes
from roquet.lab.timeline import MICROS_PER_MS, NEVER, MemberEvent, Timeline

Happens = Sequence[tuple[int, Sequence[MemberEvent]]]
Sent = Sequence[tuple[int, int, int]]

SMALL = LabScenario(
    name="small", queues=2, brokers=1, members=2, messages=3, duration_ms=60_000,
    times=ScenarioTimes(notice_ms=0),
)  # fmt: skip
"""Members learn of changes without delay."""


def history(
    sent: Sent, happens: Happens = (), *, members: int = 2, comers: int = 0,
    slow: Sequence[int] = (), keys: Sequence[int] | None = None,
) -> Timeline:  # fmt: skip
    """Messages as (ms of sending, queue, ms of work); members are named in their order."""
    everybody = members + comers
    spans = [[0, NEVER] for _ in range(everybody)]
    for moment, events in happens:
        for kind, member in events:
            if kind in ("join", "leave", "die"):
                spans[member][kind != "join"] = moment * MICROS_PER_MS
    messages = np.array(sent, np.int64)
    return Timeline(
        seed=1,
        events=[(ms * MICROS_PER_MS, events) for ms, events in happens],
        names=[f"10.0.0.{n}@room{n % 2 + 1}-{n}" for n in range(everybody)],
        slow=[n in slow for n in range(everybody)],
        spans=[(begin, end) for begin, end in spans],
        commits=[0] * everybody,
        sent=messages[:, 0] * MICROS_PER_MS,
        ready=messages[:, 0] * MICROS_PER_MS,
        queue=messages[:, 1],
        key=np.array(keys if keys is not None else [-1] * len(sent), np.int64),
        work=messages[:, 2] * MICROS_PER_MS,
    )
