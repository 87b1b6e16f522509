"""roquet simulate: clusters that live and die in virtual time, judged."""

import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from roquet.cli.terminal import output
from roquet.cli.terminal.exit_codes import FAILED

if TYPE_CHECKING:
    from roquet.testing.simulation.balance.run import SimulationResult

SHOWN_MAX: Final = 5
"""Faults of one seed that are printed; `--json` has all."""


ALL: Final = "all"
"""The scenario that is half of the seeds of each kind."""


def simulate(
    *,
    scenario: Annotated[
        str, typer.Option(help="What is simulated: day, balance, or all: half of the seeds each.")
    ] = ALL,
    seeds: Annotated[int, typer.Option(min=1, help="How many courses of events.")] = 100,
    first: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0 is one a core.")] = 0,
    defect: Annotated[str, typer.Option(help="A bug to plant first; `list` names them.")] = "none",
    trace: Annotated[bool, typer.Option("--trace", help="Every line of what happened.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One line of JSON for each seed.")] = False,
) -> None:
    """Simulate clusters, and check each one.

    `balance`: members that join, leave and die, brokers that are parted, slow or crash. `day`:
    hours of delay levels, delivery times, transactions and retries, with brokers that crash.

    A seed always gives the same course of events:
    `roquet simulate --scenario day --first 17 --seeds 1 --trace`.
    """
    from roquet.testing.simulation.workloads import DEFECTS

    if defect == "list":
        for name, (kind, planted) in DEFECTS.items():
            output.echo(f"{name:20} {kind:8} {(planted.__doc__ or '').partition('.')[0]}")
        return
    work = _work(_kinds(scenario, defect), range(first, first + seeds))
    failed = acknowledged = handled = 0
    for outcome in _outcomes(work, defect, jobs or os.cpu_count() or 1, shown=not json):
        failed += bool(outcome.faults)
        acknowledged += outcome.acknowledged
        handled += outcome.handled
        _tell(outcome, json=json, trace=trace)
    if not json:
        output.echo(
            f"{_count(seeds)}, {acknowledged:,} messages acknowledged, {handled:,} handlings: "
            f"{f'{_count(failed)} with faults' if failed else 'no faults'}"
        )
    if failed:
        sys.exit(FAILED)


def _kinds(scenario: str, defect: str) -> list[str]:
    """What to simulate: a planted bug is looked for where it can be found."""
    from roquet.model.errors import UsageError
    from roquet.model.settings import suggest
    from roquet.testing.simulation.workloads import DEFECTS, WORKLOADS

    if scenario not in {*WORKLOADS, ALL}:
        names = [*WORKLOADS, ALL]
        raise UsageError(f"no scenario is called {scenario!r}{suggest(scenario, names)}")
    if defect not in {*DEFECTS, "none"}:
        raise UsageError(f"no defect is called {defect!r}{suggest(defect, [*DEFECTS])}")
    if scenario != ALL:
        return [scenario]
    return [*WORKLOADS] if defect == "none" else [DEFECTS[defect][0]]


def _work(kinds: Sequence[str], seeds: range) -> list[tuple[str, int]]:
    """Kind and seed of each course of events; kinds share the number, each from the first on."""
    return [
        (kind, seed)
        for turn, kind in enumerate(kinds)
        for seed in seeds[: len(range(turn, len(seeds), len(kinds)))]
    ]


def _count(seeds: int) -> str:
    return f"{seeds:,} seed{'s' if seeds > 1 else ''}"


def _tell(outcome: "SimulationResult", *, json: bool, trace: bool) -> None:
    """One seed's result."""
    if json:
        fields = {"lines": outcome.lines} if trace else {}
        told = {
            "scenario": outcome.kind,
            "seed": outcome.seed,
            "digest": outcome.digest,
            "faults": outcome.faults,
        }
        output.echo_json([{**told, **fields}])
        return
    if trace:
        for line in outcome.lines:
            output.echo(line)
    for fault in outcome.faults[:SHOWN_MAX]:
        output.echo(f"{outcome.kind} seed {outcome.seed}: {fault}")
    if len(outcome.faults) > SHOWN_MAX:
        output.echo(
            f"{outcome.kind} seed {outcome.seed}: and {len(outcome.faults) - SHOWN_MAX} more"
        )


def _outcomes(
    work: Sequence[tuple[str, int]], defect: str, jobs: int, *, shown: bool
) -> Iterator["SimulationResult"]:
    """In the order of the seeds, with a bar while it lasts."""
    from concurrent.futures import ProcessPoolExecutor
    from functools import partial
    from multiprocessing import get_context

    from rich.progress import track

    from roquet.testing.simulation.workloads import run_seed

    if len(work) == 1:
        _hush("CRITICAL")
        try:
            yield run_seed(work[0], defect)
        finally:
            _hush("NOTSET")
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_hush) as pool:
        outcomes = pool.map(partial(run_seed, defect=defect), work, chunksize=4)
        bar = output.console(to_stderr=True, quiet=not shown)
        yield from track(outcomes, "simulating", total=len(work), console=bar)


def _hush(level: str = "CRITICAL") -> None:
    """Say nothing of the troubles that brokers and clients have: they are part of the play."""
    import logging

    for name in ("roquet", "asyncio"):
        logging.getLogger(name).setLevel(level)
