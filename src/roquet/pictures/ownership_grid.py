"""Ownership grid: a cell for each thing, in the colour of its owner, row by row.

Drawn by hand and not by matplotlib: a picture of ten rows has 10 KB that way, and not 200.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from roquet.pictures.escaping import escape_text
from roquet.pictures.page import COLOURS, PALETTE

WIDTH: Final = 760
NAME_WIDTH: Final = 200
NOTE_WIDTH: Final = 130
CELL_MAX: Final = 34
LINE: Final = 22
GAP: Final = 10
"""Units of the picture: pixels if there is room for all of it."""

NUMBERS_FROM: Final = 14
"""A narrower cell has no number in it: it would be cut off."""


class OwnershipRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row; a row without a name belongs to the one above it."""

    owners: Sequence[int | None]
    name: str = ""
    note: str = ""
    marked: Sequence[bool] = ()


class OwnershipGrid(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of equal length, the names of their columns, and the owners by number."""

    rows: Sequence[OwnershipRow]
    columns: Sequence[str]
    owners: Sequence[str]


def ownership_grid(picture: OwnershipGrid) -> str:
    """SVG text that takes its colours from the page."""
    cell = min(CELL_MAX, (WIDTH - NAME_WIDTH - NOTE_WIDTH) / max(len(picture.columns), 1))
    body: list[str] = []
    if cell >= NUMBERS_FROM:
        body += [
            _text(NAME_WIDTH + cell * (place + 0.5), 12, label, "middle", soft=True)
            for place, label in enumerate(picture.columns)
        ]
    top: float = LINE
    for row in picture.rows:
        top += GAP if row.name and row is not picture.rows[0] else 0
        body += _row(row, top, cell)
        top += LINE
    legend, top = _legend(picture.owners, top + GAP)
    body += legend
    size = f'viewBox="0 0 {WIDTH} {_short(top)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-size="12">\n' + "\n".join(
        [*body, "</svg>"]
    )


def standalone_svg(picture: OwnershipGrid) -> str:
    """An SVG file that contains the page's colours, light and dark."""
    head, _, rest = ownership_grid(picture).partition("\n")
    head = re.sub(r'viewBox="0 0 (\d+) ([\d.]+)"', _with_margin, head)
    style = f"<style>{PALETTE}svg {{ font-family: system-ui, sans-serif; }}\n</style>"
    ground = f'<rect x="-{GAP}" y="-{GAP}" width="100%" height="100%" fill="var(--page)"/>'
    return f"{head}\n{style}\n{ground}\n{rest}\n"


def _with_margin(size: re.Match[str]) -> str:
    width, height = (float(number) + 2 * GAP for number in size.groups())
    return f'viewBox="-{GAP} -{GAP} {_short(width)} {_short(height)}"'


def _row(row: OwnershipRow, top: float, cell: float) -> Iterator[str]:
    middle = top + LINE / 2 + 4
    if row.name:
        yield _text(0, middle, row.name)
    for place, owner in enumerate(row.owners):
        left = NAME_WIDTH + cell * place
        marked = bool(row.marked) and row.marked[place]
        yield _rect(left, top, cell, owner, marked=marked)
        if cell >= NUMBERS_FROM:
            text = "-" if owner is None else str(owner + 1)
            yield _text(left + cell / 2, middle, text, "middle", on_colour=owner is not None)
    if row.note:
        yield _text(NAME_WIDTH + cell * len(row.owners) + 10, middle, row.note)


def _rect(left: float, top: float, cell: float, owner: int | None, *, marked: bool = False) -> str:
    fill = "none" if owner is None else f"var(--c{owner % COLOURS})"
    ring = 2 if cell >= NUMBERS_FROM else 1
    edge = f' stroke="var(--ink)" stroke-width="{ring}"' if marked else ""
    edge = ' stroke="var(--bad)"' if owner is None else edge
    inset = min(1.5, cell / 8)
    return (
        f'<rect x="{_short(left + inset)}" y="{_short(top + 1.5)}" '
        f'width="{_short(cell - 2 * inset)}" height="{LINE - 3}" rx="2" fill="{fill}"{edge}/>'
    )


def _legend(owners: Sequence[str], top: float) -> tuple[list[str], float]:
    """The owners with their colours and numbers, as many in a line as fit."""
    each = 54 + 7 * max(map(len, owners), default=0)
    in_line = max(1, WIDTH // each)
    body: list[str] = []
    for number, name in enumerate(owners):
        left, y = each * (number % in_line), top + LINE * (number // in_line)
        body.append(_rect(left, y, CELL_MAX, number))
        body.append(
            _text(left + CELL_MAX / 2, y + LINE / 2 + 4, str(number + 1), "middle", on_colour=True)
        )
        body.append(_text(left + CELL_MAX + 4, y + LINE / 2 + 4, name))
    return body, top + LINE * -(-len(owners) // in_line)


def _text(
    x: float, y: float, text: str, anchor: str = "start", *, soft: bool = False,
    on_colour: bool = False,
) -> str:  # fmt: skip
    colour = "--page" if on_colour else "--soft" if soft else "--ink"
    align = f' text-anchor="{anchor}"' if anchor != "start" else ""
    attributes = f'x="{_short(x)}" y="{_short(y)}"{align} fill="var({colour})"'
    return f"<text {attributes}>{escape_text(text)}</text>"


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
