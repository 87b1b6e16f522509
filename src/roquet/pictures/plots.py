"""Plots: values to SVG text that takes its colours from the page, in light and in dark.

matplotlib draws with stand-in colours; each becomes a CSS variable (`--ink`, `--grid`, `--c0` to
`--c7`) that `page` defines twice.
"""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from roquet.model.printable_text import printable
from roquet.pictures.page import COLOURS

LABEL_MAX: Final = 44
"""Characters of a label; matplotlib draws nothing when labels take all the space."""

_INK: Final = "#010101"
_GRID: Final = "#020202"
_HUES: Final = tuple(f"#0300{n:02x}" for n in range(COLOURS))
_VARIABLES: Final[Mapping[str, str]] = MappingProxyType(
    {_INK: "var(--ink)", _GRID: "var(--grid)"}
    | {hue: f"var(--c{n})" for n, hue in enumerate(_HUES)}
)

_STYLE: Final[Mapping[Any, Any]] = MappingProxyType(
    {
        "svg.fonttype": "none",  # text stays text: small, searchable, in the page's own font
        "svg.hashsalt": "roquet",  # the same values give the same bytes
        "font.size": 10,
        "axes.edgecolor": _INK,
        "axes.labelcolor": _INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": "cycler('color', ['" + "','".join(_HUES) + "'])",
        "grid.color": _GRID,
        "legend.frameon": False,
        "legend.labelcolor": _INK,
        "text.color": _INK,
        "text.parse_math": False,  # a name with two dollar signs is a name
        "xtick.color": _INK,
        "ytick.color": _INK,
    }
)

_PREFIX: Final = re.compile(r"\A.*?(?=<svg)", re.DOTALL)
_METADATA: Final = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
_NAMED_GROUP: Final = re.compile(r'<g id="[^"]*"')
_SIZE: Final = re.compile(r' (?:width|height)="[\d.]+pt"')
_FONT: Final = re.compile(r"font(?:-family)?: (?:[\w.]+px )?'[^;\"]*")


class PlotSeries(msgspec.Struct, frozen=True, kw_only=True):
    """A quantity measured repeatedly."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


class PlotEvent(msgspec.Struct, frozen=True):
    """An event, drawn as a vertical line."""

    x: float
    name: str


class OwnershipSpan(msgspec.Struct, frozen=True, kw_only=True):
    """The time in which one owner has a row; the owner's number chooses the colour."""

    row: str
    start: float
    end: float
    owner: int


def line_plot(
    series: Sequence[PlotSeries],
    *,
    x: str,
    y: str,
    moments: Sequence[PlotEvent] = (),
    stacked: Sequence[PlotSeries] = (),
) -> str:
    """Curves over a common x axis; `stacked` ones, with equal x, are drawn as stacked areas."""

    def draw(axes: Axes) -> None:
        if stacked:
            names = [_label_of(s.name) for s in stacked]
            axes.stackplot(
                stacked[0].x, [s.y for s in stacked], labels=names, colors=_HUES, alpha=0.8
            )
        for n, curve in enumerate(series):
            hue = _INK if stacked else _HUES[n % COLOURS]
            axes.plot(curve.x, curve.y, label=_label_of(curve.name), color=hue, linewidth=1.5)
        _mark(axes, moments)
        _label(axes, x, y)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", linewidth=0.5)
        if len(series) + len(stacked) > 1:
            _name_colours(axes)

    return _picture(draw, height=2.8)


def ownership_timeline(
    spans: Sequence[OwnershipSpan],
    owners: Sequence[str],
    *,
    x: str,
    moments: Sequence[PlotEvent] = (),
    first_colour: int = 0,
) -> str:
    """The owner of each row over time: one bar for each span.

    `first_colour` is the number of the first owner's colour, where a page needs others for others.
    """

    def draw(axes: Axes) -> None:
        rows = sorted({span.row for span in spans}, reverse=True)
        for n, name in enumerate(owners):
            own = [span for span in spans if span.owner == n]
            axes.barh(
                [rows.index(span.row) for span in own],
                [span.end - span.start for span in own],
                left=[span.start for span in own],
                height=0.7,
                color=_HUES[(first_colour + n) % COLOURS],
                label=_label_of(name),
            )
        axes.set_yticks(range(len(rows)), [_text_of(row) for row in rows])
        axes.tick_params(axis="y", length=0)
        _mark(axes, moments)
        _label(axes, x, "")
        axes.set_xlim(left=0)
        _name_colours(axes)

    return _picture(draw, height=0.6 + 0.28 * len({span.row for span in spans}))


def heatmap(
    cells: Mapping[tuple[str, int], float], *, x: str, y: str, rows: Sequence[str] | None = None
) -> str:
    """A number for each row and column, as a shade of one hue.

    The largest value is fully opaque; opacity follows the square root, otherwise small values would
    not be visible.
    """
    rows = rows or sorted({row for row, _ in cells})
    columns = sorted({column for _, column in cells})
    most = max(cells.values(), default=0) or 1

    def draw(axes: Axes) -> None:
        for (row, column), value in cells.items():
            axes.barh(
                rows.index(row), 0.94, left=column - 0.47, height=0.94,
                color=(*to_rgb(_HUES[0]), (value / most) ** 0.5),
            )  # fmt: skip
        axes.set_yticks(range(len(rows)), [_text_of(row) for row in rows])
        axes.set_xticks(columns)
        axes.invert_yaxis()
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        _label(axes, x, y)

    return _picture(draw, height=0.8 + 0.22 * len(rows))


def _mark(axes: Axes, moments: Sequence[PlotEvent]) -> None:
    for moment in moments:
        axes.axvline(moment.x, color=_INK, linewidth=0.8, linestyle=":")
        axes.annotate(
            _text_of(moment.name),
            (moment.x, 1),
            xycoords=("data", "axes fraction"),
            xytext=(3, 2),
            textcoords="offset points",
            fontsize=8,
        )


def _label_of(name: str) -> str:
    """A name as a label; matplotlib leaves those that begin with an underscore out of legends."""
    shown = _text_of(name)
    return f" {shown}" if shown.startswith("_") else shown


def _text_of(name: str) -> str:
    """A name shortened in the middle: its beginning and its end distinguish it from others."""
    shown, half = printable(name), LABEL_MAX // 2
    return shown if len(shown) <= LABEL_MAX else f"{shown[:half]}…{shown[-half:]}"


def _name_colours(axes: Axes) -> None:
    """A legend to the right of the axes."""
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


def _label(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def _picture(draw: Callable[[Axes], None], *, height: float) -> str:
    with rc_context({**_STYLE}):
        figure = Figure(figsize=(9, height), layout="constrained")
        figure.patch.set_visible(False)
        axes = figure.subplots()
        axes.patch.set_visible(False)
        draw(axes)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return _for_the_page(text.getvalue())


def _for_the_page(svg: str) -> str:
    """The SVG without what only a file of its own needs, in the page's colours and font."""
    svg = _METADATA.sub("", _PREFIX.sub("", svg))
    svg = _NAMED_GROUP.sub("<g", svg)  # names that every picture on the page would share
    svg = _SIZE.sub("", svg, count=2)
    svg = _FONT.sub(lambda match: _in_the_pages_font(match[0]), svg)
    for hue, variable in _VARIABLES.items():
        svg = svg.replace(hue, variable)
    return svg.strip()


def _in_the_pages_font(declaration: str) -> str:
    size = re.search(r"[\d.]+px", declaration)
    return f"font-size: {size[0]}" if size else "font-family: inherit"
