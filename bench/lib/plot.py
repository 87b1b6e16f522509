"""A library: a line plot as SVG text, drawn by hand: a few kilobytes, in the colours of the page.

The x axis has the points at equal distances, as a growth by factors wants it, or is linear. Without
matplotlib: `make bench` has to end with its report on machines that lack the extra `pictures`.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from roquet.pictures.escaping import escape_text
from roquet.pictures.page import COLOURS, PALETTE

WIDTH: Final = 460
HEIGHT: Final = 210
LEFT: Final = 64
RIGHT: Final = 16
TOP: Final = 40
BOTTOM: Final = 34
"""Units of the picture: pixels if there is room for all of it."""

TICKS: Final = 4
LABELS_MAX: Final = 8
"""Labels of the x axis; with more points only some have one."""

Points = Sequence[tuple[float, float]]
"""x and y, by ascending x."""


@dataclass(frozen=True)
class Plot:
    """Contents of a picture; each line has the colour of its place."""

    title: str
    x: str
    lines: Mapping[str, Points]
    is_linear: bool = False
    """Whether the x axis is linear, and without dots; otherwise points stand at equal distances."""
    marks: Mapping[str, float] = field(default_factory=dict)
    """Horizontal lines, such as a bound, with their names."""


def draw(plot: Plot) -> str:
    """SVG text that takes its colours from the page."""
    xs = sorted({x for points in plot.lines.values() for x, _ in points})
    ys = [y for points in plot.lines.values() for _, y in points] + [*plot.marks.values()]
    step = _step(max(ys, default=0) or 1)
    edge = step * max(1, -(-max(ys, default=0) // step))
    places = _places(xs, is_linear=plot.is_linear)
    body = [_text(0, 12, plot.title), *_grid(edge, step), *_labels(plot.x, xs, places)]
    for name, y in plot.marks.items():
        body += [
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{_y(y, edge)}" y2="{_y(y, edge)}" '
            'stroke="var(--bad)" stroke-dasharray="4 3"/>',
            _text(WIDTH - RIGHT, float(_y(y, edge)) - 4, name, "end", soft=True),
        ]
    for number, (name, points) in enumerate(plot.lines.items()):
        at = [(_short(places[x]), _y(y, edge)) for x, y in points]
        body += _line(at, number, with_dots=not plot.is_linear)
        body.append(_legend(number, name, len(plot.lines)))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-size="11">'
    return "\n".join([head, *body, "</svg>"])


def standalone(plot: Plot) -> str:
    """An SVG file that contains the page's colours, light and dark."""
    head, _, rest = draw(plot).partition("\n")
    style = f"<style>{PALETTE}svg {{ font-family: system-ui, sans-serif; }}\n</style>"
    ground = '<rect width="100%" height="100%" fill="var(--page)"/>'
    return f"{head}\n{style}\n{ground}\n{rest}\n"


def _step(most: float) -> float:
    """A round number of which a few make the whole axis."""
    power = 10.0 ** int(f"{most / TICKS:e}".partition("e")[2])
    return next(power * n for n in (1, 2, 5, 10) if power * n * TICKS >= most * 0.999)


def _places(xs: Sequence[float], *, is_linear: bool) -> dict[float, float]:
    """Where each x stands in the picture."""
    width = WIDTH - LEFT - RIGHT
    if is_linear:
        span = (xs[-1] - xs[0] if xs else 0) or 1
        return {x: LEFT + width * (x - xs[0]) / span for x in xs}
    return {x: LEFT + width * (n + 0.5) / len(xs) for n, x in enumerate(xs)}


def _y(value: float, edge: float) -> str:
    return _short(HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / edge)


def _grid(edge: float, step: float) -> Iterator[str]:
    for number in range(round(edge / step) + 1):
        y = _y(number * step, edge)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="var(--grid)"/>'
        yield _text(LEFT - 6, float(y) + 4, plain(number * step), "end", soft=True)


def _labels(title: str, xs: Sequence[float], places: Mapping[float, float]) -> Iterator[str]:
    every = -(-len(xs) // LABELS_MAX) or 1
    for x in xs[::every]:
        yield _text(places[x], HEIGHT - BOTTOM + 14, plain(x), "middle", soft=True)
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    yield _text(middle, HEIGHT - 5, title, "middle", soft=True)


def _line(at: Sequence[tuple[str, str]], number: int, *, with_dots: bool) -> Iterator[str]:
    colour = f"var(--c{number % COLOURS})"
    for (x1, y1), (x2, y2) in itertools.pairwise(at):
        yield (
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="1.5"/>'
        )
    if with_dots:
        for x, y in at:
            yield f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>'


def _legend(number: int, name: str, count: int) -> str:
    left = LEFT + (WIDTH - LEFT) / count * number
    dot = f'<circle cx="{_short(left)}" cy="26" r="4" fill="var(--c{number % COLOURS})"/>'
    return dot + _text(left + 8, 30, name)


def plain(number: float) -> str:
    """A number without an exponent and without trailing zeros."""
    text = f"{number:,.6f}"
    return text.rstrip("0").rstrip(".")


def _text(x: float, y: float, text: str, anchor: str = "start", *, soft: bool = False) -> str:
    align = f' text-anchor="{anchor}"' if anchor != "start" else ""
    colour = "--soft" if soft else "--ink"
    place = f'x="{_short(x)}" y="{_short(y)}"{align}'
    return f'<text {place} fill="var({colour})">{escape_text(text)}</text>'


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
