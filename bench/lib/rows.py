"""Rows: results of benchmarks, as a table for eyes and as JSON for the report."""

import json
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from bench.lib.calibration import REPEATS_MAX, Calibration, steadily, summary

GOAL = re.compile(r"(?P<sign><=|>=) (?P<figure>[\d.,]+)(?P<ratio> x)?")


@dataclass
class Row:
    """One line of the result: a work, what each side did, the goal as a ratio or a bound."""

    work: str
    unit: str
    ours: float | None = None
    theirs: float | None = None
    goal: str = ""
    """Such as `>= 1.2 x` the other side's figure, `<= 200 ms`; empty for none."""
    cause: str = ""
    """Why a goal is not reached; empty where it is, or where nobody knows."""
    series: str = ""
    """The plot of the report that this row is a point of, such as `connections: p99`."""
    x: float | None = None
    """Its place on the x axis of that plot."""
    calibration: str = ""
    """How fast the machine was meanwhile, as `calibration.summary` says it."""

    @property
    def ratio(self) -> float | None:
        """Ours to theirs."""
        return self.ours / self.theirs if self.ours is not None and self.theirs else None

    @property
    def verdict(self) -> str:
        """Whether the goal is reached, where that can be said."""
        if self.ours is None:
            return "not run"
        if (goal := GOAL.match(self.goal)) is None:
            return "yes"
        most_or_least, is_ratio = float(goal["figure"].replace(",", "")), bool(goal["ratio"])
        if is_ratio and self.theirs is None:
            return "no peer"
        limit = most_or_least * (self.theirs or 0) if is_ratio else most_or_least
        holds = self.ours <= limit if goal["sign"] == "<=" else self.ours >= limit
        return "yes" if holds and (limit or not is_ratio) else "NO"


class Measured(Protocol):
    """A measurement that was made by `steadily`."""

    @property
    def calibration(self) -> Calibration | None:
        """None where it was made up, by a test."""


M = TypeVar("M", bound=Measured)

Rounds = Mapping[str, Sequence[M]]
"""Measurements of each round by side: `ours`, and `genuine` where it was measured, too."""


def compared(work: str, unit: str, rounds: Rounds[M], figure: Callable[[M], float]) -> Row:
    """A line with the medians of a figure on both sides, without a goal."""
    values = {side: statistics.median(map(figure, all_)) for side, all_ in rounds.items()}
    return Row(
        work, unit, values["ours"], values.get("genuine"), calibration=calibration_of(rounds)
    )


def in_each_round(row: Row, rounds: Rounds[M], figure: Callable[[M], float]) -> list[Row]:
    """The row, and its goal as that of the worst round, whose sides were measured in turn.

    Without the other side there is no second line.
    """
    if "genuine" not in rounds:
        return [row]
    pairs = zip(rounds["ours"], rounds["genuine"], strict=True)
    ratios = [figure(one) / figure(other) for one, other in pairs]
    worst = max(ratios) if row.goal.startswith("<=") else min(ratios)
    goal = row.goal.removesuffix(" x")
    return [
        row,
        replace(row, work=f"{row.work}, worst round", unit="x", ours=worst, theirs=None, goal=goal),
    ]


def calibration_of(rounds: Rounds[M]) -> str:
    """How fast the machine was in all rounds of both sides."""
    each = (one.calibration for all_ in rounds.values() for one in all_)
    return summary(one for one in each if one)


def calibrated(measure: Callable[[], Iterable[Row]], repeats_max: int = REPEATS_MAX) -> list[Row]:
    """Rows of a work that is measured as a whole, with its calibration where they have no own."""
    table, calibration = steadily(lambda: list(measure()), repeats_max)
    return [replace(row, calibration=row.calibration or summary([calibration])) for row in table]


def bound(work: str, unit: str, value: float, most: float) -> Row:
    """A line whose goal is a figure of its own."""
    return Row(work, unit, value, None, f"<= {most}")


def reach(work: str, unit: str, value: float, least: float) -> Row:
    """A line whose goal is a figure of its own, or more."""
    return Row(work, unit, value, None, f">= {least:,}")


def at_least(row: Row, goal: str) -> Row:
    """The row with a goal: this figure or more, such as `1.2 x` the other side's."""
    row.goal = f">= {goal}"
    return row


def at_most(row: Row, goal: str) -> Row:
    """The row with a goal: this figure or less, such as `0.6 x` the other side's."""
    row.goal = f"<= {goal}"
    return row


def show(table: list[Row], peer: str = "genuine") -> None:
    """The table, for eyes."""
    names = f"{'work':58} {'unit':7} {'ours':>12} {peer:>12} {'ratio':>7} {'goal':>10}"
    print(f"\n{names}  holds  calibration")
    for row in table:
        ours_ = "-" if row.ours is None else f"{row.ours:,.3f}"
        theirs_ = "-" if row.theirs is None else f"{row.theirs:,.3f}"
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
        line = f"{row.work:58} {row.unit:7} {ours_:>12} {theirs_:>12} {ratio:>7} {row.goal:>10}"
        print(f"{line}  {row.verdict:5}  {row.calibration}")


def save(table: list[Row], out: Path, peer: str = "genuine") -> None:
    """The rows as JSON, in a file."""
    out.parent.mkdir(parents=True, exist_ok=True)
    results = [
        {"work": r.work, "unit": r.unit, "ours": r.ours, peer: r.theirs, "ratio": r.ratio,
         "goal": r.goal, "holds": r.verdict if r.goal else "", "cause": r.cause,
         "calibration": r.calibration,
         **({"series": r.series, "x": r.x} if r.series else {})}
        for r in table
    ]  # fmt: skip
    out.write_text(json.dumps(results, indent=2) + "\n")
