"""roquet spark maintain: old days, small files and older versions of a table."""

from typing import TYPE_CHECKING, Final

import msgspec

from roquet.cli.command_options import As, argument, option
from roquet.cli.operator_command import Result
from roquet.cli.spark_jobs.job_options import (
    KIND,
    JobOptions,
    TableOptions,
    check_installed,
    check_java,
    millis,
)
from roquet.cli.terminal import output
from roquet.model.errors import UsageError
from roquet.model.printable_text import size_text
from roquet.model.settings import parse_millis
from roquet.net.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from roquet.lake.maintain.maintenance import MaintenanceReport
    from roquet.lake.maintain.refill import RefillCounts
    from roquet.lake.task_set import TaskResult, TaskSet

_DAY_MS: Final = 24 * 3_600_000


def _days(text: str) -> int:
    """Whole days of a time such as 90d. Raises UsageError for parts of days."""
    days, rest = divmod(parse_millis(text, "--keep"), _DAY_MS)
    if rest or not days:
        raise UsageError(f"--keep: {text!r} is not a number of whole days such as 90d")
    return days


class _MergeOptions(JobOptions):
    master: str | None = option("Merge files on this Spark; else in this process.")


class MaintainOptions(TableOptions, _MergeOptions):
    """Options of `roquet spark maintain`."""

    directory: str = argument(
        "The archive, or a materialized table.", gives=As("target"), metavar="TABLE"
    )
    keep: str | None = option(
        "Remove days (UTC) before these: 90d; else none.",
        gives=As("keep_days", _days),
        metavar="DAYS",
    )
    refill: list[str] | None = option(
        "Fill a body column for older rows; may be repeated.",
        gives=As("refill", tuple),
        metavar="COLUMN",
    )
    snapshots: str = option(
        "How long replaced versions of the table stay.",
        default="7d",
        gives=As("versions_ms", millis("--snapshots")),
        metavar="TIME",
    )
    preview: bool = option("Only say what would be done; the default.")
    yes: bool = option("Do it.", "-y")
    kind: str | None = KIND


def maintain(options: MaintainOptions) -> Result:
    """Remove old days, fill columns, merge small files, and give up versions replaced long ago.

    Without --yes it says in numbers what it would do. No job may write to the table meanwhile.
    """
    check_installed()
    from roquet.lake.maintain import maintenance
    from roquet.spark.jobs.job_runner import run_task_set, spark_for

    if options.preview and options.yes:
        raise UsageError("--preview or --yes: it is done, or it is not")
    params = options.params(maintenance.Params, is_preview=not options.yes)

    def merge_on_spark(tasks: "TaskSet") -> "list[TaskResult]":
        return run_task_set(spark_for("roquet maintain", params.master), tasks)

    if params.master is not None:
        check_java(params.master)
    merge = maintenance.run_here if params.master is None else merge_on_spark
    report = maintenance.run(params, merge, SYSTEM_CLOCK.now_ms())
    place = {"table": params.target, "preview": params.is_preview}
    return Result(
        json=[{**place, **msgspec.to_builtins(report)}],
        text=report_lines(params.target, report, is_preview=params.is_preview),
    )


def report_lines(target: str, report: "MaintenanceReport", *, is_preview: bool) -> list[str]:
    """The report as lines of text."""
    would = "would be " if is_preview else ""
    files = output.quantity(report.files, "file")
    what = "latest state" if report.is_state else "archive"
    lines = [f"{target}: {what} of {report.topic}, {files}, {size_text(report.bytes)}"]
    if report.retired_files:
        lines.append(
            f"  {output.quantity(report.retired_rows, 'row')} before {report.retired_before} "
            f"{would}removed: {output.quantity(report.retired_files, 'file')}, "
            f"{size_text(report.retired_bytes)}"
        )
    lines += _refilled_lines(report.refilled, would)
    if report.merged_files:
        lines.append(
            f"  {output.quantity(report.merged_files, 'small file')}, "
            f"{size_text(report.merged_bytes)}, {would}merged in "
            f"{output.quantity(report.groups, 'group')}"
        )
    if report.restated_files:
        lines.append(
            f"  statistics of {output.quantity(report.restated_files, 'file')} {would}completed"
        )
    if report.expired_files or report.expired_versions:
        versions = output.quantity(report.expired_versions, "older version")
        of_versions = f"{versions} with " if report.expired_versions else ""
        lines.append(
            f"  {of_versions}{output.quantity(report.expired_files, 'file')} that no later version "
            f"has {would}removed"
        )
    if len(lines) == 1:
        lines.append("  nothing to do")
    elif is_preview:
        left = output.quantity(report.left_files, "file")
        lines.append(f"  {left} would be left; --yes does it")
    else:
        lines.append(f"  {output.quantity(report.left_files, 'file')} left")
    return lines


def _refilled_lines(refilled: "RefillCounts", would: str) -> list[str]:
    values, files = (
        output.quantity(refilled.filled, "value"),
        output.quantity(refilled.files, "file"),
    )
    lines = [f"  {values} from bodies {would}written to {files}"] if refilled.filled else []
    if refilled.unfit:
        unfit = output.quantity(refilled.unfit, "value")
        lines.append(f"  {unfit} of another type than the column left in the body")
    return lines
