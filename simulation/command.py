"""python -m simulation: seeds of simulated clusters with faults, in virtual time, each checked."""

import gc
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Annotated, Final

import typer
from rich.progress import track
from typer.main import get_command

from roquet.cli import main as cli
from roquet.cli.terminal import output
from roquet.cli.terminal.command_help import set_metavars
from roquet.cli.terminal.exit_codes import FAILED
from roquet.model.errors import UsageError
from roquet.model.settings import suggest
from simulation.simulator import SimulationResult
from simulation.workloads import DEFECTS, WORKLOADS, run_seed

SHOWN_MAX: Final = 5
"""Findings of one seed that are printed; `--json` has all."""

CHUNK: Final = 4
"""Seeds that a process is given at once; one, if they are long."""

GC_THRESHOLDS: Final = (50_000, 20, 100)
"""Rarer than Python's own: a seed leaves little until its end."""

ALL: Final = "all"
"""The scenario that shares the seeds among all workloads."""

PROGRAM: Final = "python -m simulation"

app: Final = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def simulate(  # noqa: PLR0913 - the options of a command
    *,
    scenario: Annotated[
        str,
        typer.Option(
            help="What is simulated: balance, day, replicated; or all, which share the seeds."
        ),
    ] = ALL,
    seeds: Annotated[int, typer.Option(min=1, help="How many courses of events.")] = 100,
    faults: Annotated[
        int | None,
        typer.Option(
            min=1, help="Faults that each replicated group lives through.", show_default="6 to 20"
        ),
    ] = None,
    first: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0 is one a core.")] = 0,
    defect: Annotated[str, typer.Option(help="A bug to plant first; `list` names them.")] = "none",
    trace: Annotated[bool, typer.Option("--trace", help="Every line of what happened.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One line of JSON for each seed.")] = False,
) -> None:
    """Simulate clusters, and check each one.

    `balance`: members that join, leave and die, brokers that are parted, slow or crash. `day`:
    hours of delay levels, delivery times, transactions and retries, with brokers that crash.
    `replicated`: three brokers and a controller that die, lose their power, stand still and are
    parted, and lose no acknowledged message; `--faults` makes their lives longer, so that more of
    the time is spent with faults.

    A seed always gives the same course of events:
    `python -m simulation --scenario day --first 17 --seeds 1 --trace`.
    """
    if defect == "list":
        for name, (workload, defect_of) in DEFECTS.items():
            output.echo(f"{name:20} {workload:8} {(defect_of.__doc__ or '').partition('.')[0]}")
        return
    work = _work(_workloads(scenario, defect), range(first, first + seeds))
    if faults is not None and {workload for workload, _ in work} != {"replicated"}:
        raise UsageError("only replicated groups have --faults: add --scenario replicated")
    began = os.times()
    failed = acknowledged = attempts = disturbances = 0
    for result in _run(work, defect, faults, jobs or os.cpu_count() or 1, shown=not json):
        failed += bool(result.findings)
        acknowledged += result.acknowledged
        attempts += result.attempts
        disturbances += result.disturbances
        _print_result(result, defect, faults, json=json, trace=trace)
    if not json:
        output.echo(
            f"{_count(seeds)}, {disturbances:,} disturbances, {acknowledged:,} messages "
            f"acknowledged, {attempts:,} handlings in {_duration(began, os.times())}: "
            f"{f'{_count(failed)} with faults' if failed else 'no faults'}"
        )
    if failed:
        sys.exit(FAILED)


def _workloads(scenario: str, defect: str) -> list[str]:
    """Names of the workloads to run; with a defect, the one that can find it."""
    if scenario not in {*WORKLOADS, ALL}:
        names = [*WORKLOADS, ALL]
        raise UsageError(f"no scenario is called {scenario!r}{suggest(scenario, names)}")
    if defect not in {*DEFECTS, "none"}:
        raise UsageError(f"no defect is called {defect!r}{suggest(defect, [*DEFECTS])}")
    if scenario != ALL:
        return [scenario]
    return [*WORKLOADS] if defect == "none" else [DEFECTS[defect][0]]


def _work(workloads: Sequence[str], seeds: range) -> list[tuple[str, int]]:
    """(workload, seed) of each run; workloads share the seeds, each from the first on."""
    return [
        (workload, seed)
        for turn, workload in enumerate(workloads)
        for seed in seeds[: len(range(turn, len(seeds), len(workloads)))]
    ]


def _count(seeds: int) -> str:
    return f"{seeds:,} seed{'s' if seeds > 1 else ''}"


def _duration(began: os.times_result, ended: os.times_result) -> str:
    """Seconds, and those of all processors."""
    busy_s = sum(ended[:4]) - sum(began[:4])
    return f"{ended.elapsed - began.elapsed:,.0f} s ({busy_s:,.0f} s of CPU)"


def _print_result(
    result: SimulationResult, defect: str, faults: int | None, *, json: bool, trace: bool
) -> None:
    """Print the result of one seed."""
    if json:
        fields = {"lines": result.lines} if trace else {}
        summary = {
            "scenario": result.workload,
            "seed": result.seed,
            "digest": result.digest,
            "disturbances": result.disturbances,
            "acknowledged": result.acknowledged,
            "faults": result.findings,
        }
        output.echo_json([{**summary, **fields}])
        return
    if trace:
        for line in result.lines:
            output.echo(line)
    for finding in result.findings[:SHOWN_MAX]:
        output.echo(f"{result.workload} seed {result.seed}: {finding}")
    if len(result.findings) > SHOWN_MAX:
        output.echo(
            f"{result.workload} seed {result.seed}: and {len(result.findings) - SHOWN_MAX} more"
        )
    if result.findings and not trace:
        options = f" --faults {faults}" if faults is not None else ""
        options += f" --defect {defect}" if defect != "none" else ""
        output.echo(
            f"again: {PROGRAM} --scenario {result.workload} --first {result.seed} --seeds 1"
            f"{options} --trace"
        )


def _run(
    work: Sequence[tuple[str, int]], defect: str, faults: int | None, jobs: int, *, shown: bool
) -> Iterator[SimulationResult]:
    """Results in the order of the seeds, with a progress bar meanwhile."""
    if len(work) == 1:
        _silence_logs("CRITICAL")
        try:
            yield run_seed(work[0], defect, faults)
        finally:
            _silence_logs("NOTSET")
        return
    chunk = CHUNK if faults is None else 1
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_prepare) as pool:
        results = pool.map(partial(run_seed, defect=defect, faults=faults), work, chunksize=chunk)
        bar = output.console(to_stderr=True, quiet=not shown)
        yield from track(results, "simulating", total=len(work), console=bar)


def _prepare() -> None:
    """Prepare a process that runs seeds."""
    _silence_logs()
    gc.freeze()  # each seed ends with a collection, which would visit all modules
    gc.set_threshold(*GC_THRESHOLDS)


def _silence_logs(level: str = "CRITICAL") -> None:
    """Log nothing of the faults that brokers and clients meet: the scenario asked for them."""
    for name in ("roquet", "asyncio"):
        logging.getLogger(name).setLevel(level)


def main() -> None:
    """Run the command line; an error is one line on stderr and an exit code."""
    command = get_command(app)
    set_metavars(command)
    cli.run(partial(command, prog_name=PROGRAM))
