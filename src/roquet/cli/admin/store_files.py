"""roquet dump, check: prints any store file as text; checks a store directory."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from roquet.admin.directory_check import check_directory
from roquet.broker.replication.control import machine_boot
from roquet.broker.settings.config_file import load
from roquet.broker.settings.store_settings import store_config
from roquet.cli.command_options import argument, option
from roquet.cli.operator_command import Result
from roquet.cli.terminal import output
from roquet.model.errors import UsageError
from roquet.model.printable_text import printable
from roquet.net.clock import SystemClock
from roquet.store import dump as store_dump
from roquet.store.backup import restore as store_restore
from roquet.store.backup.backup import back_up, remove_old
from roquet.store.backup.manifest import BackupManifest, read_manifest
from roquet.store.check import StoreReport
from roquet.store.config import StoreConfig

TEXT_MAX: Final = 160
"""Characters of one value in text output; `--json` cuts nothing."""

StoreJsonOption = Annotated[bool, typer.Option("--json", help="JSON, with nothing cut.")]
StoreConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="The broker.conf, when it sets sizes of files."),
]


def dump(
    file: Path = argument("A log, queue, index, checkpoint or table file."),
    *,
    json: StoreJsonOption = False,
    config: StoreConfigOption = None,
) -> None:
    """Print the contents of a store file, one entry a line. The file is not changed."""
    for values in store_dump.dump_file(file, config=_layout(config)):
        if json:
            output.echo_json([values])
        elif values["kind"] == "table":
            output.echo_lines(output.json_text(values["content"], pretty=True))
        else:
            output.echo(_as_text(values))


def check(
    directory: Path = argument("A data directory that no broker is using."),
    *,
    json: StoreJsonOption = False,  # noqa: ARG001 - the result is printed so
    config: StoreConfigOption = None,
) -> Result:
    """Check a data directory for damage. Nothing is changed; exit code 1 when it is damaged."""
    report = check_directory(directory, _layout(config))
    return Result(
        json=[{"verdict": report.verdict, **msgspec.to_builtins(report)}],
        text=_report_lines(report),
        is_failed=report.verdict == "damaged",
    )


def _layout(config: Path | None) -> StoreConfig | None:
    if config is None:
        return None
    return store_config(load(config, os.environ))


def _report_lines(report: StoreReport) -> Iterator[str]:
    yield f"{report.directory}: {report.verdict}"
    yield (
        f"  {report.records:,} records in {report.queues:,} queues, "
        f"positions {report.begin:,} to {report.end:,}; "
        f"{'closed in good order' if report.is_closed else 'not closed'}"
    )
    for damage in report.damage:
        yield f"  unreadable: {damage}"
    for problem in report.problems:
        yield f"  wrong: {problem}"
    for pending in report.pending:
        yield f"  mended at the next start: {pending}"


def _as_text(values: Mapping[str, Any]) -> str:
    rest = (f"{name}={_short(value)}" for name, value in values.items() if name != "kind")
    return " ".join([str(values["kind"]), *rest])


def _short(value: object) -> str:
    text = output.json_text(value) if isinstance(value, dict) else printable(str(value))
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}… ({len(text)} characters)"


MIB: Final = 1024 * 1024


def backup(
    directory: Path = argument("A broker's data directory, in use or not."),
    backups: Path = argument("A directory of backups, outside of it."),
    keep: int | None = option("Remove all but the newest ones after it.", min=1, metavar="COUNT"),
) -> Result:
    """Make a backup of a data directory; its broker goes on. Files that are full are shared."""
    made = back_up(directory, backups, SystemClock().now_ms())
    removed = remove_old(backups, keep) if keep is not None else []
    facts = {"copied": made.copied, "removed": [str(path) for path in removed]}
    line = f"{made.path}: {_summary(made.manifest)}, {_mebibytes(made.copied)} of them copied now"
    return Result(
        json=[{**_facts(made.path, made.manifest), **facts}],
        text=[line, *(f"{path}: removed" for path in removed)],
    )


def restore(
    backup: Path = argument("A backup, or a directory of backups for its newest one."),
    directory: Path | None = argument("The data directory to make; missing or empty."),
    check: bool = option("Compare all checksums, and restore nothing."),
) -> Result:
    """Make a data directory of a backup, and compare its checksums; a broker can be started on it.

    Exit code 1 when the backup is damaged; then nothing is restored.
    """
    if check == (directory is not None):
        raise UsageError("give the data directory to make, or --check without one")
    found = store_restore.find_backup(backup)
    if directory is None:
        damaged = list(store_restore.damaged_files(found))
        manifest = read_manifest(found)
    else:
        # Others may have acknowledged messages that are not in it: it must not lead before it has
        # copied them.
        marks = {machine_boot.FILE_NAME: machine_boot.LACKING.encode()}
        manifest, damaged = store_restore.restore(found, directory, marks), []
    verdict = "damaged" if damaged else f"restored to {directory}" if directory else "whole"
    return Result(
        json=[{**_facts(found, manifest), "damaged": damaged}],
        text=[*damaged, f"{found}: {verdict}; {_summary(manifest)}"],
        is_failed=bool(damaged),
    )


def _facts(path: Path, manifest: BackupManifest) -> dict[str, Any]:
    return {
        "backup": str(path),
        "made_ms": manifest.made_ms,
        "log_begin": manifest.log_begin,
        "log_end": manifest.log_end,
        "files": len(manifest.files),
        "bytes": manifest.stored,
    }


def _summary(manifest: BackupManifest) -> str:
    return (
        f"messages from position {manifest.log_begin:,} to {manifest.log_end:,},"
        f" {output.quantity(len(manifest.files), 'file')}, {_mebibytes(manifest.stored)}"
    )


def _mebibytes(size: int) -> str:
    return f"{size / MIB:.1f} MiB"
