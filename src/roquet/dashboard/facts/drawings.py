"""Drawings: coordinates of curves and of bars of owners, for SVG in templates."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from roquet.dashboard.facts.charts import Tick, time_ticks
from roquet.dashboard.sampling.history import OwnerSpan
from roquet.model.names import is_retry
from roquet.model.queue import MessageQueue

POINTS_MAX: Final = 120
"""Points of a curve; of more some are left out."""

ROWS_MAX: Final = 64
"""Queues in one picture of owners; of more the first."""

COLOURS: Final = 8
"""Colours that the style sheet has, c0 to c7; the next owner begins again."""

WIDTH: Final = 1120
NAME_WIDTH: Final = 220
ROW_HEIGHT: Final = 16
"""Units of the picture of owners."""


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """A curve in a box: paths of its line and of the area below."""

    line: str
    area: str
    width: int
    height: int


class OwnerBar(msgspec.Struct, frozen=True, kw_only=True):
    """A time of ownership, as a rectangle."""

    x: float
    y: float
    width: float
    colour: str
    """Class of the style sheet: c0 to c7, or c-none."""
    title: str


class OwnerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A queue's line in a picture of owners."""

    name: str
    y: float


class OwnerPicture(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of each queue over time."""

    width: int
    height: int
    rows: Sequence[OwnerRow]
    bars: Sequence[OwnerBar]
    legend: Sequence[tuple[str, str]]
    """Owner and its colour."""
    ticks: Sequence[Tick]
    """Times, at per cent of the time between both ends."""
    start_ms: int
    end_ms: int
    left_out: int
    """Queues that are not in the picture."""


def curve(values: Sequence[float], *, width: int, height: int) -> Curve | None:
    """A curve of values at equal distances, from 0 to the highest; None with fewer than two.

    Negative values are not known, and leave the curve where it was.
    """
    known = _thinned([value for value in values if value >= 0])
    if len(known) < 2:
        return None
    most = max(known)
    step = width / (len(known) - 1)
    scale = (height - 2) / most if most else 0
    points = [f"{n * step:.1f} {height - 1 - value * scale:.1f}" for n, value in enumerate(known)]
    line = "M" + "L".join(points)
    return Curve(
        line=line,
        area=f"{line}L{width} {height}L0 {height}Z",
        width=width,
        height=height,
    )


def owner_picture(spans: Sequence[OwnerSpan]) -> OwnerPicture | None:
    """The picture of spans; None without any of some length."""
    if not spans:
        return None
    start_ms = min(span.start_ms for span in spans)
    end_ms = max(span.end_ms for span in spans)
    if start_ms == end_ms:
        return None
    queues = sorted(sorted({span.queue for span in spans}), key=lambda q: is_retry(q.topic))
    rows = {queue: n for n, queue in enumerate(queues[:ROWS_MAX])}
    owners = sorted({span.owner for span in spans if span.owner})
    colours = {owner: f"c{n % COLOURS}" for n, owner in enumerate(owners)} | {"": "c-none"}
    scale = (WIDTH - NAME_WIDTH) / (end_ms - start_ms)
    bars = [
        OwnerBar(
            x=round(NAME_WIDTH + (span.start_ms - start_ms) * scale, 1),
            y=rows[span.queue] * ROW_HEIGHT + 2,
            width=max(round((span.end_ms - span.start_ms) * scale, 1), 1),
            colour=colours[span.owner],
            title=f"{_label(span.queue)}: {span.owner or 'nobody'}",
        )
        for span in spans
        if span.queue in rows
    ]
    return OwnerPicture(
        width=WIDTH,
        height=len(rows) * ROW_HEIGHT + 4,
        rows=[OwnerRow(name=_label(q), y=n * ROW_HEIGHT + 12) for q, n in rows.items()],
        bars=bars,
        legend=[(owner, colours[owner]) for owner in owners],
        ticks=time_ticks(start_ms, end_ms),
        start_ms=start_ms,
        end_ms=end_ms,
        left_out=len(queues) - len(rows),
    )


def _label(queue: MessageQueue) -> str:
    topic = queue.topic if len(queue.topic) <= 18 else f"{queue.topic[:8]}…{queue.topic[-8:]}"
    return f"{topic} {queue.broker_name}:{queue.queue_id}"


def _thinned(values: Iterable[float]) -> list[float]:
    """At most POINTS_MAX of the values, the last among them."""
    every = list(values)
    step = -(-len(every) // POINTS_MAX) or 1
    return every[::-1][::step][::-1]
