"""Interval plot: for each row the interval of most values, the mean, and its margin of error.

Drawn by hand like ownership grids: without matplotlib, and a picture is a few kilobytes.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from roquet.pictures.escaping import escape_text

WIDTH: Final = 460
NAME_WIDTH: Final = 176
NOTE_WIDTH: Final = 92
LINE: Final = 20
HEAD: Final = 8
FOOT: Final = 26
"""Units of the picture: pixels if there is room for all of it."""

TICKS: Final = 4


class IntervalRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row."""

    name: str
    low: float
    mean: float
    high: float
    """Most values lie between low and high."""
    margin: float = 0.0
    """The margin of error of the mean."""
    note: str = ""
    owner: int = 0
    """The number of the colour."""


def interval_plot(rows: Sequence[IntervalRow], *, x: str, most: float | None = None) -> str:
    """SVG text in the page's colours; a mean beyond `most` is drawn as an arrow."""
    most = most or max((row.high for row in rows), default=0) or 1
    step = _step(most)
    edge = step * max(1, -(-most // step))
    height = HEAD + LINE * len(rows) + FOOT
    body = [*_grid(edge, step, HEAD + LINE * len(rows), x)]
    for place, row in enumerate(rows):
        body += _row(row, HEAD + LINE * place, edge)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-size="11">\n'
        + "\n".join([*body, "</svg>"])
    )


def _step(most: float) -> float:
    """A round number of which a few make the whole axis."""
    power = 10.0 ** _exponent(most / TICKS)
    return next(power * n for n in (1, 2, 5, 10) if power * n * TICKS >= most * 0.999)


def _exponent(value: float) -> int:
    return int(f"{value:e}".partition("e")[2])


def _at(value: float, edge: float) -> float:
    return NAME_WIDTH + (WIDTH - NAME_WIDTH - NOTE_WIDTH) * min(max(value / edge, 0), 1)


def _grid(edge: float, step: float, bottom: float, x: str) -> Iterator[str]:
    for number in range(round(edge / step) + 1):
        at = _short(_at(number * step, edge))
        yield (
            f'<line x1="{at}" x2="{at}" y1="{HEAD}" y2="{_short(bottom)}" stroke="var(--grid)"/>'
        )
        yield _text(at, bottom + 11, _plain(number * step), "middle", soft=True)
    middle = _short((NAME_WIDTH + WIDTH - NOTE_WIDTH) / 2)
    yield _text(middle, bottom + 23, x, "middle", soft=True)


def _plain(number: float) -> str:
    """A number without an exponent and without trailing zeros."""
    text = f"{number:,.9f}"
    return text.rstrip("0").rstrip(".")


def _row(row: IntervalRow, top: float, edge: float) -> Iterator[str]:
    middle = top + LINE / 2
    colour = f"var(--c{row.owner % 8})"
    low, mean, high = (_at(value, edge) for value in (row.low, row.mean, row.high))
    yield _text("0", middle + 4, row.name)
    yield (
        f'<rect x="{_short(low)}" y="{_short(middle - 4)}" width="{_short(max(high - low, 1))}" '
        f'height="8" rx="2" fill="{colour}" opacity="0.3"/>'
    )
    if row.mean > edge:
        yield _text(_short(_at(edge, edge) - 4), middle + 4, ">", "end")
    else:
        for side in (_at(row.mean - row.margin, edge), _at(row.mean + row.margin, edge)):
            yield _line(side, side, middle - 5, middle + 5, colour)
        yield (f'<circle cx="{_short(mean)}" cy="{_short(middle)}" r="3.5" fill="{colour}"/>')
    if row.note:
        yield _text(_short(WIDTH - NOTE_WIDTH + 10), middle + 4, row.note)


def _line(x1: float, x2: float, y1: float, y2: float, colour: str) -> str:
    return (
        f'<line x1="{_short(x1)}" x2="{_short(x2)}" y1="{_short(y1)}" y2="{_short(y2)}" '
        f'stroke="{colour}" stroke-width="1.5"/>'
    )


def _text(x: str, y: float, text: str, anchor: str = "start", *, soft: bool = False) -> str:
    align = f' text-anchor="{anchor}"' if anchor != "start" else ""
    colour = "--soft" if soft else "--ink"
    return f'<text x="{x}" y="{_short(y)}"{align} fill="var({colour})">{escape_text(text)}</text>'


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
