"""Invariants: what the documents claim of the strategies, checked against every history."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from roquet.lab.decisions import POP
from roquet.lab.study import Study

EVEN_STRATEGIES: Final = ("AVG", "AVG_BY_CIRCLE", "STICKY")
OWNER_OPTIONAL: Final = ("CONFIG", "MACHINE_ROOM")
"""Strategies that may leave queues without an owner, by design."""

TOLERANCE: Final = 0.1
""""About 1/n" means within this part of it, or within the confidence interval of few histories."""


class InvariantResult(msgspec.Struct, frozen=True, kw_only=True):
    """A claim, the measured value, and whether the claim holds."""

    text: str
    found: str
    holds: bool


MeasureArrays = Mapping[str, NDArray[np.float64]]
InvariantCheck = Callable[[Study, MeasureArrays], Iterator[InvariantResult]]


def claims(study: Study, values: MeasureArrays) -> Sequence[InvariantResult]:
    """Check every claim that applies to these scenarios and strategies."""
    return [claim for check in CHECKS for claim in check(study, values)]


def _of(study: Study, values: MeasureArrays, measure: str, name: str) -> NDArray[np.float64]:
    return values[measure][:, :, study.strategies.index(name)]


def _even(study: Study, values: MeasureArrays) -> Iterator[InvariantResult]:
    for name in EVEN_STRATEGIES:
        if name in study.strategies:
            most = int(_of(study, values, "spread_max", name).max())
            yield InvariantResult(
                text=f"{name}: members' shares differ by one queue at most",
                found=f"{most} at most, after {_changes(study, values, name):,} changes",
                holds=most <= 1,
            )


def _changes(study: Study, values: MeasureArrays, name: str) -> int:
    return int(_of(study, values, "changes", name).sum())


def _about_one_in_n(study: Study, values: MeasureArrays) -> Iterator[InvariantResult]:
    for name in ("CONSISTENT_HASH", "RENDEZVOUS"):
        if name not in study.strategies or not _changes(study, values, name):
            continue
        moved = _of(study, values, "moved", name).sum(axis=1)
        fair = _of(study, values, "moved_fair", name).sum(axis=1)
        ratio = moved.sum() / fair.sum()
        spread = (moved - ratio * fair).std() / fair.mean() / len(moved) ** 0.5
        margin = float(1.96 * spread)
        yield InvariantResult(
            text=f"{name}: who comes or goes moves about 1/n of the queues",
            found=f"{ratio:.3f} ± {margin:.3f} times 1/n",
            holds=bool(abs(ratio - 1) <= max(TOLERANCE, margin)),
        )
        strayed = int(_of(study, values, "strayed", name).sum())
        yield InvariantResult(
            text=f"{name}: no queue moves between members that stay",
            found=f"{strayed:,} of {int(moved.sum()):,} moves",
            holds=not strayed,
        )


def _fewest_moves(study: Study, values: MeasureArrays) -> Iterator[InvariantResult]:
    if "STICKY" in study.strategies:
        moved = _of(study, values, "moved", "STICKY")
        least = _of(study, values, "moved_least", "STICKY")
        yield InvariantResult(
            text="STICKY: no fewer moves would keep shares even",
            found=f"{int(moved.sum()):,} moves, the least is {int(least.sum()):,}",
            holds=bool((moved == least).all()),
        )


def _idle(study: Study, values: MeasureArrays) -> Iterator[InvariantResult]:
    spare = values["spare_members"]
    if not spare.any():
        return
    owned = [n for n, name in enumerate(study.strategies) if name != POP]
    if owned:
        idle = values["idle_members"][:, :, owned]
        yield InvariantResult(
            text="More members than queues: those beyond are idle, whatever the strategy",
            found=f"{idle[spare[:, :, owned] > 0].mean():.2f} idle on average, "
            f"{spare[spare > 0].mean():.2f} beyond",
            holds=bool((idle >= spare[:, :, owned] - 1e-9).all()),
        )


def _pop_never_idle(study: Study, values: MeasureArrays) -> Iterator[InvariantResult]:
    if POP in study.strategies:
        idle = _of(study, values, "idle_members", POP)
        lost = _of(study, values, "lost_work", POP).mean()
        yield InvariantResult(
            text="POP: no member is without anything to take from",
            found=f"{idle.mean():.2f} on average; {lost:.2%} of their time lost",
            holds=not idle.any(),
        )


def _key_order(study: Study, values: MeasureArrays) -> Iterator[InvariantResult]:
    keyed = [number for number, scenario in enumerate(study.scenarios) if scenario.keyed]
    owned = [n for n, name in enumerate(study.strategies) if name != POP]
    if keyed and owned:
        broken = values["disordered"][:, keyed][:, :, owned]
        yield InvariantResult(
            text="Queues with owners: the messages of a key keep their order",
            found=f"{broken.mean():.2%} out of order",
            holds=not broken.any(),
        )


def _every_queue_owned(study: Study, values: MeasureArrays) -> Iterator[InvariantResult]:
    owned = [n for n, name in enumerate(study.strategies) if name not in (POP, *OWNER_OPTIONAL)]
    if owned:
        left = values["unowned_share"][:, :, owned]
        lost = values["stranded"][:, :, owned]
        yield InvariantResult(
            text=f"Every queue has one owner after each change ({', '.join(OWNER_OPTIONAL)} aside)",
            found=f"{left.mean():.2%} of the time without, {int(lost.sum()):,} messages unhandled",
            holds=not left.any() and not lost.any(),
        )


CHECKS: Final[Sequence[InvariantCheck]] = (
    _even, _about_one_in_n, _fewest_moves, _idle, _pop_never_idle, _key_order, _every_queue_owned,
)  # fmt: skip
