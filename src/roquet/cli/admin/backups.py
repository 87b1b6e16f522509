"""roquet backup, restore: copies a data directory while its broker runs; makes one of a copy."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from roquet.cli.operator_command import Result
from roquet.cli.terminal import output
from roquet.model.errors import UsageError

if TYPE_CHECKING:
    from roquet.store.backup.manifest import BackupManifest

MIB: Final = 1024 * 1024


def backup(
    directory: Annotated[Path, typer.Argument(help="A broker's data directory, in use or not.")],
    backups: Annotated[Path, typer.Argument(help="A directory of backups, outside of it.")],
    *,
    keep: Annotated[
        int | None,
        typer.Option(min=1, metavar="COUNT", help="Remove all but the newest ones after it."),
    ] = None,
) -> Result:
    """Make a backup of a data directory; its broker goes on. Files that are full are shared."""
    from roquet.net.clock import SystemClock
    from roquet.store.backup.backup import back_up, remove_old

    made = back_up(directory, backups, SystemClock().now_ms())
    removed = remove_old(backups, keep) if keep is not None else []
    facts = {"copied": made.copied, "removed": [str(path) for path in removed]}
    line = f"{made.path}: {_summary(made.manifest)}, {_mebibytes(made.copied)} of them copied now"
    return Result(
        json=[{**_facts(made.path, made.manifest), **facts}],
        text=[line, *(f"{path}: removed" for path in removed)],
    )


def restore(
    backup: Annotated[
        Path, typer.Argument(help="A backup, or a directory of backups for its newest one.")
    ],
    directory: Annotated[
        Path | None, typer.Argument(help="The data directory to make; missing or empty.")
    ] = None,
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Compare all checksums, and restore nothing.")
    ] = False,
) -> Result:
    """Make a data directory of a backup, and compare its checksums; a broker can be started on it.

    Exit code 1 when the backup is damaged; then nothing is restored.
    """
    from roquet.broker.replication.control import machine_boot
    from roquet.store.backup import restore as store_restore
    from roquet.store.backup.manifest import read_manifest

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


def _facts(path: Path, manifest: "BackupManifest") -> dict[str, Any]:
    return {
        "backup": str(path),
        "made_ms": manifest.made_ms,
        "log_begin": manifest.log_begin,
        "log_end": manifest.log_end,
        "files": len(manifest.files),
        "bytes": manifest.stored,
    }


def _summary(manifest: "BackupManifest") -> str:
    return (
        f"messages from position {manifest.log_begin:,} to {manifest.log_end:,},"
        f" {output.quantity(len(manifest.files), 'file')}, {_mebibytes(manifest.stored)}"
    )


def _mebibytes(size: int) -> str:
    return f"{size / MIB:.1f} MiB"
