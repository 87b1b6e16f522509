"""roquet lab run, report, scenarios: balance strategies over millions of simulated histories."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from roquet.cli.command_options import argument, option
from roquet.cli.operator_command import CommandGroup, Result, check_extra
from roquet.cli.spark_jobs.job_options import MASTER
from roquet.cli.terminal import output
from roquet.cli.terminal.printable_console import PrintableColumn
from roquet.lab import scenario
from roquet.lab.scenario import FLIGHTS, LabScenario
from roquet.lab.study import Study, StudyDirectory, write_atomically
from roquet.model.errors import UsageError
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.executors import require_context

if TYPE_CHECKING:
    from roquet.lab.invariants import InvariantResult
    from roquet.lab.summary import StudySummary

NEEDED: Final = ("pyspark", "pyarrow", "numpy")
"""Packages that the extra `spark` installs."""

ALL: Final = "all"
SEED: Final = 1

app: Final = CommandGroup("lab", "Try balance strategies over simulated histories, on Spark.")

LabDirectoryArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="What `run --out` wrote.")
]


@app.command()
def run(
    as_json: bool,
    scenario: list[str] = option("A name, a JSON file, or all; may be given several times."),
    out: Path = option("A new directory, or one to go on with.", metavar="DIR"),
    histories: str = option("Of each scenario: 1_000_000.", default="10_000"),
    seed: int = option("The same one gives the same table.", default=SEED),
    strategies: str = option("AVG,STICKY,POP,… or all.", default=ALL),
    master: str | None = MASTER,
) -> Result:
    """Simulate a scenario under every strategy, and say which one to choose when.

    The table is in DIR/histories, one row for each history and strategy; the page is
    DIR/report.html. The same command continues a run that was interrupted.
    """
    check_extra("spark", NEEDED)
    from roquet.lab import decisions, study

    chosen = study.validated(
        study.Study(
            scenarios=tuple(one for name in scenario for one in scenarios_of(name)),
            strategies=_strategies(strategies, decisions.NAMES),
            histories=_count(histories),
            seed=seed,
        )
    )
    place = study.StudyDirectory(out)
    place.claim(chosen)
    if place.missing(chosen):
        _play(chosen, place, master, quiet=as_json)
    return _result(_summed_up(chosen, place), place)


@app.command()
def report(
    as_json: bool,
    directory: LabDirectoryArgument,
    open_: bool = option("In the browser.", "--open/--no-open", default=True),
) -> None:
    """Write the page of a finished run again, and open it."""
    check_extra("spark", NEEDED)
    place = StudyDirectory(directory)
    study = place.study()
    if study is None:
        raise UsageError(f"{directory} holds no study: `roquet lab run --out` makes one")
    if missing := place.missing(study):
        raise UsageError(
            f"{directory} is not finished: {len(missing)} of {len(study.parts())} parts are "
            "missing; start the same `roquet lab run` again"
        )
    _result(_summed_up(study, place), place).show(as_json=as_json)
    if open_ and not as_json:
        typer.launch(place.report.resolve().as_uri())


@app.command()
def scenarios(
    name: str | None = argument("Show this one, as JSON to start from."),
) -> Result | None:
    """List the scenarios, or show one in full."""
    if name is not None:
        output.echo_lines(output.json_text(scenario.preset(name), pretty=True))
        return None
    presets = [scenario.preset(one) for one in scenario.preset_names()]
    return Result(json=presets, text=_scenario_table(presets))


def _scenario_table(presets: Sequence[LabScenario]) -> Iterator[Any]:
    rows = ((one.name, one.about, one.describe()) for one in presets)
    yield output.table(("scenario", "what happens", "its numbers"), rows)


def scenarios_of(name: str) -> Sequence[LabScenario]:
    """The scenarios that --scenario means."""
    if name == ALL:
        return [scenario.validated(one) for one in scenario.PRESETS.values()]
    if name.endswith(".json") or Path(name).is_file():
        return [_with_trace(scenario.from_file(Path(name)))]
    return [_with_trace(scenario.validated(scenario.preset(name)))]


def _with_trace(scenario: LabScenario) -> LabScenario:
    """The scenario with key weights and hours of the flights, if it is theirs and has none."""
    if scenario.name != FLIGHTS or scenario.key_weights:
        return scenario
    from roquet.cli.demo.flights import archive_path
    from roquet.lab.trace import with_trace

    return with_trace(scenario, archive_path(), key="tailnum", hour="hour")


def _strategies(text: str, known: Sequence[str]) -> tuple[str, ...]:
    from roquet.lab.decisions import known_strategy

    names = [part.strip() for part in text.split(",") if part.strip()]
    if [name.lower() for name in names] == [ALL]:
        return tuple(known)
    return tuple(known_strategy(name) for name in names)


def _count(text: str) -> int:
    plain = text.replace("_", "").replace(",", "")
    if not plain.isdecimal() or not plain.isascii() or not int(plain):
        raise UsageError(f"--histories: {text!r} is not a whole number over 0")
    return int(plain)


def _play(study: Study, place: StudyDirectory, master: str | None, *, quiet: bool) -> None:
    from roquet.lab import spark_job
    from roquet.spark.jobs.job_runner import spark_for

    with _hushed(), _progress(study, quiet=quiet) as progress:
        spark = spark_for("roquet lab", master)
        require_context(spark, "the lab")
        spark.sparkContext.setLogLevel("FATAL")  # what fails is raised here, too
        began_ms = SYSTEM_CLOCK.monotonic_ms()
        try:
            spark_job.run(spark, study, place, progress)
        except KeyboardInterrupt:
            kept = len(study.parts()) - len(place.missing(study))
            output.echo(
                f"roquet: interrupted; {kept} of {len(study.parts())} parts are kept, and the "
                "same command goes on from there",
                err=True,
            )
            raise
        finally:
            spark.stop()
            place.clear()  # tasks that were interrupted may have written until now
    if not quiet:
        seconds = max(SYSTEM_CLOCK.monotonic_ms() - began_ms, 1) / 1000
        rows = study.histories * study.contests
        output.echo(f"{rows:,} rows in {seconds:,.0f} s: {rows / seconds:,.0f} a second", err=True)


@contextmanager
def _hushed() -> Iterator[None]:
    """Silence py4j's log of Ctrl-C; real errors are raised as well."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        root.setLevel(level)


@contextmanager
def _progress(study: Study, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    bar = Progress(
        PrintableColumn("histories"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=output.console(to_stderr=True, quiet=quiet),
    )
    task = bar.add_task("histories", total=study.histories)
    with bar:
        yield lambda done: bar.update(task, completed=min(done, study.histories))


def _summed_up(study: Study, place: StudyDirectory) -> "StudySummary":
    """The summary of all histories; writes it and its page beside the table."""
    from roquet.lab.report import html
    from roquet.lab.summary import summarize

    summary = summarize(study, place)
    write_atomically(place.summary, msgspec.json.format(msgspec.json.encode(summary)))
    write_atomically(place.report, html(summary).encode())
    return summary


def _result(summary: "StudySummary", place: StudyDirectory) -> Result:
    failed = [claim for claim in summary.claims if not claim.holds]
    return Result(json=[summary], text=_lines(summary, failed, place), is_failed=bool(failed))


def _lines(
    summary: "StudySummary", failed: "Sequence[InvariantResult]", place: StudyDirectory
) -> Iterator[Any]:
    yield _choices(summary)
    for claim in failed:
        yield f"does not hold: {claim.text} ({claim.found})"
    held = len(summary.claims) - len(failed)
    yield f"{held} of {len(summary.claims)} claims hold; {place.report.resolve().as_uri()}"


def _choices(summary: "StudySummary") -> Any:
    from roquet.lab.report import next_text
    from roquet.lab.summary import GOALS

    goals = {goal.measure: goal for goal in GOALS}
    rows: list[tuple[str, ...]] = []
    for part in summary.parts:
        for number, choice in enumerate(part.choices):
            chosen, *others = choice.best
            is_all = bool(others) and len(choice.best) == choice.of
            cells = ("whichever", "all of them") if is_all else (chosen, ", ".join(others))
            goal = goals[choice.measure]
            name = "" if number else part.name
            rows.append((name, goal.text, *cells, next_text(choice, goal)))
    return output.table(("scenario", "you want", "choose", "as good", "next, worse by"), rows)
