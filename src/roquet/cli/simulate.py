"""roquet simulate: clusters that live and die in virtual time, judged."""

import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from roquet.testing.simulation.run import Outcome

FOUND: Final = 1
"""The exit code when a check failed."""

SHOWN_MAX: Final = 5
"""Faults of one seed that are printed; `--json` has all."""


def simulate(
    *,
    seeds: Annotated[int, typer.Option(min=1, help="How many courses of events.")] = 100,
    first: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0 is one a core.")] = 0,
    defect: Annotated[str, typer.Option(help="A bug to plant first; `list` names them.")] = "none",
    trace: Annotated[bool, typer.Option("--trace", help="Every line of what happened.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One line of JSON for each seed.")] = False,
) -> None:
    """Simulate clusters with joins, leaves, kills, parted and slow brokers; check each one.

    A seed always gives the same course of events: `roquet simulate --first 17 --seeds 1 --trace`.
    """
    from roquet.testing.simulation.defects import DEFECTS

    if defect == "list":
        for name, planted in DEFECTS.items():
            typer.echo(f"{name:12} {(planted.__doc__ or '').partition('.')[0]}")
        return
    if defect not in DEFECTS:
        from roquet.model.errors import UsageError
        from roquet.model.settings import nearest

        raise UsageError(f"no defect is called {defect!r}{nearest(defect, [*DEFECTS])}")
    wanted = range(first, first + seeds)
    failed = acknowledged = handled = 0
    for outcome in _outcomes(wanted, defect, jobs or os.cpu_count() or 1, shown=not json):
        failed += bool(outcome.faults)
        acknowledged += outcome.acknowledged
        handled += outcome.handled
        _tell(outcome, json=json, trace=trace)
    if not json:
        typer.echo(
            f"{_count(seeds)}, {acknowledged:,} messages acknowledged, {handled:,} handlings: "
            f"{f'{_count(failed)} with faults' if failed else 'no faults'}"
        )
    if failed:
        sys.exit(FOUND)


def _count(seeds: int) -> str:
    return f"{seeds:,} seed{'s' if seeds > 1 else ''}"


def _tell(outcome: "Outcome", *, json: bool, trace: bool) -> None:
    """One seed's result."""
    if json:
        import msgspec

        fields = {"lines": outcome.lines} if trace else {}
        told = {"seed": outcome.scenario.seed, "digest": outcome.digest, "faults": outcome.faults}
        typer.echo(msgspec.json.encode({**told, **fields}).decode())
        return
    if trace:
        for line in outcome.lines:
            typer.echo(line)
    for fault in outcome.faults[:SHOWN_MAX]:
        typer.echo(f"seed {outcome.scenario.seed}: {fault}")
    if len(outcome.faults) > SHOWN_MAX:
        typer.echo(f"seed {outcome.scenario.seed}: and {len(outcome.faults) - SHOWN_MAX} more")


def _outcomes(seeds: Sequence[int], defect: str, jobs: int, *, shown: bool) -> Iterator["Outcome"]:
    """In the order of the seeds, with a bar while it lasts."""
    from concurrent.futures import ProcessPoolExecutor
    from functools import partial
    from multiprocessing import get_context

    from rich.console import Console
    from rich.progress import track

    from roquet.testing.simulation.defects import live

    if len(seeds) == 1:
        _hush("CRITICAL")
        try:
            yield live(defect, seeds[0])
        finally:
            _hush("NOTSET")
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_hush) as pool:
        work = pool.map(partial(live, defect), seeds, chunksize=4)
        bar = Console(stderr=True, quiet=not shown)
        yield from track(work, "simulating", total=len(seeds), console=bar)


def _hush(level: str = "CRITICAL") -> None:
    """Say nothing of the troubles that brokers and clients have: they are part of the play."""
    import logging

    for name in ("roquet", "asyncio"):
        logging.getLogger(name).setLevel(level)
