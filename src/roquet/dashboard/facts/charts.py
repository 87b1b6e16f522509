"""Charts: values over time with axes, as coordinates for SVG in templates.

The plot is drawn in a box that the browser stretches, so x is in thousandths of its width; texts
stand beside it at per cent of the width, and keep their size. `points` is what the script reads to
show the value under the pointer.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from math import ceil, floor, log10
from statistics import median
from typing import Final, Literal

import msgspec

HEIGHT: Final = 108
"""Pixels of a plot from its highest tick to its x axis."""

TOP: Final = 7
"""Pixels above the highest tick, for half of its text."""

WIDTH: Final = 1_000
"""Units from the first time to the last one."""

Y_TICKS: Final = 4
X_TICKS: Final = 6
X_TICKS_LONG: Final = 4
"""Most steps of an axis: what a telephone has space for, where times have seconds and without."""

MOST_MIN: Final = 0.001
"""A smaller value is drawn as 0."""

GAP_FACTOR: Final = 4
"""A time between two samples that is as many times as long as most is a gap."""

_STEPS_S: Final = (
    *(1, 5, 10, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400),
)
"""Seconds between ticks of the x axis."""

Unit = Literal["rate", "number"]


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """A value on an axis."""

    at: float
    """Per cent of the width, or pixels from the top."""
    text: str


class ChartLine(msgspec.Struct, frozen=True, kw_only=True):
    """One series of a chart."""

    name: str
    colour: str
    """Class of the style sheet: c0 to c7."""
    path: str
    area: str
    """Path of the area below; empty where a chart has several lines."""
    latest: float | None
    most: float


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """A chart of one or more series with the same unit."""

    lines: Sequence[ChartLine]
    unit: Unit
    top: float
    """Value at the top of the y axis."""
    height: int
    width: int
    y_ticks: Sequence[Tick]
    x_ticks: Sequence[Tick]
    start_ms: int
    end_ms: int
    points: str
    """JSON: for each sample the seconds since the first one, and the value of each line or null."""


def chart(
    times: Sequence[int], series: Mapping[str, Sequence[float]], *, unit: Unit
) -> Chart | None:
    """A chart of values at `times` (ms, rising), each series for the newest of them.

    Negative values are not known and leave a gap. None with fewer than two known values.
    """
    columns = {name: _aligned(values, len(times)) for name, values in series.items()}
    known = [value for values in columns.values() for value in values if value is not None]
    if len(times) < 2 or times[0] == times[-1] or len(known) < 2:
        return None
    step, top = _y_scale(max(known), is_whole=unit == "number")
    xs = [WIDTH * (time - times[0]) / (times[-1] - times[0]) for time in times]
    gaps = _gaps(times)
    y_values = [step * n for n in range(round(top / step) + 1)]
    rows = zip(times, *columns.values(), strict=True)
    return Chart(
        lines=[
            _line(name, n, _segments(xs, values, gaps, top), values, is_alone=len(columns) == 1)
            for n, (name, values) in enumerate(columns.items())
        ],
        unit=unit,
        top=top,
        height=HEIGHT,
        width=WIDTH,
        y_ticks=[Tick(at=_y(value, top), text=compact(value)) for value in y_values],
        x_ticks=time_ticks(times[0], times[-1]),
        start_ms=times[0],
        end_ms=times[-1],
        points=msgspec.json.encode(
            [[(row[0] - times[0]) / 1000, *map(_short, row[1:])] for row in rows]
        ).decode(),
    )


def time_ticks(start_ms: int, end_ms: int) -> list[Tick]:
    """Round times between two, in UTC, at per cent of the time between them."""
    span_s = (end_ms - start_ms) / 1000
    most = X_TICKS_LONG if span_s < 60 * X_TICKS else X_TICKS
    step_s = next((step for step in _STEPS_S if span_s / step <= most), _STEPS_S[-1])
    form = "%H:%M:%S" if step_s < 60 else "%H:%M" if step_s < 86_400 else "%m-%d"
    first = ceil(start_ms / 1000 / step_s)
    times = [step_s * n for n in range(first, floor(end_ms / 1000 / step_s) + 1)]
    places = [(time, 100 * (time * 1000 - start_ms) / (end_ms - start_ms)) for time in times]
    return [
        Tick(at=round(at, 2), text=datetime.fromtimestamp(time, UTC).strftime(form))
        for time, at in places
        if 3 <= at <= 97  # the text would be cut
    ]


def compact(value: float) -> str:
    """A number in four characters or so: `1.5 k`, `20 M`."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:.4g}"


def _aligned(values: Sequence[float], length: int) -> list[float | None]:
    """The values for the newest `length` times; None for unknown ones."""
    newest = values[max(len(values) - length, 0) :]
    known = [value if value >= 0 else None for value in newest]
    return [*[None] * (length - len(known)), *known]


def _y_scale(most: float, *, is_whole: bool) -> tuple[float, float]:
    """The step of the y axis, one of 1, 2 and 5 and their tens, and its end."""
    if most < MOST_MIN:
        return 1, 1
    size = 10.0 ** floor(log10(most / Y_TICKS))
    step = next(size * n for n in (1, 2, 5, 10) if most / (size * n) <= Y_TICKS)
    if is_whole:
        step = max(step, 1)
    return step, step * ceil(most / step)


def _y(value: float, top: float) -> float:
    return round(TOP + HEIGHT * (1 - value / top), 1)


def _gaps(times: Sequence[int]) -> set[int]:
    """Indexes of samples that stand behind a gap."""
    steps = [later - time for time, later in pairwise(times)]
    usual = median(steps)
    return {n + 1 for n, step in enumerate(steps) if step > GAP_FACTOR * usual}


def _segments(
    xs: Sequence[float], values: Sequence[float | None], gaps: set[int], top: float
) -> list[list[tuple[str, str]]]:
    """Points of the unbroken parts of a line: x, and x with y."""
    segments: list[list[tuple[str, str]]] = [[]]
    for n, (x, value) in enumerate(zip(xs, values, strict=True)):
        if value is None or n in gaps:
            segments.append([])
        if value is not None:
            segments[-1].append((f"{x:.0f}", f"{x:.0f} {_y(value, top)}"))
    return [segment for segment in segments if segment]


def _line(
    name: str,
    number: int,
    segments: Sequence[Sequence[tuple[str, str]]],
    values: Sequence[float | None],
    *,
    is_alone: bool,
) -> ChartLine:
    base = TOP + HEIGHT
    paths = ["L".join(point for _, point in part) for part in segments]
    areas = [
        f"M{part[0][0]} {base}L{path}L{part[-1][0]} {base}Z"
        for part, path in zip(segments, paths, strict=True)
    ]
    # A point alone is drawn by the round ends of a line without length.
    dots = [
        f"{path}L{path}" if len(part) == 1 else path
        for part, path in zip(segments, paths, strict=True)
    ]
    return ChartLine(
        name=name,
        colour=f"c{number}",
        path="".join(f"M{path}" for path in dots),
        area="".join(areas) if is_alone else "",
        latest=values[-1],
        most=max((value for value in values if value is not None), default=0),
    )


def _short(value: float | None) -> float | None:
    """The value with as many digits as a page shows."""
    return value if value is None or isinstance(value, int) else round(value, 2)
