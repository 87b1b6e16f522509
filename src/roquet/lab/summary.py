"""Summary: what all histories say together: means with their intervals, who is best, the claims.

Every strategy plays the same histories, so two of them are compared history by history: the
interval of their difference is narrower than that of either mean.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from roquet.lab.decisions import POP
from roquet.lab.invariants import InvariantResult, claims
from roquet.lab.measures import HistoryMeasures
from roquet.lab.study import Study, StudyDirectory

Z: Final = 1.959964
"""95 % of a normal distribution lie within so many standard deviations."""

CACHED_MEASURES_MAX: Final = 3
"""Measures in memory at one time: of a million histories each takes 8 MB for every strategy."""

NEGLIGIBLE_FRACTION: Final = 0.005
"""A difference of so much of the better one is none that anybody would choose by."""

MeasureArray: TypeAlias = NDArray[np.float64]
"""By history, scenario and strategy; NaN where a measure does not apply."""


class MeasureStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """One measure of one strategy in one scenario."""

    count: int
    """Histories to which it applies."""
    mean: float
    margin: float
    """The mean of all histories there could be is within so much of this one, with 95 %."""
    low: float
    median: float
    high: float
    """A twentieth of the histories is below, half, a twentieth above."""
    most: float


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody may want of a strategy, and the measure that tells; less is better."""

    text: str
    measure: str
    title: str
    """What the measure is called over a picture."""
    unit: str
    scale: float = 1.0


GOALS: Final = (
    Goal(text="even load", measure="load_max_mean", title="load of the busiest member",
         unit="times the mean"),
    Goal(text="few moves", measure="moved", title="queues that move", unit="queues"),
    Goal(text="short pauses", measure="paused_s", title="pauses of all queues", unit="s"),
    Goal(text="few doubles", measure="doubled", title="messages begun twice", unit="%", scale=100),
    Goal(text="small bursts", measure="burst", title="burst after a pause",
         unit="times the mean"),
    Goal(text="a short tail", measure="p99_ms", title="latency, 99th percentile", unit="s",
         scale=0.001),
    Goal(text="no time lost", measure="lost_work", title="members idle while messages wait",
         unit="% of their time", scale=100),
)  # fmt: skip


class GoalChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The best strategies for one want in one scenario, of those that leave nothing unhandled."""

    measure: str
    best: tuple[str, ...]
    """With owners of queues; several where their difference is within its interval."""
    of: int
    """So many were compared."""


class ScenarioSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario."""

    name: str
    figures: Mapping[str, Mapping[str, MeasureStatistics]]
    """By strategy and measure."""
    choices: tuple[GoalChoice, ...]


class StudySummary(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a report tells."""

    study: Study
    rows: int
    parts: tuple[ScenarioSummary, ...]
    claims: tuple[InvariantResult, ...]


NOT_CHOSEN: Final = frozenset({POP, "CONFIG"})
"""POP shares something else, and stands beside them; CONFIG is what an operator once wrote."""

_ID_COLUMNS: Final = frozenset({"scenario", "history", "strategy", "mode"})


class StudyTable(Mapping[str, MeasureArray]):
    """The Parquet files of a finished study, a measure at a time, in the order of the histories."""

    def __init__(self, study: Study, place: StudyDirectory) -> None:
        self._shape = study.histories, len(study.scenarios), len(study.strategies)
        self._files = sorted(place.table.rglob("*.parquet"))
        self._names = [
            name for name in HistoryMeasures.__struct_fields__ if name not in _ID_COLUMNS
        ]
        self._held: dict[str, MeasureArray] = {}

    def __getitem__(self, name: str) -> MeasureArray:
        if name not in self._held:
            parts = [pq.ParquetFile(file).read([name]).column(0).to_numpy() for file in self._files]
            while len(self._held) >= CACHED_MEASURES_MAX:
                del self._held[next(iter(self._held))]
            self._held[name] = np.concatenate(parts).astype(np.float64).reshape(self._shape)
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def summarize(study: Study, place: StudyDirectory) -> StudySummary:
    """Read the whole table, a measure at a time."""
    table = StudyTable(study, place)
    count = len(study.scenarios)
    sound = [_eligible(study, table["stranded"][:, number]) for number in range(count)]
    figures: list[dict[str, dict[str, MeasureStatistics]]] = [
        {name: {} for name in study.strategies} for _ in range(count)
    ]
    choices: dict[str, list[GoalChoice | None]] = {}
    for measure, values in table.items():
        for number, own in enumerate(figures):
            for column, name in enumerate(study.strategies):
                if (found := statistics_of(values[:, number, column])) is not None:
                    own[name][measure] = found
        choices[measure] = [
            _choose(study, measure, values[:, number], sound[number]) for number in range(count)
        ]
    wanted = [choices[want.measure] for want in GOALS]
    return StudySummary(
        study=study,
        rows=study.histories * study.contests,
        parts=tuple(
            ScenarioSummary(
                name=scenario.name,
                figures=figures[number],
                choices=tuple(one for own in wanted if (one := own[number]) is not None),
            )
            for number, scenario in enumerate(study.scenarios)
        ),
        claims=tuple(claims(study, table)),
    )


def _eligible(study: Study, stranded: MeasureArray) -> Sequence[int]:
    """The places of strategies that may be chosen: they left nothing unhandled."""
    return [
        place
        for place, name in enumerate(study.strategies)
        if name not in NOT_CHOSEN and not stranded[:, place].any()
    ]


def statistics_of(values: MeasureArray) -> MeasureStatistics | None:
    """Mean, interval and spread of histories; None when the measure applies to none."""
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    low, median, high = np.quantile(known, (0.05, 0.5, 0.95), method="nearest")
    return MeasureStatistics(
        count=len(known),
        mean=float(known.mean()),
        margin=_margin(known),
        low=float(low),
        median=float(median),
        high=float(high),
        most=float(known.max()),
    )


def _margin(values: MeasureArray) -> float:
    return float(Z * values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0


def _choose(
    study: Study, measure: str, values: MeasureArray, sound: Sequence[int]
) -> GoalChoice | None:
    """The best one and all that cannot be told from it; the one to take stands first."""
    known = [place for place in sound if not np.isnan(values[:, place]).all()]
    if not known:
        return None
    best = min(known, key=lambda place: float(np.nanmean(values[:, place])))
    alike = [place for place in known if is_equivalent(values[:, place], values[:, best])]
    # Of equals AVG, which every client does by default; else the best one.
    alike.sort(key=lambda place: (study.strategies[place] != "AVG", place != best))
    names = tuple(study.strategies[place] for place in alike)
    return GoalChoice(measure=measure, best=names, of=len(known))


def is_equivalent(values: MeasureArray, best: MeasureArray) -> bool:
    """Whether a strategy cannot be told from the best, or is so near that nobody would care."""
    apart = values - best
    apart = apart[~np.isnan(apart)]
    if not len(apart):
        return False
    mean = float(apart.mean())
    return mean <= max(_margin(apart), NEGLIGIBLE_FRACTION * abs(float(np.nanmean(best))))
