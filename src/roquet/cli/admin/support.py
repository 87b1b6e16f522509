"""roquet support bundle: collects what explains a server's trouble into one file."""

import os
from pathlib import Path
from typing import Annotated, Final

import typer

from roquet.cli.operator_command import CommandGroup, Result
from roquet.cli.process import runtime
from roquet.cli.terminal import output
from roquet.model.printable_text import size_text

app: Final = CommandGroup("support", "What others need to help.")


@app.callback()
def _support() -> None:
    """Help others to help."""


@app.command()
def bundle(
    file: Annotated[Path, typer.Argument(help="The archive to write.")] = Path(
        "roquet-support.tar.gz"
    ),
    *,
    data: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="A broker's data directory.")
    ] = None,
    config: Annotated[
        list[Path] | None, typer.Option("--config", "-c", help="A settings file.")
    ] = None,
    log: Annotated[list[Path] | None, typer.Option(metavar="FILE", help="A log file.")] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="Where a running server shows its metrics."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Check the log, however large it is.")
    ] = False,
) -> Result:
    """Write settings, tables, logs, metrics, stacks and a store's check into one file.

    Every option may be given several times. Secrets, users and message bodies are left out.
    """
    from roquet.admin.support_bundle import BundleSources, collect, pack
    from roquet.net.clock import SystemClock
    from roquet.store.filesystem.private_files import open_private

    sources = BundleSources(
        data=data or (), configs=config or (), logs=log or (), metrics=metrics or (),
        environ=dict(os.environ), checks_all=check,
    )  # fmt: skip
    clock = SystemClock()
    found = runtime.run(collect(sources, clock))
    packed = pack(found, clock.now_ms() // 1000)
    with open(file, "wb", opener=open_private) as archive:
        archive.write(packed)
    faults = found["faults.txt"].decode().splitlines()
    facts = {"file": str(file), "bytes": len(packed), "files": sorted(found), "faults": faults}
    return Result(
        json=[facts],
        text=[f"{file}: {output.quantity(len(found), 'file')}, {size_text(len(packed))}"],
        hints=[f"left out: {fault}" for fault in faults],
    )
