"""Summary: means with confidence intervals, the best strategies and the checked claims.

Every strategy is simulated on the same histories, so two strategies are compared history by
history: the interval of their difference is narrower than that of either mean.
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
"""Standard deviations on either side of the mean that hold 95 % of a normal distribution."""

CACHED_MEASURES_MAX: Final = 3
"""Measures in memory at the same time; one of a million histories has 8 MB for each strategy."""

NEGLIGIBLE_FRACTION: Final = 0.005
"""A difference below this part of the better mean is too small to choose by."""

MeasureArray: TypeAlias = NDArray[np.float64]
"""One measure by history, scenario and strategy; NaN where it does not apply."""


class MeasureStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of one measure of one strategy in one scenario."""

    count: int
    """Histories to which it applies."""
    mean: float
    margin: float
    """Half the width of the 95 % confidence interval of the mean."""
    low: float
    """5th percentile."""
    median: float
    high: float
    """95th percentile."""
    most: float
    """Maximum."""


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """A goal that a user may have, and its measure, of which less is better."""

    text: str
    measure: str
    title: str
    """Heading of the measure's picture."""
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


class PairedDifference(msgspec.Struct, frozen=True, kw_only=True):
    """How much more of a measure a strategy has than the best one, history by history."""

    strategy: str
    mean: float
    margin: float
    """Half the width of the 95 % confidence interval of the mean difference."""


class GoalChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The best strategies for one goal in one scenario, of those that handle all messages."""

    measure: str
    best: tuple[str, ...]
    """Strategies with queue owners; several where their difference is not significant."""
    of: int
    """The number of strategies that were compared."""
    next: PairedDifference | None = None
    """The best of those that are not as good; None without any."""


class ScenarioSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one scenario."""

    name: str
    figures: Mapping[str, Mapping[str, MeasureStatistics]]
    """By strategy and measure."""
    choices: tuple[GoalChoice, ...]


class StudySummary(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a report, and of `summary.json`."""

    study: Study
    rows: int
    parts: tuple[ScenarioSummary, ...]
    claims: tuple[InvariantResult, ...]


NOT_CHOSEN: Final = frozenset({POP, "CONFIG"})
"""Strategies that are never recommended: POP shares messages and not queues, and CONFIG is a fixed
assignment by an operator."""

_ID_COLUMNS: Final = frozenset({"scenario", "history", "strategy", "mode"})


class StudyTable(Mapping[str, MeasureArray]):
    """The Parquet files of a finished study, read one measure at a time."""

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
    """Summarize a finished study."""
    table = StudyTable(study, place)
    count = len(study.scenarios)
    eligible = [_eligible(study, table["stranded"][:, number]) for number in range(count)]
    figures: list[dict[str, dict[str, MeasureStatistics]]] = [
        {name: {} for name in study.strategies} for _ in range(count)
    ]
    choices: dict[str, list[GoalChoice | None]] = {}
    for measure, values in table.items():
        for number, own in enumerate(figures):
            for column, name in enumerate(study.strategies):
                if (statistics := statistics_of(values[:, number, column])) is not None:
                    own[name][measure] = statistics
        choices[measure] = [
            _choose(study, measure, values[:, number], eligible[number]) for number in range(count)
        ]
    wanted = [choices[goal.measure] for goal in GOALS]
    return StudySummary(
        study=study,
        rows=study.histories * study.contests,
        parts=tuple(
            ScenarioSummary(
                name=scenario.name,
                figures=figures[number],
                choices=tuple(choice for own in wanted if (choice := own[number]) is not None),
            )
            for number, scenario in enumerate(study.scenarios)
        ),
        claims=tuple(claims(study, table)),
    )


def _eligible(study: Study, stranded: MeasureArray) -> Sequence[int]:
    """Indexes of the strategies that may be recommended: they handled all messages."""
    return [
        place
        for place, name in enumerate(study.strategies)
        if name not in NOT_CHOSEN and not stranded[:, place].any()
    ]


def statistics_of(values: MeasureArray) -> MeasureStatistics | None:
    """Mean, confidence interval and quantiles; None when the measure applies to no history."""
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
    study: Study, measure: str, values: MeasureArray, eligible: Sequence[int]
) -> GoalChoice | None:
    """The best strategy and all that are equivalent to it, the recommended one first."""
    known = [place for place in eligible if not np.isnan(values[:, place]).all()]
    if not known:
        return None
    known.sort(key=lambda place: float(np.nanmean(values[:, place])))
    best = known[0]
    alike = [place for place in known if is_equivalent(values[:, place], values[:, best])]
    # Of equivalent ones AVG, every client's default, is recommended; else the best one.
    alike.sort(key=lambda place: (study.strategies[place] != "AVG", place != best))
    names = tuple(study.strategies[place] for place in alike)
    difference = None
    for worse in [place for place in known if place not in alike][:1]:
        if len(apart := _difference(values[:, worse], values[:, best])):
            difference = PairedDifference(
                strategy=study.strategies[worse], mean=float(apart.mean()), margin=_margin(apart)
            )
    return GoalChoice(measure=measure, best=names, of=len(known), next=difference)


def is_equivalent(values: MeasureArray, best: MeasureArray) -> bool:
    """Whether a strategy's difference from the best is not significant, or negligible."""
    apart = _difference(values, best)
    if not len(apart):
        return False
    mean = float(apart.mean())
    return mean <= max(_margin(apart), NEGLIGIBLE_FRACTION * abs(float(np.nanmean(best))))


def _difference(values: MeasureArray, others: MeasureArray) -> MeasureArray:
    """The differences of the histories to which a measure applies under both strategies."""
    apart = values - others
    return apart[~np.isnan(apart)]
