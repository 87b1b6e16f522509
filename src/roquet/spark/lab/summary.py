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

from roquet.spark.lab.answers import POP
from roquet.spark.lab.claims import Claim, claims
from roquet.spark.lab.measures import Row
from roquet.spark.lab.study import Place, Study

Z: Final = 1.959964
"""95 % of a normal distribution lie within so many standard deviations."""

HELD_MAX: Final = 3
"""Measures in memory at one time: of a million histories each takes 8 MB for every strategy."""

CLOSE: Final = 0.005
"""A difference of so much of the better one is none that anybody would choose by."""

Values: TypeAlias = NDArray[np.float64]
"""By history, scenario and strategy; NaN where a measure does not apply."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
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


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody may want of a strategy, and the measure that tells; less is better."""

    text: str
    measure: str
    title: str
    """What the measure is called over a picture."""
    unit: str
    scale: float = 1.0


WANTS: Final = (
    Want(text="even load", measure="load_max_mean", title="load of the busiest member",
         unit="times the mean"),
    Want(text="few moves", measure="moved", title="queues that move", unit="queues"),
    Want(text="short pauses", measure="paused_s", title="pauses of all queues", unit="s"),
    Want(text="few doubles", measure="doubled", title="messages begun twice", unit="%", scale=100),
    Want(text="small bursts", measure="burst", title="burst after a pause",
         unit="times the mean"),
    Want(text="a short tail", measure="p99_ms", title="latency, 99th percentile", unit="s",
         scale=0.001),
    Want(text="no time lost", measure="lost_work", title="members idle while messages wait",
         unit="% of their time", scale=100),
)  # fmt: skip


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The best strategies for one want in one scenario, of those that leave nothing unhandled."""

    measure: str
    best: tuple[str, ...]
    """With owners of queues; several where their difference is within its interval."""
    of: int
    """So many were compared."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario."""

    name: str
    figures: Mapping[str, Mapping[str, Figure]]
    """By strategy and measure."""
    choices: tuple[Choice, ...]


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a report tells."""

    study: Study
    rows: int
    parts: tuple[Part, ...]
    claims: tuple[Claim, ...]


NOT_CHOSEN: Final = frozenset({POP, "CONFIG"})
"""POP shares something else, and stands beside them; CONFIG is what an operator once wrote."""

_TEXTS: Final = frozenset({"scenario", "history", "strategy", "mode"})


class Table(Mapping[str, Values]):
    """The Parquet files of a finished study, a measure at a time, in the order of the histories."""

    def __init__(self, study: Study, place: Place) -> None:
        self._shape = study.histories, len(study.scenarios), len(study.strategies)
        self._files = sorted(place.table.rglob("*.parquet"))
        self._names = [name for name in Row.__struct_fields__ if name not in _TEXTS]
        self._held: dict[str, Values] = {}

    def __getitem__(self, name: str) -> Values:
        if name not in self._held:
            parts = [pq.ParquetFile(file).read([name]).column(0).to_numpy() for file in self._files]
            while len(self._held) >= HELD_MAX:
                del self._held[next(iter(self._held))]
            self._held[name] = np.concatenate(parts).astype(np.float64).reshape(self._shape)
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def summarize(study: Study, place: Place) -> Summary:
    """Read the whole table, a measure at a time."""
    table = Table(study, place)
    count = len(study.scenarios)
    sound = [_sound(study, table["stranded"][:, number]) for number in range(count)]
    figures: list[dict[str, dict[str, Figure]]] = [
        {name: {} for name in study.strategies} for _ in range(count)
    ]
    choices: dict[str, list[Choice | None]] = {}
    for measure, values in table.items():
        for number, own in enumerate(figures):
            for column, name in enumerate(study.strategies):
                if (found := figure(values[:, number, column])) is not None:
                    own[name][measure] = found
        choices[measure] = [
            _choice(study, measure, values[:, number], sound[number]) for number in range(count)
        ]
    wanted = [choices[want.measure] for want in WANTS]
    return Summary(
        study=study,
        rows=study.histories * study.contests,
        parts=tuple(
            Part(
                name=scenario.name,
                figures=figures[number],
                choices=tuple(one for own in wanted if (one := own[number]) is not None),
            )
            for number, scenario in enumerate(study.scenarios)
        ),
        claims=tuple(claims(study, table)),
    )


def _sound(study: Study, stranded: Values) -> Sequence[int]:
    """The places of strategies that may be chosen: they left nothing unhandled."""
    return [
        place
        for place, name in enumerate(study.strategies)
        if name not in NOT_CHOSEN and not stranded[:, place].any()
    ]


def figure(values: Values) -> Figure | None:
    """Mean, interval and spread of histories; None when the measure applies to none."""
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    low, median, high = np.quantile(known, (0.05, 0.5, 0.95), method="nearest")
    return Figure(
        count=len(known),
        mean=float(known.mean()),
        margin=_margin(known),
        low=float(low),
        median=float(median),
        high=float(high),
        most=float(known.max()),
    )


def _margin(values: Values) -> float:
    return float(Z * values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0


def _choice(study: Study, measure: str, values: Values, sound: Sequence[int]) -> Choice | None:
    """The best one and all that cannot be told from it; the one to take stands first."""
    known = [place for place in sound if not np.isnan(values[:, place]).all()]
    if not known:
        return None
    best = min(known, key=lambda place: float(np.nanmean(values[:, place])))
    alike = [place for place in known if is_alike(values[:, place], values[:, best])]
    # Of equals AVG, which every client does by default; else the best one.
    alike.sort(key=lambda place: (study.strategies[place] != "AVG", place != best))
    names = tuple(study.strategies[place] for place in alike)
    return Choice(measure=measure, best=names, of=len(known))


def is_alike(values: Values, best: Values) -> bool:
    """Whether a strategy cannot be told from the best, or is so near that nobody would care."""
    apart = values - best
    apart = apart[~np.isnan(apart)]
    if not len(apart):
        return False
    mean = float(apart.mean())
    return mean <= max(_margin(apart), CLOSE * abs(float(np.nanmean(best))))
