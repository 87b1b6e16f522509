"""One self-contained HTML page: no script, no font, no other file; light and dark."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from roquet.pictures.escaping import escape_text

PALETTE: Final = """
:root { color-scheme: light dark;
  --page: #ffffff; --ink: #1f2430; --soft: #5b6472; --grid: #d8dce3;
  --good: #1a7f4b; --bad: #c0312b;
  --c0: #2f6fde; --c1: #e08a1e; --c2: #2a9d6f; --c3: #b5489b; --c4: #7a63d1; --c5: #b8a11c;
  --c6: #1f9bb4; --c7: #9a6a4b; }
@media (prefers-color-scheme: dark) { :root {
  --page: #14171d; --ink: #e4e8ef; --soft: #98a2b3; --grid: #333a46;
  --good: #4cc38a; --bad: #ff7a70;
  --c0: #6b9dff; --c1: #f2ab4e; --c2: #55c596; --c3: #db7cc4; --c4: #a593f0; --c5: #d9c648;
  --c6: #55c1d8; --c7: #c4957a; } }
"""
"""The colours of pages and pictures, in light and in dark."""

COLOURS: Final = 8
"""How many hues `PALETTE` has (`--c0` to `--c7`); a ninth series reuses the first."""

STYLE: Final = (
    PALETTE
    + """body { background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .3rem; }
p { color: var(--soft); margin: .2rem 0 .8rem; max-width: 46rem; }
p.good { color: var(--good); font-weight: 600; } p.bad { color: var(--bad); font-weight: 600; }
svg { width: 100%; height: auto; display: block; font-family: inherit; }
div.wide { overflow-x: auto; }
@media (max-width: 40rem) { div.wide svg { width: 40rem; } }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .2rem 1.2rem .2rem 0; border-bottom: 1px solid var(--grid); }
td.number { text-align: right; } td.whole, span.whole { white-space: nowrap; }
td.good { color: var(--good); } td.bad { color: var(--bad); }
"""
)


DATE: Final = re.compile(r"\d{4}-\d\d-\d\d(?: \d\d:\d\d(?::\d\d)?(?: UTC)?)?")


class Cell(msgspec.Struct, frozen=True):
    """A value in a table, and whether it is good or bad news; None for neither."""

    value: object
    good: bool | None = None
    is_whole: bool = False
    """Never wrapped over lines, like a date."""


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A heading, a sentence, and the output of `table` or of a plot."""

    title: str
    text: str = ""
    content: str = ""


def page(title: str, verdict: Cell, sections: Iterable[Section]) -> str:
    """The whole page; titles and texts are escaped, contents are not."""
    body = "\n".join(_section(section) for section in sections)
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{escape_text(title)}</title>\n<style>{STYLE}</style>\n"
        f"<h1>{escape_text(title)}</h1>\n<p{_class(verdict)}>{_dates_whole(escape_text(verdict.value))}</p>\n"
        f"{body}\n</html>\n"
    )


def table(header: Sequence[str], rows: Iterable[Sequence[Cell | object]]) -> str:
    """Rows of values; integers are right-aligned, with thousands separators."""
    head = "".join(f"<th>{escape_text(name)}</th>" for name in header)
    lines = "\n".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in rows)
    return f"<table>\n<tr>{head}</tr>\n{lines}\n</table>"


def _dates_whole(text: str) -> str:
    """Escaped text whose dates and times are never wrapped over lines."""
    return DATE.sub(r'<span class="whole">\g<0></span>', text)


def _section(section: Section) -> str:
    text = f"<p>{escape_text(section.text)}</p>\n" if section.text else ""
    content = f'<div class="wide">{section.content}</div>'
    return f"<h2>{escape_text(section.title)}</h2>\n{text}{content}"


def _cell(value: Cell | object) -> str:
    cell = value if isinstance(value, Cell) else Cell(value)
    is_number = isinstance(cell.value, int) and not isinstance(cell.value, bool)
    text = f"{cell.value:,}" if is_number else escape_text(cell.value)
    names = [name for name, wanted in (("number", is_number), ("whole", cell.is_whole)) if wanted]
    return f"<td{_class(cell, *names)}>{text}</td>"


def _class(cell: Cell, *names: str) -> str:
    verdict = {True: "good", False: "bad", None: ""}[cell.good]
    together = " ".join(name for name in (*names, verdict) if name)
    return f' class="{together}"' if together else ""
