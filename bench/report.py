"""Report: every result in build/ as one HTML page: what fell short, all ratios and goals, plots.

    python -m bench.report --failed "lone spark"

Reads the JSON that the other benchmarks write (`build/bench*.json`), whenever they ran: the page
says for each when that was. The last step of `make bench`, also when another step failed.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bench.lib.plot import Plot, draw
from roquet.pictures.page import Cell, Section, page, table

HERE = Path(__file__).resolve().parent

HEADER: Final = (
    *("work", "unit", "ours", "genuine", "ratio", "goal", "holds", "cause", "calibration", "file"),
)
PEERS: Final = {"genuine": "", "kafka": " (Kafka)", "other": " (other client)"}
"""Keys under which a row may hold the figure of the other side, and what is said beside it."""

VERDICTS: Final = {"yes": True, "NO": False}

Row = Mapping[str, Any]


def load(path: Path) -> list[Row]:
    """The rows of a file; none where it has another shape or is damaged."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError:
        return []
    rows = found if isinstance(found, list) else []
    return [row for row in rows if isinstance(row, dict) and {"work", "ours", "holds"} <= {*row}]


def peer(row: Row) -> float | None:
    """The other side's figure; None where there is none."""
    return next((row[name] for name in PEERS if row.get(name) is not None), None)


def figure(value: float | None) -> str:
    """A number with as many digits as tell something."""
    if value is None:
        return ""
    digits = 0 if abs(value) >= 1_000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def lines(name: str, rows: Sequence[Row]) -> Iterator[tuple[object, ...]]:
    """The cells of the table for the rows of a file."""
    for row in rows:
        verdict = row["holds"] if row.get("goal") else ""
        beside = next((PEERS[key] for key in PEERS if row.get(key) is not None), "")
        yield (
            row["work"],
            row.get("unit", ""),
            Cell(figure(row["ours"]), is_whole=True),
            Cell(figure(peer(row)) + beside, is_whole=True),
            figure(row.get("ratio")),
            row.get("goal", ""),
            Cell(verdict, VERDICTS.get(verdict), is_whole=True),
            row.get("cause", ""),
            row.get("calibration", ""),
            Cell(name, is_whole=True),
        )


def plots(rows: Sequence[Row]) -> Iterator[str]:
    """A plot for each series: ours, and the other side where it was measured."""
    for series in dict.fromkeys(row["series"] for row in rows if row.get("series")):
        points = [row for row in rows if row.get("series") == series]
        x, _, y = series.partition(": ")
        shown = {
            "Roquet": [(row["x"], row["ours"]) for row in points if row["ours"] is not None],
            "Apache RocketMQ": [
                (row["x"], value) for row in points if (value := peer(row)) is not None
            ],
        }
        yield draw(Plot(y, x, {name: line for name, line in shown.items() if line}))


def timeline(path: Path) -> Iterator[Section]:
    """Plots of a soak test's samples over time; nothing where it never ran."""
    if not path.exists():
        return
    samples = json.loads(path.read_text("utf-8"))
    minutes = [sample["minute"] for sample in samples]
    shown = {
        "memory, MiB": {"own": "own_mib", "of files": "mapped_mib"},
        "p99 of a send, ms": {"p99": "p99_ms"},
        "open descriptors": {"descriptors": "descriptors"},
    }
    content = "".join(
        draw(
            Plot(
                title,
                "minutes",
                {
                    name: list(zip(minutes, [s[key] for s in samples], strict=True))
                    for name, key in names.items()
                },
                is_linear=True,
            )
        )
        for title, names in shown.items()
    )
    yield Section(title=f"Mixed load over time ({path.name})", content=_grid(content))


def _small(content: str) -> str:
    return f'<div style="font-size: 75%">{content}</div>'


def _grid(content: str) -> str:
    style = "display: grid; grid-template-columns: repeat(auto-fill, minmax(20rem, 1fr)); gap: 1rem"
    return f'<div style="{style}">{content}</div>'


def verdict(rows: Sequence[Row], failed: Sequence[str]) -> Cell:
    """One sentence on all goals."""
    judged = [row for row in rows if row.get("goal")]
    missed = sum(row["holds"] == "NO" for row in judged)
    reached = sum(row["holds"] == "yes" for row in judged)
    text = f"{reached} of {len(judged)} goals are reached, {missed} are missed, "
    text += f"{len(judged) - reached - missed} could not be judged."
    if failed:
        text += f" Failed: {', '.join(failed)}."
    return Cell(text, not missed and not failed if judged else None)


def sections(files: Mapping[str, tuple[datetime, list[Row]]], build: Path) -> Iterator[Section]:
    """Rows that fell short, the whole table, its files, plots of growth and of the mixed load."""
    missed = [
        line
        for name, (_, rows) in files.items()
        for line in lines(name, [row for row in rows if row.get("goal") and row["holds"] == "NO"])
    ]
    if missed:
        yield Section(title="Fell short", content=_small(table(HEADER, missed)))
    cells = [line for name, (_, rows) in files.items() for line in lines(name, rows)]
    yield Section(title="Works", content=_small(table(HEADER, cells)))
    times = [
        (name, Cell(f"{when:%Y-%m-%d %H:%M} UTC"), len(rows))
        for name, (when, rows) in files.items()
    ]
    yield Section(title="Files", content=table(("file", "measured", "rows"), times))
    rows = [row for _, found in files.values() for row in found]
    if drawn := "".join(plots(rows)):
        yield Section(title="Growth", content=_grid(drawn))
    yield from timeline(build / "soak-samples.json")


def main() -> None:
    """Read the results, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=Path("build"), help="where results are")
    parser.add_argument("--failed", default="", help="names of steps that failed, by spaces")
    parser.add_argument("--out", type=Path, default=HERE / "report.html")
    given = parser.parse_args()
    files = {
        path.stem: (datetime.fromtimestamp(path.stat().st_mtime, UTC), load(path))
        for path in sorted(given.build.glob("bench*.json"))
    }
    rows = [row for _, found in files.values() for row in found]
    judged = verdict(rows, given.failed.split())
    given.out.write_text(page("Benchmarks", judged, sections(files, given.build)), "utf-8")
    print(f"{given.out}: {judged.value}")


if __name__ == "__main__":
    main()
