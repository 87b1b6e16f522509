"""roquet support bundle: collects what explains a server's trouble into one file."""

import os
from pathlib import Path
from typing import Final

from roquet.admin.support_bundle import BundleSources, collect, pack
from roquet.cli.command_options import argument, option
from roquet.cli.operator_command import CommandGroup, Result
from roquet.cli.process import runtime
from roquet.cli.terminal import output
from roquet.model.printable_text import size_text
from roquet.net.clock import SystemClock
from roquet.store.filesystem.private_files import open_private

app: Final = CommandGroup("support", "What others need to help.")


@app.command()
def bundle(
    file: Path = argument("The archive to write.", default=Path("roquet-support.tar.gz")),
    *,
    data: list[Path] | None = option("A broker's data directory.", metavar="DIR"),
    config: list[Path] | None = option("A settings file.", "-c"),
    log: list[Path] | None = option("A log file.", metavar="FILE"),
    metrics: list[str] | None = option(
        "Where a running server shows its metrics.", metavar="HOST:PORT"
    ),
    check: bool = option("Check the log, however large it is."),
) -> Result:
    """Write settings, tables, logs, metrics, stacks and a store's check into one file.

    Every option may be given several times. Secrets, users and message bodies are left out.
    """
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
